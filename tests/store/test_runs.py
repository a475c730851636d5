"""Runs, their pins and what they have done."""

import asyncio

import pytest

from app.domain.errors import InvalidRequest, NotFound
from app.domain.groups import RunActivity
from app.domain.runs import HealthOptions, Pin, Run, RunChange, ScoringOptions
from app.domain.scores import Score
from app.main.store import Store
from tests.store.test_groups import refused
from tests.support.store_cases import START, MovableClock, cycle, group, opened, record, stream


def run(name: str = "run", seed: int = 7, pins: tuple[Pin, ...] = ()) -> Run:
    options = ScoringOptions(judges=("a", "b"), relative_weight=0.25, on_truncated="score")
    return Run(name=name, seed=seed, strict=seed > 7, options=options, pins=pins, created_at=START)


def pin(environment: str, version: str = "1") -> Pin:
    return Pin(environment=environment, version=version, scoring_digest="d", parts={"b": "1", "a": "2"})


async def test_a_run_is_made_once(store: Store) -> None:
    first = run(seed=2**53 - 1, pins=(pin("gsm8k"),))
    absent = await store.runs.get("run"), await store.runs.get("\x00")
    created = await store.runs.create(first), await store.runs.create(run(seed=1, pins=(pin("other"),)))
    assert (absent, created, await store.runs.get("run")) == ((None, None), (first, first), first)


async def test_the_first_pin_of_an_environment_is_kept(store: Store, clock: MovableClock) -> None:
    await store.runs.create(run())
    await store.runs.pin("run", pin("zoo"))
    clock.forward(1)
    await store.runs.pin("run", pin("ark"))
    assert (await store.runs.pin("run", pin("zoo", "2")), type(await refused(store.runs.pin("none", pin("zoo"))))) == (
        run(pins=(pin("zoo"), pin("ark"))),
        NotFound,
    )


@pytest.mark.dialects
async def test_two_changes_of_the_lag_limit_at_once_both_stay(store: Store, store_url: str) -> None:
    """Each writes what it was given alone, and is checked against what is stored by then."""
    made = await store.runs.create(run("a"))
    async with opened(store_url) as other:
        changes = RunChange(max_lag=3), RunChange(lag_policy="flag")
        await asyncio.gather(store.runs.change("a", changes[0]), other.runs.change("a", changes[1]))
        both = await store.runs.change("a", RunChange(lag_policy="drop"))
        await other.runs.change("a", RunChange(max_lag=None, lag_policy="flag"))
        with pytest.raises(InvalidRequest, match="'pace' needs a `max_lag`"):
            await store.runs.change("a", RunChange(lag_policy="pace"))
        left = await store.runs.get("a")
    assert [made.max_lag, both.max_lag, both.lag_policy, left and (left.max_lag, left.lag_policy)] == [
        None,
        3,
        "drop",
        (None, "flag"),
    ]


async def test_what_a_run_keeps_and_its_health_can_be_changed_and_taken_back(store: Store) -> None:
    await store.runs.create(run("a"))
    health = HealthOptions(on_alarm="hold")
    changed = await store.runs.change("a", RunChange(keep="texts", health=health))
    back = await store.runs.change("a", RunChange(keep=None))
    assert (changed.keep, changed.health, back.keep, back.health) == ("texts", health, None, health)


async def test_runs_are_listed_in_pages(store: Store) -> None:
    a, b, c = (run(name, pins=(pin(name),)) for name in "abc")
    for name in ("c", "a", "b"):
        await store.runs.create(run(name, pins=(pin(name),)))
    assert (await store.runs.list(2, None), await store.runs.list(2, "b"), await store.runs.list(2, "c")) == (
        [a, b],
        [c],
        [],
    )


async def test_activity_counts_hand_outs_and_rollouts_of_this_run(store: Store, clock: MovableClock) -> None:
    another = RunActivity(environment="another", handed_out=0, outstanding=0, groups=1, scored=2, unscored=0)
    rates = (0, 0, 0, 0, 0, 0, 1, 0, 0, 0)
    gsm8k = RunActivity(
        environment="gsm8k", handed_out=3, outstanding=2, groups=2, scored=3, unscored=1, pass_rates=rates
    )
    later = gsm8k.model_copy(update={"handed_out": 4, "outstanding": 1})
    await store.tasks.put([record(0)])
    held = await store.tasks.lease(stream(), 1, 60, cycle(9))
    await store.tasks.lease(stream(digest="other"), 2, 30, cycle(9))
    await store.tasks.lease(stream(run="another"), 5, 60, cycle(9))
    await store.tasks.reserve(stream(digest="mixture"), 3)
    scores = [Score.exact(True), Score.unscored("budget"), Score.pending()]
    await store.groups.add([group("a", scores, lease_id=held.leases[0].lease_id), group("b"), group("c", run=None)])
    await store.groups.add([group("d", environment="another", purpose="eval"), group("e", run="another")])
    before = await store.runs.get_activity("run")
    clock.forward(31)
    again = await store.tasks.lease(stream(digest="other"), 1, 30, cycle(9))
    assert (before, len(again.leases), await store.runs.get_activity("run"), await store.runs.get_activity("none")) == (
        (another, gsm8k),
        1,
        (another, later),
        (),
    )
