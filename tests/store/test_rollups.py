"""Statistics come from rollups, and are what a scan of the stored rows finds, whatever happened to the groups."""

import asyncio
import json
import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, column, event, func, select, table, update

from app.domain.judging import Judgement
from app.domain.rollups import RollupFilter
from app.domain.runs import Policy
from app.domain.scores import Criterion, Score
from app.main.store import Store
from app.store.database import open_for_inspection
from app.store.group_rows import GroupToStore
from app.store.statements import decode_json
from app.store.tables import groups, judgements, rollouts, rollups, task_rollups, tasks
from tests.support.databases import Postgres, connected, read_migrated_store
from tests.support.store_cases import group, opened, record
from tests.support.tiers import examples

KEY = (groups.c.environment, groups.c.run, groups.c.step)
LABELS = (None, "mira", "t\x00m")
DATASETS = (None, "aime")
VALUES = st.one_of(st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]), st.floats(0.0, 1.0))
CRITERIA = st.dictionaries(st.sampled_from(["voice", "lore", "a:b"]), st.one_of(st.none(), VALUES), max_size=3)
Rows = list[tuple[Any, ...]]
By = Literal["label", "dataset"] | None
BREAKDOWNS: tuple[By, ...] = (None, "label", "dataset")

scores = table("scores", *map(column, ("group_sequence", "ordinal", "name", "value")))
"""The view of criteria."""


@st.composite
def judged_scores(draw: st.DrawFn) -> Score:
    parts = tuple(Criterion(name=name, value=value, weight=0.5) for name, value in draw(CRITERIA).items())
    return Score(
        outcome="scored",
        reward=draw(VALUES),
        gate=draw(st.sampled_from([None, 0.0, 1.0])),
        absolute=draw(st.one_of(st.none(), VALUES)),
        cap=draw(st.sampled_from([None, 0.5])),
        criteria=parts,
        flags=draw(st.sampled_from([(), ("low_signal",), ("truncated", "empty")])),
        judges=draw(st.sampled_from([(), ("ann",), ("ann", "bea")])),
    )


SCORES = st.one_of(judged_scores(), st.just(Score.pending()), st.just(Score.unscored("budget")), judged_scores())
MADE = st.builds(
    Judgement,
    judge=st.just("ann"),
    model=st.just("m"),
    order=st.just(()),
    error=st.sampled_from([None, "no answer"]),
    calls=st.integers(0, 3),
)


@st.composite
def stored_groups(draw: st.DrawFn) -> GroupToStore:
    step = draw(st.sampled_from([None, 0, 1]))
    return group(
        f"g{draw(st.integers(0, 11))}",
        draw(st.lists(SCORES, min_size=1, max_size=4)),
        task_id=f"task_{draw(st.integers(0, 4))}",
        environment=draw(st.sampled_from(["gsm8k", "npc_arena"])),
        run=draw(st.sampled_from([None, "one", "two"])),
        purpose=draw(st.sampled_from(["train", "train", "eval"])),
        policy=draw(st.sampled_from([None, Policy(model="m", step=step)])),
        flags=draw(st.sampled_from([(), ("late",)])),
        judgements=tuple(draw(st.lists(MADE, max_size=2))),
    )


BATCHES = st.lists(st.tuples(st.booleans(), st.lists(stored_groups(), min_size=1, max_size=4)), max_size=10)
"""Groups that are added, or scored again where they are known; some are known when they are added."""


async def replay(store: Store, batches: list[tuple[bool, list[GroupToStore]]]) -> None:
    for n in range(5):
        task = record(n)
        metadata = {} if DATASETS[n % 2] is None else {"dataset": DATASETS[n % 2]}
        prompt = task.prompt.model_copy(update={"metadata": metadata})
        await store.tasks.put([task.model_copy(update={"label": LABELS[n % 3], "prompt": prompt})])
    known: dict[str, int] = {}
    for finishes, items in batches:
        new = {item.group.group_id: item for item in items}
        again = [item for name, item in new.items() if known.get(name) == len(item.group.rollouts)]
        if finishes and again:
            await store.groups.finish(again)
        else:
            stored = await asyncio.gather(*(store.groups.add([item]) for item in new.values()))
            known |= {one.group_id: len(one.rollouts) for [one] in stored}


