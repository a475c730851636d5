"""What run health keeps: one look at a run at a time, nothing lost with a process, and bounded reading of long runs."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Connection, insert, select, update

from app.domain.judging import Judgement
from app.domain.rollups import RollupKey
from app.domain.runs import Hold, Run
from app.domain.scores import Score
from app.features.health.model import HealthReading, HealthState, Mark, PlayerUse
from app.features.health.store import READINGS_KEPT, RunHealthStore, health_readings, run_anchors
from app.main.store import Store
from app.store.group_rows import build_group_row
from app.store.judge_cache import MOST_VERSIONS
from app.store.statements import encode
from app.store.tables import groups, rollups
from tests.store.test_plans import Statement, fill_and_analyze, filler, indexes_of, statements_made
from tests.support.store_cases import START, MovableClock, alarm, group, opened, record, using
from tests.support.tables import read_table

READINGS = 4000
RUNS = 80


async def fill_run(store: Store, count: int = 2, run: str = "run") -> None:
    await store.runs.create(Run(name=run, seed=1, created_at=START))
    await store.tasks.put([record(0)])
    await store.groups.add([group(f"{run} {number}", run=run) for number in range(count)])


@pytest.fixture
async def replicas(store: Store, store_url: str, clock: MovableClock) -> AsyncIterator[tuple[RunHealthStore, ...]]:
    """Of `store`, and of another one of the same database."""
    async with opened(store_url, clock) as other:
        yield store.part(RunHealthStore), other.part(RunHealthStore)


@pytest.mark.dialects
async def test_of_two_replicas_one_looks_after_a_run(store: Store, replicas: tuple[RunHealthStore, ...]) -> None:
    for name in ("a", "b", "c"):
        await fill_run(store, run=name)
    claims = [*await asyncio.gather(*(health.claim(60, 60) for _ in range(6) for health in replicas))]
    claims += [await replicas[1].claim(60, 60) for _ in range(3)]
    left = [await health.claim(60, 60) for health in replicas]
    assert (sorted(claim.name for claim in claims if claim is not None), left) == (["a", "b", "c"], [None, None])


@pytest.mark.dialects
async def test_a_look_whose_process_died_is_made_again_and_cannot_end_late(
    store: Store, replicas: tuple[RunHealthStore, ...], clock: MovableClock
) -> None:
    one, other = replicas
    await fill_run(store)
    dead, meanwhile = await one.claim(60, 600), await other.claim(60, 600)
    clock.forward(61)
    taken = await other.claim(60, 600)
    assert dead is not None
    assert taken is not None
    renewed = [await store.claims.renew(claim, 60) for claim in (dead, taken)]
    await one.finish(dead, HealthState(groups=99))
    await other.finish(taken, HealthState(groups=2))
    clock.forward(61)
    found = meanwhile, taken.name, renewed, await one.claim(60, 600), await one.get_state("run")
    assert found == (None, "run", [False, True], None, HealthState(groups=2))


@pytest.mark.dialects
async def test_answers_of_players_are_counted_once_by_the_newest_groups_of_a_run(store: Store) -> None:
    """Those alone that a group paid for, and no readings of judges."""
    health = store.part(RunHealthStore)
    await fill_run(store, 0)
    found = [await health.load_player_use("run", 2)]
    for number in range(3):
        answers = [
            Judgement(judge="player:carter", model="m", order=(), calls=1, latency_seconds=1.5, purpose="player"),
            Judgement(
                judge="player:carter", model="m", order=(), calls=2, latency_seconds=2.0, purpose="player", error="no"
            ),
            Judgement(judge="player:carter", model="m", order=(), calls=0, cached=True, purpose="player"),
            Judgement(judge="critic", model="m", order=(), calls=1),
        ]
        await store.groups.add([group(f"run {number}", run="run", judgements=tuple(answers))])
    use = PlayerUse(groups=2, answers=4, discarded=2, calls=6, seconds=7.0)
    assert [*found, await health.load_player_use("run", 2)] == [None, use]


def test_a_twentieth_of_many_answers_of_players_may_be_discarded() -> None:
    cases = ((99, 99), (100, 5), (100, 6))
    told = [PlayerUse(groups=1, answers=all_, discarded=bad, calls=1, seconds=1).is_alarming for all_, bad in cases]
    assert told == [False, False, True]


def test_a_state_is_stored_under_the_names_that_it_always_had() -> None:
    state = HealthState.model_validate({"rush": 3, "groups": 5})
    assert (state.hurried_readings, state.groups, state.model_dump(mode="json")["rush"]) == (3, 5, 3)


async def test_a_run_is_due_with_a_bucket_of_new_groups_or_after_a_while(store: Store, clock: MovableClock) -> None:
    health = store.part(RunHealthStore)

    async def look() -> bool:
        claim = await health.claim(60, 60)
        if claim is not None:
            await health.finish(claim, HealthState())
        return claim is not None

    await fill_run(store)
    found = [await look(), await look()]
    await store.groups.add([group("one more")])
    found.append(await look())
    clock.forward(61)
    found += [await look(), await look()]
    await store.groups.add([group(f"new {number}") for number in range(10)])
    assert [*found, await look()] == [True, False, False, True, False, True]


@pytest.mark.dialects
async def test_a_notice_is_sent_by_one_replica_and_again_after_a_crash(
    store: Store, replicas: tuple[RunHealthStore, ...], clock: MovableClock
) -> None:
    (one, other), hold = replicas, Hold(alarm_id="alarm_1", reason="length", since=START)
    await fill_run(store)
    raised = [await one.add_alarm("run", alarm(), hold) for _ in range(2)]
    racing = await asyncio.gather(*(health.claim_notices(5, 60) for health in (one, other)))
    sent = [attempts for found in racing for _, _, attempts in found]
    clock.forward(61)  # whoever took it has died
    sent += [attempts for _, _, attempts in await other.claim_notices(5, 60)]
    await other.settle_notice("alarm_1", 10)
    clock.forward(11)
    sent += [attempts for _, _, attempts in await one.claim_notices(5, 60)]
    await one.settle_notice("alarm_1", None)
    clock.forward(1000)
    left, held, counted = await one.claim_notices(5, 60), await store.runs.get("run"), await one.count_alarms()
    released = await other.release("run")
    found = raised, sent, left, held and held.held, counted, released.held, await one.count_alarms()
    assert found == ([True, False], [0, 1, 2], [], hold, {"length": 1}, None, {})


def reading(number: int, *, run: str = "run", kind: str = "anchor", failed: str = "") -> HealthReading:
    return HealthReading.model_validate(
        {
            "reading_id": f"{run} {number}",
            "run": run,
            "environment": "gsm8k",
            "label": None,
            "group_id": f"{run} {number % 2}",
            "kind": kind,
            "judges": ("j",),
            "at_group": number,
            "values": (0.5, None),
            "distance": 0.25 if kind == "shadow" else None,
            "tokens": 10,
            "failed": failed,
        }
    )


def judged(tokens: int) -> Judgement:
    return Judgement(judge="j", model="m", order=(), calls=1, input_tokens=tokens, cost_usd=0.5)


async def test_readings_are_kept_beside_the_scores_and_counted_in_the_run(store: Store) -> None:
    health = store.part(RunHealthStore)
    await store.runs.create(Run(name="run", seed=1, created_at=START))
    await store.tasks.put([record(0)])
    score = Score(outcome="scored", reward=0.5, gate=1.0, absolute=0.5)
    await store.groups.add([group(f"run {n}", [score] * 2, judgements=(judged(100),)) for n in range(3)])
    anchors = await health.freeze_anchors("run", 2)
    kinds = [("anchor", ""), ("anchor", "budget"), ("shadow", ""), ("anchor", "")]
    for number, (kind, failed) in enumerate(kinds):
        await health.add_reading(reading(number, kind=kind, failed=failed), [judged(10)], "hold")
    found = await health.list_readings("run", 0)
    unread = await health.find_shadow_group("run")
    tokens, cost = await health.get_tokens("run"), (await store.runs.get_ledger("run")).total
    assert (
        [one.group_id for one in anchors],
        [one.at_group for one in found],
        [one.at_group for one in await health.list_readings("run", found[0].sequence)],
        unread and unread.group_id,
        (tokens.run, tokens.groups, tokens.anchor, tokens.anchor_readings, tokens.shadow, tokens.shadow_readings),
        (cost.input_tokens, cost.groups, cost.cost_usd),
    ) == (["run 0", "run 1"], [0, 3], [3], "run 2", (300, 3, 30, 2, 10, 1), (340, 3, 3.5))


async def test_a_server_that_names_ever_new_fingerprints_is_listed_for_a_while(store: Store) -> None:
    for number in range(MOST_VERSIONS + 5):
        made = judged(1).model_copy(update={"system_fingerprint": f"fp {number}"})
        await store.judge_cache.put(made)
    assert len(await store.part(RunHealthStore).list_versions(["j"])) == MOST_VERSIONS


def fill(connection: Connection) -> None:
    """A run among others, each with many readings, rollups and groups."""
    rows = [build_group_row(filler(n)) | {"task_id": "task_0", "absolute_sum": 1.0} for n in range(READINGS)]
    connection.execute(insert(groups), rows)
    connection.execute(update(groups).values(purpose="train", outcome="scored"))
    last = select(groups.c.sequence).where(groups.c.run == "r1").order_by(groups.c.sequence.desc()).limit(8)
    mine = connection.execute(last).scalars().all()
    connection.execute(insert(run_anchors), [{"run": "r1", "group_sequence": n, "created_at": 0} for n in mine])
    keys = [RollupKey("bucket", "gsm8k", f"r{n % RUNS}", "train", None, f'"l{n % 7}"', n) for n in range(READINGS)]
    counted = {"measures": '{"groups": [1, 0]}'}
    connection.execute(insert(rollups), [key._asdict() | {"digest": key.digest} | counted for key in keys])
    made = [reading(n, run=f"r{n % 10}", kind="shadow" if n % 30 < 10 else "anchor") for n in range(2 * READINGS)]
    read = [
        {
            "reading_id": f"reading {n}",
            "run": one.run,
            "group_id": f"g{READINGS - 79 - 80 * (n // 10 % 8)}",
            "kind": one.kind,
        }
        | {"at_group": n, "failed": False, "tokens": 10, "cost_usd": None}
        | {"body": encode(one), "judgements": "[]", "created_at": 0}
        for n, one in enumerate(made)
    ]
    connection.execute(insert(health_readings), read)


LATE = HealthState(marks=(Mark(first=READINGS - 620, groups=READINGS - 620), Mark(first=READINGS, groups=READINGS)))

ALLOWED = read_table(__file__, "plans.yaml", dict[str, set[str]])


async def statements_of(store: Store, url: str) -> dict[str, list[Statement]]:
    await fill_run(store, run="r1")
    fill_and_analyze(url, fill)
    kept, health = await store.part(RunHealthStore).list_readings("r1", 0), store.part(RunHealthStore)
    assert READINGS_KEPT < len(kept) <= READINGS_KEPT + 8
    return await statements_made(
        {
            "readings": health.list_readings("r1", 0),
            "cells": health.load_cells("r1", LATE),
            "anchors": health.freeze_anchors("r1", 8),
            "shadow group": health.find_shadow_group("r1"),
            "tokens": health.get_tokens("r1"),
            "due notices": health.claim_notices(5, 60),
        }
    )


@pytest.mark.dialects
def test_the_health_of_a_long_run_is_read_through_indexes(store_url: str) -> None:
    made = using(store_url, lambda store: statements_of(store, store_url))
    found = indexes_of(store_url, made)
    assert {name: used - ALLOWED[name] for name, used in found.items()} == {name: set() for name in ALLOWED}
