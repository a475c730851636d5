"""Groups on their way to trainers, in both databases: nothing lost, nothing twice, runs apart."""

import asyncio

import pytest
from sqlalchemy import select

from app.features.atropos.model import (
    BatchNotReady,
    EnvRegistration,
    PackedGroup,
    QueueCount,
    QueueLag,
    TrainerRegistration,
    TrajectoryBatch,
)
from app.features.atropos.service import form_batch
from app.features.atropos.store import (
    DUPLICATE_WINDOW_SECONDS,
    IN_TRANSIT_SECONDS,
    MAX_GROUPS_PER_STATEMENT,
    TrajectoryQueue,
    bodies,
)
from app.main.store import Store
from app.store.database import open_reader
from tests.support.store_cases import MovableClock
from tests.support.tables import read_table

pytestmark = pytest.mark.dialects

TRAINER = read_table(__file__, "registered_trainer.yaml", TrainerRegistration)
ENV = EnvRegistration(max_token_length=512, desired_name="a\x00name", weight=1.0, group_size=8)


def packed(name: str, size: int = 8, env_id: int | None = 0) -> PackedGroup:
    return PackedGroup(env_id, size, name, name.encode())


def seen(handed: object) -> object:
    """A batch as its number, what is in it and whether it is repeated."""
    if not isinstance(handed, TrajectoryBatch):
        return "not yet" if isinstance(handed, BatchNotReady) else handed
    return handed.number, [part.body.decode() for part in handed.parts], handed.again


async def queued(store: Store, *names: str, run: str = "run") -> None:
    await store.part(TrajectoryQueue).register(run, TRAINER)
    for name in names:
        await store.part(TrajectoryQueue).add(run, [packed(name)])


async def test_batches_come_in_order_and_count_steps(store: Store) -> None:
    queue = store.part(TrajectoryQueue)
    await queued(store, "a", "b", "c", "d", "e")
    first = seen(await queue.take_batch("run", "life", [], form_batch))
    second = seen(await queue.take_batch("run", "life", [1], form_batch))
    third = seen(await queue.take_batch("run", "life", [2], form_batch))
    state = await queue.get_run("run", "life")
    found = first, second, third, state.step, state.queue_counts, state.started
    assert found == ((1, ["a", "b"], False), (2, ["c", "d"], False), "not yet", 102, (QueueCount(0, 8, 1),), True)


async def test_the_queue_says_how_many_steps_its_groups_have_waited(store: Store) -> None:
    queue = store.part(TrajectoryQueue)
    await queue.add("run", [packed("early")])
    found = [await queue.get_lag("run"), await queue.get_lag("nobody")]
    await queued(store, "a", "b", "c", "d", "e")
    found.append(await queue.get_lag("run"))
    for sent in ((), (1,)):
        await queue.take_batch("run", "life", sent, form_batch)
    await queue.add("run", [packed("f"), packed("long", 40)])
    found.append(await queue.get_lag("run"))
    await queue.take_batch("run", "life", (2,), form_batch)
    found.append(await queue.get_lag("run"))
    await queue.register("run", TRAINER.model_copy(update={"starting_step": 50}))
    assert [*found, await queue.get_lag("run")] == [
        QueueLag(),
        QueueLag(),
        QueueLag(5, 0.0, 0, 0),  # "early" came before a trainer had registered
        QueueLag(4, 1.0, 2, 0),  # d and e after two batches; f and long at once
        QueueLag(2, 1.0, 1, 0),
        QueueLag(0, None, None, 2),
    ]


async def test_what_was_posted_before_the_trainer_came_waits_for_it(store: Store) -> None:
    queue = store.part(TrajectoryQueue)
    await queue.add("run", [packed("a", env_id=2**70), packed("b", env_id=None)])
    before = await queue.take_batch("run", "life", [], form_batch), await queue.join("run", ENV)
    await queue.register("run", TRAINER)
    found = before, seen(await queue.take_batch("run", "life", [], form_batch))
    assert found == ((None, None), (1, ["a", "b"], False))