def scan_statistics(connection: Connection, by: By) -> Rows:
    """As statistics were read when every group was."""
    source, key, wanted = (
        groups.join(tasks, tasks.c.task_id == groups.c.task_id),
        list(KEY),
        [groups.c.purpose == "train"],
    )
    if by is not None:
        key, wanted = [*key, tasks.c[by]], [*wanted, tasks.c[by].is_not(None)]
    summed = ("size", "scored", "unscored", "reward_sum", "absolute_sum", "absolute_count", "low_signal")
    totals = select(*key, func.count(), *(func.sum(groups.c[name]) for name in summed)).select_from(source)
    means = (
        select(*key, scores.c.name, func.avg(scores.c.value), func.count(scores.c.value))
        .select_from(source.join(scores, scores.c.group_sequence == groups.c.sequence))
        .where(*wanted, scores.c.value.is_not(None))
        .group_by(*key, scores.c.name)
        .order_by(func.min(scores.c.ordinal), scores.c.name)
    )
    parts: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for *place, name, mean, count in connection.execute(means):
        parts.setdefault(tuple(place), []).append((name, pytest.approx(mean, rel=1e-12, abs=1e-15), count))
    found = []
    for row in connection.execute(totals.where(*wanted).group_by(*key)):
        here, (count, size, scored, unscored, reward, absolute, absolutes, low) = row[: len(key)], row[len(key) :]
        means_of = [
            pytest.approx(part / over, rel=1e-12, abs=1e-15) if over else None
            for part, over in ((reward, scored), (absolute, absolutes))
        ]
        label = str(decode_json(here[3])) if by else None
        counts = (count, low, scored, unscored, size - scored - unscored)
        found.append((*here[:3], label, *counts, *means_of, parts.get(tuple(here), [])))
    return sorted(found, key=lambda row: [(value is not None, value) for value in row[:4]])


def scan_activity(connection: Connection, run: str) -> Rows:
    of_run = groups.c.run == run
    counts = select(groups.c.environment, func.count(), func.sum(groups.c.scored), func.sum(groups.c.unscored))
    tried: dict[tuple[str, str], dict[int, list[float]]] = {}
    absolute = (
        select(
            *(groups.c.environment, groups.c.task_id, groups.c.sequence),
            *(func.coalesce(rollouts.c.gate, 1.0), rollouts.c.absolute),
        )
        .join_from(groups, rollouts, rollouts.c.group_sequence == groups.c.sequence)
        .where(of_run, groups.c.purpose == "train", rollouts.c.outcome == "scored", rollouts.c.absolute.is_not(None))
    )
    for environment, task_id, sequence, gate, value in connection.execute(absolute):
        tried.setdefault((environment, task_id), {}).setdefault(sequence, []).append(gate * value)
    rates: dict[str, list[int]] = {}
    for (environment, _), of_groups in tried.items():
        total = sum(
            int(math.fsum(values) * 2.0**60) for values in of_groups.values()
        )  # as sums are kept, to the last bit
        mean = total / (sum(map(len, of_groups.values())) * 2**60)
        reached = [mean >= place / 10 for place in range(1, 10)]
        rates.setdefault(environment, [0] * 10)[sum(reached)] += 1
    rows = connection.execute(counts.where(of_run).group_by(groups.c.environment).order_by(groups.c.environment))
    return [(*row, tuple(rates.get(row[0], [0] * 10))) for row in rows]


