"""Pruned groups go whole, what they added to statistics stays, and what is kept is kept for a reason."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.domain.groups import Group, Scoring
from app.domain.judging import Judgement
from app.domain.retention import KeptGroups, Pruned, PruneRule
from app.domain.rollups import RollupFilter, Series
from app.domain.runs import Policy, Purpose, ScoringOptions
from app.domain.scores import Criterion, Score
from app.features.health.store import run_anchors
from app.features.labels.store import label_leases, labels
from app.main.store import Store, metadata
from app.service.background import Pruner
from app.store.database import is_transient, open_writer
from app.store.group_rows import GroupToStore
from app.store.groups import IdempotencyKey
from app.store.retention import prepare_batch, remove_batch
from app.store.tables import groups, tasks
from tests.support.databases import Postgres, connected
from tests.support.store_cases import START, MovableClock, cycle, group, opened, record, stream, using

ALL = PruneRule(before=START + timedelta(days=1))
SERIES: tuple[Series, ...] = ("run", "step", "label", "judge", "dataset", "bucket")


def judged(reward: float) -> Score:
    voice = Criterion(name="voice", value=reward / 3, weight=1.0)
    return Score(outcome="scored", reward=reward, absolute=reward / 3, criteria=(voice,), judges=("ann",))


def asked(said: str, **given: Any) -> Judgement:
    return Judgement.model_validate({"judge": "ann", "model": "m", "order": (), "calls": 2, "prompt": said} | given)


def stored(number: int, run: str | None = "run", purpose: Purpose = "train", **given: Any) -> GroupToStore:
    return group(
        f"group_{number:032x}",
        [judged(number % 7 / 7), judged(number % 3 / 3), Score.exact(number % 2 == 0)],
        task_id=f"task_{number % 4}",
        run=run,
        purpose=purpose,
        policy=Policy(model="m", step=number // 10),
        judgements=(asked("the same"), asked(f"only here {number}")),
        **given,
    )


def scoring(group_id: str) -> Scoring:
    return Scoring(
        scoring_id=f"scoring of {group_id}",
        group_id=group_id,
        scoring_digest="d",
        options=ScoringOptions(),
        judges=("ann",),
        outcome="scored",
        scores=(judged(0.1), judged(0.2), judged(0.3)),
        judgements=(asked("again"),),
        created_at=START,
    )


async def fill(store: Store, items: Sequence[GroupToStore]) -> list[Group]:
    known = [record(n, said=f"prompt {n}").model_copy(update={"label": f"label {n % 2}"}) for n in range(4)]
    await store.tasks.put(known)
    return await store.groups.add(items)


async def read_statistics(store: Store) -> list[object]:
    """Everything that pages and routes make statistics from."""
    everything: list[object] = [await store.views.list_rollups(RollupFilter(series, purpose=None)) for series in SERIES]
    return [*everything, await store.runs.get_activity("run"), await store.runs.get_ledger("run")]


async def prune(store: Store, rule: PruneRule = ALL) -> Pruned:
    pruner = Pruner(store.retention, store.claims, pauses=0.0)
    return await pruner.prune(await pruner.plan(rule), lambda _: None)


async def rebuild(store: Store) -> None:
    await store.statistics.forget_all()
    while await store.statistics.count_groups(7):
        pass


def count_rows(url: str) -> dict[str, int]:
    with connected(url) as connection:
        counts = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }
    return {name: count for name, count in counts.items() if count}


@pytest.mark.dialects
def test_statistics_stay_after_a_prune_and_after_they_are_counted_again(store_url: str, tmp_path: Path) -> None:
    first = [stored(n, run=("run", "other", None)[n % 3]) for n in range(40)]
    more = [stored(n) for n in range(40, 45)]  # of tasks whose groups are gone

    async def scenario(store: Store, pruning: bool) -> list[list[object]]:
        seen: list[list[object]] = []

        async def look() -> None:
            seen.append(await read_statistics(store))

        async def step(work: Callable[[], Awaitable[object]]) -> None:
            if pruning:
                await work()
            await look()

        await fill(store, first)
        await look()
        await step(lambda: prune(store, PruneRule(before=ALL.before, runs=("r*",))))
        await step(lambda: rebuild(store))
        await store.groups.add(more)
        await step(lambda: prune(store))
        await step(lambda: rebuild(store))
        return seen

    pruned = using(store_url, lambda store: scenario(store, True), MovableClock())
    whole = using(f"sqlite:///{tmp_path / 'whole.db'}", lambda store: scenario(store, False), MovableClock())
    assert pruned == whole


async def test_a_pruned_group_leaves_nothing_but_its_task_and_its_name(
    store: Store, clock: MovableClock, store_url: str
) -> None:
    await fill(store, [stored(n) for n in range(20)])
    await store.scorings.put(scoring(f"group_{1:032x}"))
    pruned = await prune(store)
    kept = count_rows(store_url)
    of_statistics = {name for name in kept if name.endswith("rollups")}
    assert (pruned.model_dump(exclude={"bytes"}), {name: kept[name] for name in kept.keys() - of_statistics}) == (
        Pruned(groups=20, rollouts=60, prompts=22).model_dump(exclude={"bytes"}),
        {"tasks": 4, "prompts": 4, "pruned_groups": 20, "schema_support": 1, "spending": 1},
    )


async def test_what_people_and_health_need_is_kept(store: Store, clock: MovableClock, store_url: str) -> None:
    items = [stored(n) for n in range(6)]
    items += [stored(6, purpose="eval"), group(f"group_{7:032x}", [Score.pending()]), stored(8)]
    await fill(store, items)
    ids = [item.group.group_id for item in items]
    label: dict[str, object] = {"kind": "queue", "state": "live", "labeller": "ann", "environment": "gsm8k"}
    leased = {"labeller": "bea", "environment": "gsm8k", "arm": "uniform", "second": False, "wanted": 1, "draw": "{}"}
    held = {"state": "live", "created_at": 0}
    with connected(store_url) as connection:
        connection.execute(insert(labels), label | {"label_id": "l", "group_id": ids[0], "body": "", "created_at": 0})
        connection.execute(insert(label_leases), leased | held | {"lease_id": "x", "group_id": ids[1]})
        connection.execute(insert(run_anchors), {"run": "run", "group_sequence": 3, "created_at": 0})
        connection.execute(update(groups).where(groups.c.sequence == 4).values(counted=0))
    plan = await store.retention.plan(ALL)
    await prune(store)
    left = [name for name in ids if name in await store.groups.find(ids)]
    (kept, planned, rollouts) = (plan.kept, plan.groups, plan.rollouts)
    counts = {"anchor": 1, "labelled": 2, "pending": 1, "purpose": 1, "uncounted": 1}
    assert (kept, planned, rollouts, left) == (
        tuple(KeptGroups.model_validate({"because": name, "groups": count}) for name, count in counts.items()),
        3,
        9,
        [item.group.group_id for item in (*items[:4], *items[6:8])],
    )


async def test_the_oldest_groups_go_until_the_others_come_to_the_size(store: Store, clock: MovableClock) -> None:
    await fill(store, [stored(n) for n in range(100)])
    everything = await store.retention.plan(ALL)
    await prune(store, PruneRule(keep_bytes=everything.bytes // 2))
    ids = [f"group_{n:032x}" for n in range(100)]
    left = sorted(await store.groups.find(ids))
    assert (len(left) in range(34, 51), left[-1]) == (True, f"group_{99:032x}")


async def test_a_group_that_is_scored_further_meanwhile_stays(store: Store, clock: MovableClock) -> None:
    unscored = stored(1).group.model_copy(update={"outcome": "unscored"})
    first = unscored.rollouts[0].model_copy(update={"score": Score.unscored("judge_failed")})
    waiting = GroupToStore(unscored.model_copy(update={"rollouts": (first, *unscored.rollouts[1:])}))
    await fill(store, [waiting, stored(2)])
    plan = await store.retention.plan(ALL)
    database = store.retention.database  # between its read and its write
    batch = await database.read(lambda connection: prepare_batch(connection, plan, 0, 10))
    await store.groups.finish([stored(1)])
    pruned = await database.write(lambda connection: remove_batch(connection, database, batch), "groups")
    stays = unscored.group_id in await store.groups.find([unscored.group_id])
    assert (pruned.groups, stays) == (1, True)


async def test_leftovers_go_by_age_and_the_leases_of_stored_groups_stay(
    store: Store, store_url: str, clock: MovableClock
) -> None:
    await store.tasks.put([record(0), record(1), record(2)])
    given = (await store.tasks.lease(stream(), 3, 60.0, cycle(3))).leases
    answered = [
        group(f"group_{place}", task_id=f"task_{lease.slot.index}", lease_id=lease.lease_id)
        for place, lease in enumerate(given[:2])
    ]
    await store.groups.add(answered, IdempotencyKey("key", "body"))
    await store.judge_cache.put(asked("x", reading="r"))
    clock.forward(90 * 86_400)
    anchor = {"run": "run", "group_sequence": 1, "created_at": 0}
    with connected(store_url) as connection:
        connection.execute(insert(run_anchors), anchor)
    pruned = await prune(store, PruneRule(before=clock.moment - timedelta(days=30)))
    left = await store.tasks.get_leases([lease.lease_id for lease in given])
    counts = (pruned.groups, pruned.leases, pruned.idempotency_keys, pruned.judge_cache)
    assert (counts, len(left)) == ((1, 1, 1, 1), 2)


@pytest.mark.dialects
def test_two_prune_at_once_while_groups_come_and_nothing_counts_twice(store_url: str, tmp_path: Path) -> None:
    old, new = [stored(n) for n in range(120)], [stored(n) for n in range(120, 150)]
    later = [GroupToStore(one.group.model_copy(update={"created_at": START + timedelta(days=2)})) for one in new]

    async def work(store: Store, pruning: bool) -> tuple[int, list[object], list[object]]:
        await fill(store, old)
        async with opened(store_url if pruning else f"sqlite:///{tmp_path / 'whole.db'}", MovableClock()) as other:
            pruning_both = asyncio.gather(*(prune(each) for each in (store, other) if pruning))
            await asyncio.gather(*(store.groups.add([one]) for one in later))
            removed = sum(each.groups for each in await pruning_both)
        seen = await read_sums(store)
        await rebuild(store)
        return removed, seen, await read_sums(store)

    removed, seen, again = using(store_url, lambda store: work(store, True), MovableClock())
    _, whole, _ = using(f"sqlite:///{tmp_path / 'whole.db'}", lambda store: work(store, False), MovableClock())
    assert (removed, seen, again) == (120, whole, whole)


async def read_sums(store: Store) -> list[object]:
    """Without buckets, in which groups stand in the order of their arrival."""
    series: tuple[Series, ...] = ("run", "step", "label", "judge")
    return [await store.views.list_rollups(RollupFilter(each)) for each in series]


def test_who_used_a_prompt_in_the_moment_in_which_it_went_tries_again(postgres: Postgres) -> None:
    engine = open_writer(postgres.migrated())
    row = {"task_id": "t", "environment": "e", "version": "1", "data_digest": "d", "split": "train", "index": 0}
    row |= {"params": "{}", "params_digest": "p", "prompt_digest": "gone", "title": "", "created_at": 0}
    with engine.connect() as connection, pytest.raises(IntegrityError) as broken:
        connection.execute(insert(tasks), row)
    engine.dispose()
    assert is_transient(broken.value)