async def test_a_batch_nobody_confirmed_goes_out_again_in_another_life(store: Store, clock: MovableClock) -> None:
    queue = store.part(TrajectoryQueue)
    await queued(store, "a", "b", "c", "d", "e", "f")
    await queue.take_batch("run", "first life", [], form_batch)
    await queue.take_batch("run", "first life", [1], form_batch)
    clock.forward(IN_TRANSIT_SECONDS)
    told = await queue.get_run("run", "second life")
    again = seen(await queue.take_batch("run", "second life", [], form_batch))
    after = await queue.get_run("run", "second life")
    new = seen(await queue.take_batch("run", "second life", [2], form_batch))
    found = (told.step, told.groups, told.undelivered), again, (after.step, after.groups), new
    assert found == ((101, 4, 1), (2, ["c", "d"], True), (102, 2), (3, ["e", "f"], False))


async def test_a_batch_that_was_recorded_as_sent_is_delivered_whoever_is_asked_next(
    store: Store, store_url: str, clock: MovableClock
) -> None:
    queue = store.part(TrajectoryQueue)
    await queued(store, "a", "b", "c", "d")
    await queue.take_batch("run", "first life", [], form_batch)
    await queue.record_sent("run", [1])
    clock.forward(IN_TRANSIT_SECONDS)
    told = await queue.get_run("run", "second life")
    new = seen(await queue.take_batch("run", "second life", [], form_batch))
    after = await queue.get_run("run", "third life")
    found = (told.step, told.groups, told.undelivered), new, (after.step, after.groups, after.undelivered)
    until_lost = 0 if store_url.startswith("postgres") else 1
    assert found == ((101, 2, 0), (2, ["c", "d"], False), (102 - until_lost, 2 * until_lost, until_lost))


async def test_a_batch_that_could_not_be_sent_goes_out_again_at_once(store: Store) -> None:
    queue = store.part(TrajectoryQueue)
    await queued(store, "a", "b", "c", "d")
    await queue.take_batch("run", "life", [], form_batch)
    await queue.return_batch("run", 1)
    lost = await queue.get_run("run", "life")
    found = (lost.step, lost.groups), [seen(await queue.take_batch("run", "life", [], form_batch)) for _ in range(3)]
    assert found == ((100, 4), [(1, ["a", "b"], True), (2, ["c", "d"], False), "not yet"])


async def test_the_same_group_sent_again_is_one_for_a_while(store: Store, clock: MovableClock) -> None:
    queue = store.part(TrajectoryQueue)
    await queue.register("run", TRAINER)
    first = await queue.add("run", [packed("a"), packed("b"), packed("a")])
    await queue.take_batch("run", "life", [], form_batch)
    await queue.take_batch("run", "life", [1], form_batch)
    clock.forward(DUPLICATE_WINDOW_SECONDS)
    soon = await queue.add("run", [packed("a"), packed("c")])
    clock.forward(1)
    late = await queue.add("run", [packed("a")])
    assert (first, soon, late) == (2, 1, 1)


async def test_many_groups_in_one_post_are_in_line_in_their_order_each_once(store: Store) -> None:
    names = [f"g{number}" for number in range(MAX_GROUPS_PER_STATEMENT + 100)]
    queue = store.part(TrajectoryQueue)
    await queue.register("run", TRAINER.model_copy(update={"batch_size": 8 * len(names)}))
    nothing = await queue.add("run", [])
    new = await queue.add("run", [packed(name) for name in [*names, *names[:3]]])
    again = await queue.add("run", [packed(name) for name in reversed(names)])
    found = nothing, new, again, seen(await queue.take_batch("run", "life", [], form_batch))
    assert found == (0, len(names), 0, (1, names, False))


async def test_the_newest_group_is_the_latest_example_even_when_delivered(store: Store) -> None:
    queue = store.part(TrajectoryQueue)
    before = await queue.get_newest_group_body("run")
    await queued(store, "a", "b")
    await queue.take_batch("run", "life", [], form_batch)
    await queue.take_batch("run", "life", [1], form_batch)
    found = before, await queue.get_newest_group_body("run"), await queue.get_newest_group_body("other")
    assert found == (None, b"b", None)