def scan_measures(connection: Connection) -> dict[str, tuple[int, ...]]:
    """Over everything: what only health reads."""
    flagged = sum(
        json.loads(score).get("flags", []).count("truncated")
        for score in connection.execute(select(rollouts.c.score)).scalars()
    )
    gated = connection.execute(select(func.count()).select_from(rollouts).where(rollouts.c.gate == 0)).scalar_one()
    usable, calls = connection.execute(
        select(func.count().filter(judgements.c.failed.is_(False)), func.coalesce(func.sum(judgements.c.calls), 0))
    ).one()
    return {"flag:truncated": (flagged,), "gated": (gated,), "readings": (usable,), "judge_calls": (calls,)}


async def read_statistics(store: Store, by: By) -> Rows:
    rows = await store.views.get_statistics(None, None, by=by)
    return [
        (
            *(row.environment, row.run, row.step, row.label or row.dataset),
            *(row.groups, row.low_signal, row.scored, row.unscored, row.pending, row.mean_reward, row.mean_absolute),
            [(one.name, one.mean, one.count) for one in row.criteria],
        )
        for row in rows
    ]


async def read_activity(store: Store, run: str) -> Rows:
    return [
        (one.environment, one.groups, one.scored, one.unscored, one.pass_rates)
        for one in await store.runs.get_activity(run)
    ]


def read_rollups(connection: Connection) -> tuple[Mapping[str, str], set[tuple[Any, ...]]]:
    kept = {digest: measures for digest, measures in connection.execute(select(rollups.c.digest, rollups.c.measures))}
    return kept, {tuple(row) for row in connection.execute(select(task_rollups))}


def read_measures(connection: Connection) -> dict[str, tuple[int, ...]]:
    found = {"flag:truncated": 0, "gated": 0, "readings": 0, "judge_calls": 0}
    for text in connection.execute(select(rollups.c.measures).where(rollups.c.series == "step")).scalars():
        for name, value in json.loads(text).items():
            if name in found:
                found[name] += value if isinstance(value, int) else value[1] >> 60
    return {name: (value,) for name, value in found.items()}


async def compare_with_scan(url: str, batches: list[tuple[bool, list[GroupToStore]]]) -> None:
    async with opened(url) as store:
        await replay(store, batches)
        shown = [await read_statistics(store, by) for by in BREAKDOWNS]
        active = [await read_activity(store, run) for run in ("one", "two")]
        engine = open_for_inspection(url)
        with engine.connect() as connection:
            scanned = [scan_statistics(connection, by) for by in BREAKDOWNS]
            assert (shown, active) == (scanned, [scan_activity(connection, run) for run in ("one", "two")])
            assert read_measures(connection) == scan_measures(connection)
            kept = read_rollups(connection)
        uncounted = await store.statistics.forget_all()
        while counted := await store.statistics.count_groups(3):
            uncounted -= counted
        assert (uncounted, await store.views.count_uncounted()) == (0, 0)
        with engine.connect() as connection:
            assert read_rollups(connection) == kept
        engine.dispose()


@settings(max_examples=examples(150, fewest=25), deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=BATCHES)
def test_statistics_are_what_a_scan_finds(tmp_path_factory: pytest.TempPathFactory, batches: list[Any]) -> None:
    file = tmp_path_factory.mktemp("rollups") / "store.db"
    file.write_bytes(read_migrated_store())
    asyncio.run(compare_with_scan(f"sqlite:///{file}", batches))


@settings(max_examples=examples(40, fewest=6), deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=BATCHES)
def test_statistics_are_what_a_scan_finds_on_postgres(postgres: Postgres, batches: list[Any]) -> None:
    url = postgres.migrated()
    asyncio.run(compare_with_scan(url, batches))
    postgres.drop(url)


async def test_groups_of_a_failed_batch_do_not_count(store: Store) -> None:
    await store.tasks.put([record(0)])
    wrong = group("lost", task_id="task_none")
    await asyncio.gather(
        store.groups.add([group("a")]),
        store.groups.add([wrong]),
        store.groups.add([group("b")]),
        return_exceptions=True,
    )
    assert [row.groups for row in await store.views.get_statistics(None, None)] == [2]


