"""Handing out tasks: each once, to one holder at a time, none skipped."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from app.domain.runs import HeldLease, Run, Slot, Stream
from app.main.store import Store
from app.store.leases import MAX_DEFERRED, LeaseResult, StreamState
from tests.support.store_cases import START, MovableClock, cycle, group, opened, record, stream


def places(leased: LeaseResult) -> list[tuple[int, int]]:
    return [(lease.slot.epoch, lease.slot.index) for lease in leased.leases]


def counts(leased: LeaseResult) -> tuple[int, bool]:
    return leased.outstanding, leased.drained


async def test_positions_are_handed_out_in_order_until_a_one_epoch_stream_is_drained(store: Store) -> None:
    leased = [await store.tasks.lease(stream(), count, 60, cycle(5, epochs=1)) for count in (3, 3, 3)]
    assert [(places(one), counts(one)) for one in leased] == [
        ([(0, 0), (0, 1), (0, 2)], (3, False)),
        ([(0, 3), (0, 4)], (5, True)),
        ([], (5, True)),
    ]


async def test_a_lease_says_until_when_and_for_what(store: Store, clock: MovableClock) -> None:
    leased = await store.tasks.lease(stream(), 1, 90.5, cycle(5))
    held = await store.tasks.get_leases([leased.leases[0].lease_id, "lease_unknown", "\x00", "\ud800"])
    lease = leased.leases[0]
    expected = HeldLease(
        lease_id=lease.lease_id, run="run", environment="gsm8k", split="train", params={"level": 1}, index=0
    )
    assert (lease.expires_at, lease.slot, held) == (
        START + timedelta(seconds=90.5),
        Slot(position=0, epoch=0, index=0),
        {lease.lease_id: expected},
    )


async def test_runs_that_hold_a_task_are_known_by_the_task(store: Store) -> None:
    held = [{"run"}, {"run", "other"}, set(), {"third"}]
    for name, split, count in (("run", "train", 3), ("other", "train", 1), ("third", "test", 1)):
        await store.runs.create(Run(name=name, seed=1, created_at=START))
        await store.tasks.lease(stream(name, split=split), count, 60, cycle(9))
    keys = [record(index).key for index in (2, 0, 5)]
    assert await store.tasks.find_leasing_runs([*keys, keys[0].model_copy(update={"index": 0, "split": "test"})]) == [
        frozenset(one) for one in held
    ]


@pytest.mark.dialects
async def test_who_asked_before_a_task_was_leased_sees_that_it_is(store: Store) -> None:
    await store.runs.create(Run(name="run", seed=1, created_at=START))
    seen = [await store.tasks.find_leasing_runs([record(0).key]) for _ in range(2)]
    await store.tasks.lease(stream("run"), 1, 60, cycle(9))
    assert [*seen, *[await store.tasks.find_leasing_runs([record(0).key]) for _ in range(2)]] == [
        [frozenset()],
        [frozenset()],
        [frozenset({"run"})],
        [frozenset({"run"})],
    ]


async def test_what_is_given_back_goes_next_and_was_never_handed_out(store: Store, clock: MovableClock) -> None:
    await store.runs.create(Run(name="run", seed=1, created_at=START))
    first = await store.tasks.lease(stream(), 3, 60, cycle(9))
    elsewhere = await store.tasks.lease(stream(digest="other"), 1, 60, cycle(9, epochs=1))
    await store.tasks.expire_leases(stream(), [lease.lease_id for lease in (*first.leases[:2], *elsewhere.leases)])
    again = [await store.tasks.lease(stream(), count, 60, cycle(9)) for count in (3, 1)]
    assert ([places(one) for one in again], [row.handed_out for row in await store.runs.get_activity("run")]) == (
        [[(0, 0), (0, 1), (0, 4)], [(0, 5)]],
        [6],
    )


@pytest.mark.dialects
async def test_without_a_clock_of_the_test_leases_last_as_long_as_they_say(store: Store) -> None:
    await store.tasks.lease(stream(), 1, 0.0, cycle(5, epochs=1))
    again = await store.tasks.lease(stream(), 1, 60, cycle(5, epochs=1))
    assert (places(again), places(await store.tasks.lease(stream(), 1, 60, cycle(5, epochs=1)))) == ([(0, 0)], [(0, 1)])


async def test_expired_leases_come_first_and_under_a_new_name(store: Store, clock: MovableClock) -> None:
    first = await store.tasks.lease(stream(), 2, 60, cycle(9))
    clock.forward(59)
    early = await store.tasks.lease(stream(), 1, 60, cycle(9))
    clock.forward(1)
    again = await store.tasks.lease(stream(), 3, 60, cycle(9))
    assert (places(early), places(again), counts(again)) == ([(0, 2)], [(0, 0), (0, 1), (0, 3)], (4, False))
    assert {lease.lease_id for lease in first.leases}.isdisjoint(lease.lease_id for lease in again.leases)


async def test_one_hand_out_never_holds_a_task_twice(store: Store, clock: MovableClock) -> None:
    first = await store.tasks.lease(stream(), 5, 60, cycle(2))
    clock.forward(61)
    second = await store.tasks.lease(stream(), 5, 60, cycle(2))
    clock.forward(61)
    assert [places(one) for one in (first, second, await store.tasks.lease(stream(), 5, 60, cycle(2)))] == [
        [(0, 0), (0, 1)]
    ] * 3


async def test_an_expired_lease_that_nobody_took_over_is_still_outstanding(store: Store, clock: MovableClock) -> None:
    await store.tasks.lease(stream(), 2, 60, cycle(2, epochs=1))
    clock.forward(61)
    assert [counts(await store.tasks.lease(stream(), count, 60, cycle(2, epochs=1))) for count in (0, 1)] == [
        (2, True),
        (2, True),
    ]


async def test_answering_a_lease_ends_it(store: Store, clock: MovableClock) -> None:
    await store.tasks.put([record(0)])
    leased = await store.tasks.lease(stream(), 1, 60, cycle(1, epochs=1))
    await store.groups.add([group(lease_id=leased.leases[0].lease_id)])
    clock.forward(61)
    after = await store.tasks.lease(stream(), 1, 60, cycle(1, epochs=1))
    assert (counts(after), places(after)) == ((0, True), [])


async def test_a_task_that_is_out_is_kept_back_for_later_and_not_skipped(store: Store, clock: MovableClock) -> None:
    """The second epoch meets tasks of the first that are still held."""
    await store.tasks.put([record(index) for index in range(3)])
    first = await store.tasks.lease(stream(), 3, 60, cycle(3))
    await store.groups.add([group("b", task_id="task_1", lease_id=first.leases[1].lease_id)])
    second = await store.tasks.lease(stream(), 1, 60, cycle(3))
    await store.groups.add([group("a", task_id="task_0", lease_id=first.leases[0].lease_id)])
    third = await store.tasks.lease(stream(), 1, 60, cycle(3))
    clock.forward(61)
    rest = await store.tasks.lease(stream(), 4, 60, cycle(3))
    assert (places(second), places(third)) == ([(1, 1)], [(1, 0)])
    assert places(rest)[:3] == [(0, 2), (1, 0), (1, 1)]  # expired ones, the first epoch's before the second's


@pytest.mark.dialects
async def test_every_place_is_handed_out_although_holders_come_and_go(store: Store, clock: MovableClock) -> None:
    await store.tasks.put([record(index) for index in range(5)])
    answered: Counter[tuple[int, int]] = Counter()
    for turn in range(200):
        leased = await store.tasks.lease(stream(), 3, 10, cycle(5, epochs=4))
        kept = [lease for lease in leased.leases if (turn + lease.slot.index) % 3]  # a third is abandoned
        made = [(f"{turn}-{lease.lease_id}", f"task_{lease.slot.index}", lease.lease_id) for lease in kept]
        await store.groups.add([group(name, task_id=task, lease_id=lease) for name, task, lease in made])
        answered.update((lease.slot.epoch, lease.slot.index) for lease in kept)
        if leased.drained and leased.outstanding == 0:
            break
        clock.forward(3)
    assert (counts(leased), answered) == ((0, True), {(epoch, index): 1 for epoch in range(4) for index in range(5)})


async def test_a_task_is_out_whichever_stream_of_the_run_it_came_from(store: Store, clock: MovableClock) -> None:
    other = stream(digest="other")
    mine = await store.tasks.lease(stream(), 1, 60, cycle(3, epochs=1))
    theirs = await store.tasks.lease(other, 3, 60, cycle(3, epochs=1))
    stranger = await store.tasks.lease(stream(run="another"), 1, 60, cycle(3, epochs=1))
    clock.forward(61)
    assert [places(one) for one in (mine, theirs, stranger, await store.tasks.lease(other, 3, 60, cycle(3)))] == [
        [(0, 0)],
        [(0, 1), (0, 2)],
        [(0, 0)],
        [(0, 1), (0, 2), (0, 0)],
    ]


async def test_an_expired_lease_whose_task_another_stream_holds_waits(store: Store, clock: MovableClock) -> None:
    other = stream(digest="other")
    out = [(0, 0)]
    one = cycle(1, epochs=1)
    seen = [await store.tasks.lease(stream(), 1, 60, one)]
    clock.forward(61)
    seen += [await store.tasks.lease(other, 1, 60, one), await store.tasks.lease(stream(), 1, 60, one)]
    clock.forward(61)
    seen += [await store.tasks.lease(stream(), 1, 60, one)]
    assert [(places(leased), counts(leased)) for leased in seen] == [
        (out, (1, True)),
        (out, (1, True)),
        ([], (1, True)),
        (out, (1, True)),
    ]


async def test_free_tasks_go_out_although_the_first_places_kept_back_are_of_one_task(store: Store) -> None:
    """As many places are kept back as may be, the first ones all of task 0, and the next new ones are of tasks that are
    out. Tasks 0 and 1 are answered: both go out."""
    first_new = 4 + MAX_DEFERRED

    def locate(position: int) -> Slot:
        index = 0 if 4 <= position < 20 else position % 4 if position < first_new else 2
        return Slot(position=position, epoch=position, index=index)

    await store.tasks.put([record(index) for index in range(4)])
    held = await store.tasks.lease(stream(), 4, 60, locate)
    await store.tasks.lease(stream(), 300, 60, locate)
    await store.groups.add([group(f"g{n}", task_id=f"task_{n}", lease_id=held.leases[n].lease_id) for n in range(2)])
    again = await store.tasks.lease(stream(), 2, 60, locate)
    assert sorted(one.slot.index for one in again.leases) == [0, 1]


async def test_what_is_kept_back_is_bounded(store: Store) -> None:
    tasks = store.tasks
    await tasks.lease(stream(), 2, 60, cycle(2))
    leased = [await tasks.lease(stream(), 2, 60, cycle(2)) for _ in range(3)]
    assert (len(leased[-1].leases), leased[-1].outstanding, await tasks.reserve(stream(), 1)) == (
        0,
        2 + MAX_DEFERRED,
        2 + MAX_DEFERRED,
    )


async def test_reserving_moves_the_stream_on(store: Store) -> None:
    firsts = [await store.tasks.reserve(stream(), count) for count in (3, 2, 1)]
    assert (firsts, places(await store.tasks.lease(stream(), 1, 60, cycle(100)))) == ([0, 3, 5], [(0, 6)])


async def _greedy(store: Store, mine: Stream, size: int) -> list[int]:
    """A trainer that takes what it can get and never answers."""
    taken: list[int] = []
    while leased := (await store.tasks.lease(mine, 7, 60, cycle(size, epochs=1))).leases:
        taken += [lease.slot.index for lease in leased]
    return taken


async def test_the_front_is_where_a_stream_stands_and_what_its_run_holds(store: Store, clock: MovableClock) -> None:
    mine, sibling, stranger = stream(), stream(digest="sibling"), stream("other")
    found = [await store.tasks.get_stream_state(mine)]
    await store.tasks.lease(stranger, 4, 600, cycle(9))
    await store.tasks.lease(mine, 2, 60, cycle(9))
    leased = await store.tasks.lease(sibling, 3, 600, cycle(9))
    found.append(await store.tasks.get_stream_state(mine))
    await store.tasks.put([record(2)])
    await store.groups.add([group(task_id="task_2", lease_id=leased.leases[0].lease_id)])
    clock.forward(60)
    assert [*found, await store.tasks.get_stream_state(mine)] == [
        StreamState(position=0, held=frozenset()),
        StreamState(position=2, held=frozenset({0, 1, 2, 3, 4})),
        StreamState(position=2, held=frozenset({3, 4})),
    ]


@pytest.mark.dialects
async def test_replicas_and_streams_never_hand_out_the_same_task(store: Store, store_url: str) -> None:
    async with opened(store_url) as replica:
        trainers = [_greedy(one, stream(digest=mine), 200) for one in (store, replica) for mine in ("a", "b", "c")]
        taken = await asyncio.gather(*trainers)
    assert sorted(index for some in taken for index in some) == list(range(200))


async def test_the_oldest_step_is_that_of_a_lease_which_is_out_in_any_replica(
    store: Store, store_url: str, clock: MovableClock
) -> None:
    await store.tasks.put([record(0)])
    async with opened(store_url, clock) as other:
        found = [await other.tasks.get_oldest_step("run")]
        first = await store.tasks.lease(stream(), 1, 900, cycle(9), 3)
        await store.tasks.lease(stream(digest="fifth"), 1, 60, cycle(9), 5)
        await store.tasks.lease(stream(digest="plain"), 1, 900, cycle(9))
        await other.tasks.lease(stream(run="another"), 1, 900, cycle(9), 1)
        await other.tasks.lease(stream(digest="seventh"), 1, 900, cycle(9), 7)
        found.append(await other.tasks.get_oldest_step("run"))
        await store.groups.add([group(lease_id=first.leases[0].lease_id)])
        found.append(await other.tasks.get_oldest_step("run"))
        clock.forward(61)
        found.append(await other.tasks.get_oldest_step("run"))
    assert found == [None, 3, 5, 7]