async def test_environments_get_dense_ids_and_numbered_names(store: Store) -> None:
    queue = store.part(TrajectoryQueue)
    await queue.register("run", TRAINER)
    early = await queue.join("run", ENV)
    await queue.take_batch("run", "life", [], form_batch)
    other = ENV.model_copy(update={"desired_name": "other"})
    joined = [await queue.join("run", one) for one in (ENV, other, ENV)]
    left = await queue.leave("run", 1), await queue.leave("run", 3), await queue.leave("run", -1)
    kept = (await queue.get_run("run", "life")).env_clients
    assert (early, [(one.env_id, one.name) for one in joined if one], left, [one.connected for one in kept]) == (
        None,
        [(0, "a\x00name_0"), (1, "other_0"), (2, "a\x00name_1")],
        (True, False, False),
        [True, False, True],
    )


async def test_signs_of_life_are_kept_by_environment(store: Store, clock: MovableClock) -> None:
    queue = store.part(TrajectoryQueue)
    await queue.register("run", TRAINER)
    await queue.take_batch("run", "life", [], form_batch)
    for _ in range(3):
        await queue.join("run", ENV)
    clock.forward(10)
    await queue.record_heartbeat("run", 0)
    await queue.record_heartbeat("run", 7)
    await queue.record_heartbeat("run", 2**70)
    now = clock()
    found = [(now - one.seen_at).total_seconds() for one in (await queue.get_run("run", "life")).env_clients]
    assert found == [0, 10, 10]


async def test_another_registration_begins_its_own_steps_and_the_same_one_changes_nothing(store: Store) -> None:
    queue = store.part(TrajectoryQueue)
    await queued(store, "a", "b", "c", "d")
    await queue.take_batch("run", "life", [], form_batch)
    await queue.register("run", TRAINER)
    same = (await queue.get_run("run", "life")).step
    await queue.register("run", TRAINER.model_copy(update={"starting_step": 7, "batch_size": 8}))
    begun = (await queue.get_run("run", "life")).step
    assert (same, begun, seen(await queue.take_batch("run", "life", [1], form_batch))) == (101, 7, (2, ["c"], False))


async def test_runs_do_not_see_one_another(store: Store) -> None:
    queue = store.part(TrajectoryQueue)
    await queued(store, "a", "b", run="red")
    await queue.add("blue", [packed("a"), packed("c")])
    await queue.register("blue", TRAINER)
    names = await queue.list_runs(10)
    await queue.reset("red")
    gone = (
        await queue.get_run("red", "life"),
        await queue.get_newest_group_body("red"),
        await queue.get_backlog("red"),
    )
    red = await queue.take_batch("red", "life", [], form_batch)
    found = names, gone[0].registration, gone[1:], red, seen(await queue.take_batch("blue", "life", [], form_batch))
    assert found == (["blue", "red"], None, (None, None), None, (1, ["a", "c"], False))


async def test_many_askers_at_once_get_every_group_once(store: Store) -> None:
    queue = store.part(TrajectoryQueue)
    await queue.register("run", TRAINER)
    adding = [queue.add("run", [packed(f"g{n}")]) for n in range(40)]
    asking = [queue.take_batch("run", "life", [], form_batch) for _ in range(40)]
    results = await asyncio.gather(*adding, *asking)
    results += [await queue.take_batch("run", "life", [], form_batch) for _ in range(20)]
    assert sorted(
        part.body.decode() for one in results if isinstance(one, TrajectoryBatch) for part in one.parts
    ) == sorted(f"g{n}" for n in range(40))


async def test_what_was_delivered_leaves_no_body_behind_but_the_newest(store: Store, store_url: str) -> None:
    queue = store.part(TrajectoryQueue)
    await queued(store, "a", "b")
    await queue.take_batch("run", "life", [], form_batch)
    await queue.take_batch("run", "life", [1], form_batch)
    await queued(store, "c", "d", "e")
    await queue.take_batch("run", "life", [], form_batch)
    await queue.take_batch("run", "life", [2], form_batch)
    engine = open_reader(store_url, connections=1)
    with engine.connect() as connection:
        kept = select(bodies.c.digest).where(bodies.c.body.is_not(None)).order_by(bodies.c.body_id)
        found = list(connection.execute(kept).scalars())
    engine.dispose()
    assert found == ["e"]