async def test_a_group_that_cannot_be_read_is_set_aside_and_the_others_are_counted(
    store: Store, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await store.tasks.put([record(0)])
    await store.groups.add([group(f"g{number}") for number in range(5)])
    await store.statistics.forget_all()
    _write_flags(store_url, "g2", "{broken")
    counted = [await store.statistics.count_groups(20), await store.statistics.count_groups(20)]
    broken = [row.groups for row in await store.views.get_statistics(None, None)]
    _write_flags(store_url, "g2", "[]")
    again = [await store.statistics.forget_all(), await store.statistics.count_groups(20)]
    assert [counted, broken, again, [row.groups for row in await store.views.get_statistics(None, None)]] == [
        [5, 0],
        [4],
        [5, 5],
        [5],
    ]
    assert [one.getMessage() for one in caplog.records] == ["group g2 cannot be read; statistics leave it out"]


def _write_flags(url: str, group_id: str, flags: str) -> None:
    with connected(url) as connection:
        connection.execute(update(groups).where(groups.c.group_id == group_id).values(flags=flags))


async def test_replicas_that_count_at_once_lose_nothing(postgres: Postgres) -> None:
    url = postgres.migrated()
    async with opened(url) as one, opened(url) as other:
        await one.tasks.put([record(n) for n in range(3)])
        adding = [
            store.groups.add([group(f"{name}{n}", [Score.exact(n % 2 == 0)], task_id=f"task_{n % 3}")])
            for n in range(60)
            for name, store in (("a", one), ("b", other))
        ]
        await asyncio.gather(*adding)
        [row] = await other.views.get_statistics(None, None)
        [activity] = await one.runs.get_activity("run")
        assert (row.groups, row.mean_reward, activity.groups, activity.pass_rates) == (
            120,
            0.5,
            120,
            (0, 0, 0, 0, 0, 3, 0, 0, 0, 0),
        )


async def test_a_rebuild_waits_for_a_replica_that_is_writing(postgres: Postgres) -> None:
    url = postgres.migrated()
    forgetting: list[Future[int]] = []

    def is_waiting() -> bool:
        engine = open_for_inspection(url)
        with engine.connect() as connection:
            waiting = connection.exec_driver_sql(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
            ).scalar_one()
        engine.dispose()
        return bool(waiting) or forgetting[0].done()

    loop = asyncio.get_running_loop()

    def meet(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        """The rebuild begins after rollups were read, and before they are written."""
        if statement.startswith("INSERT INTO rollups") and not forgetting:
            forgetting.append(asyncio.run_coroutine_threadsafe(other.statistics.forget_all(), loop))
            while not is_waiting():
                pass

    async with opened(url) as store, opened(url) as other:
        await store.tasks.put([record(0)])
        await store.groups.add([group("first")])
        event.listen(Engine, "before_cursor_execute", meet)
        try:
            await store.groups.add([group("second")])
        finally:
            event.remove(Engine, "before_cursor_execute", meet)
        await asyncio.wrap_future(forgetting[0])
        while await store.statistics.count_groups(3):
            pass
        assert [row.groups for row in await store.views.get_statistics(None, None)] == [2]


async def test_steps_are_sampled_evenly_with_the_first_and_the_last(store: Store) -> None:
    """Of each run apart, and of those that are named alone."""
    places = [*(("a", step) for step in range(20)), ("b", 7), ("b", 90), ("c", 1)]
    await store.tasks.put([record(0)])
    await store.groups.add(
        [group(f"{run}-{step}", run=run, policy=Policy(model="m", step=step)) for run, step in places]
    )
    where = RollupFilter("step", runs=("a", "b"))
    found = await store.views.sample_steps(where, 5)
    assert [(one.key.run, one.key.step) for one in found] == [
        *(("a", step) for step in (0, 4, 8, 12, 16, 19)),
        ("b", 7),
        ("b", 90),
    ]
    assert await store.views.sample_steps(replace(where, environment="rlaif"), 5) == []
