"""What judging a run has cost: kept with the judgements, equal to a scan of them, never spent beyond a budget."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.domain.budgets import RunCost, RunSpending, build_run_cost
from app.domain.groups import Scoring
from app.domain.judging import Judgement
from app.domain.runs import Run, RunChange, ScoringOptions
from app.domain.scores import Score
from app.main.store import Store
from app.store.judge_limits import identify_process
from tests.support.store_cases import START, MovableClock, group, record, using
from tests.support.tiers import examples

FIELDS = ("calls", "input_tokens", "output_tokens", "unanswered_calls", "unanswered_tokens", "unanswered_usd")


def judgement(chance: random.Random) -> Judgement:
    if chance.random() < 0.2:
        return Judgement(judge="j", model="m", order=("a",), cost_usd=0.0, cached=True)
    return Judgement(
        judge="j",
        model="m",
        order=("a",),
        error=chance.choice([None, "no answer"]),
        calls=chance.randint(1, 3),
        input_tokens=chance.randint(0, 9000),
        output_tokens=chance.randint(0, 900),
        cost_usd=chance.choice([0.25, 0.5, None]),
        unanswered_calls=chance.randint(0, 1),
        unanswered_tokens=chance.randint(0, 100),
        unanswered_usd=chance.choice([0.0, 0.125]),
    )


def scoring(number: int, group_id: str, made: tuple[Judgement, ...]) -> Scoring:
    return Scoring(
        scoring_id=f"scoring_{number}",
        group_id=group_id,
        scoring_digest=str(number),
        options=ScoringOptions(),
        judges=("j",),
        outcome="unscored",
        scores=(Score.unscored("judge_failed"),),
        judgements=made,
        created_at=START,
    )


async def act(store: Store, chance: random.Random, number: int, known: dict[str, str]) -> None:
    """Adds a group, a retry of one, or a new scoring; a retry may carry nothing new."""
    made = tuple(judgement(chance) for _ in range(chance.randint(0, 3)))
    verb = chance.choice(["add", "finish", "rescore"]) if known else "add"
    if verb == "add":
        environment, group_id = chance.choice(["gsm8k", "another"]), f"g{number}"
        unscored = [Score.unscored("judge_failed")]
        await store.groups.add([group(group_id, unscored, environment=environment, judgements=made)])
        await store.groups.add([group(group_id, unscored, environment=environment, judgements=made)])
        known[group_id] = environment
        return
    group_id = chance.choice(sorted(known))
    if verb == "finish":
        scores = [Score.exact(True)]
        await store.groups.finish([group(group_id, scores, environment=known[group_id], judgements=made)])
    else:
        await store.scorings.put(scoring(number, group_id, made))


async def scan(store: Store, group_ids: Sequence[str]) -> RunSpending:
    total: dict[str, float] = dict.fromkeys((*FIELDS, "groups", "readings", "cost_usd", "unpriced_calls"), 0)
    for group_id in group_ids:
        detail = await store.views.get_group(group_id)
        assert detail is not None
        made = [*detail.judgements, *(each for one in detail.scorings for each in one.judgements)]
        total["groups"] += bool(made)
        total["readings"] += len(made)
        for each in made:
            total["cost_usd"] += each.cost_usd or 0.0
            total["unpriced_calls"] += each.calls if each.cost_usd is None else 0
            for name in FIELDS:
                total[name] += getattr(each, name)
    return RunSpending.model_validate(total)


@pytest.mark.parametrize("seed", range(examples(20, fewest=3)))
async def test_what_is_kept_is_what_a_scan_finds(store: Store, clock: MovableClock, seed: int) -> None:
    chance = random.Random(seed)
    await store.tasks.put([record(0)])
    known: dict[str, str] = {}
    await store.groups.add([group("other", run="other", judgements=(judgement(chance),)), group("none", run=None)])
    for number in range(25):
        await act(store, chance, number, known)
        clock.forward(chance.choice([1, 600, 7000]))
    kept, other = [(await store.runs.get_ledger(name)).total for name in ("run", "other")]
    assert (kept, other.readings) == (await scan(store, sorted(known)), 1)


def paid(usd: float | None, calls: int = 1) -> Judgement:
    return Judgement(judge="j", model="m", order=("a",), calls=calls, input_tokens=100, output_tokens=10, cost_usd=usd)


def run(budget_usd: float | None) -> Run:
    return Run(name="run", seed=1, budget_usd=budget_usd, created_at=START)


def cost_after(store_url: str, usd: Sequence[float | None], budget_usd: float | None) -> RunCost:
    """A group every twelve minutes, the last of them just now."""
    clock = MovableClock()
    clock.moment = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)

    async def scenario(store: Store) -> RunCost:
        await store.runs.create(run(budget_usd))
        await store.tasks.put([record(0)])
        for number, each in enumerate(usd):
            await store.groups.add([group(f"g{number}", judgements=(paid(each),))])
            clock.forward(720)
        return build_run_cost(await store.runs.get_ledger("run"), budget_usd)

    return using(store_url, scenario, clock)


def test_a_run_says_what_it_costs_and_how_far_its_budget_reaches(store_url: str, tmp_path: Path) -> None:
    """Nothing is zero that is not known: without a price, or before anything was judged."""
    whole = cost_after(store_url, [0.5, 1.0, 0.75], 9.0)
    unpriced = cost_after(f"sqlite:///{tmp_path / 'unpriced.db'}", [0.5, None], None)
    never = cost_after(f"sqlite:///{tmp_path / 'never.db'}", [], 2.0)

    def tell(cost: RunCost) -> tuple[object, ...]:
        dollars = (cost.usd, cost.usd_per_1000_groups, cost.usd_per_hour)
        budget = cost.budget and (cost.budget.left_usd, cost.budget.groups, cost.budget.hours)
        return cost.spent.calls, cost.spent.unpriced_calls, cost.since is None, dollars, budget

    assert [tell(one) for one in (whole, unpriced, never)] == [
        (3, 0, False, (2.25, 750.0, 3.75), (6.75, 9.0, 1.8)),
        (2, 1, False, (None, None, None), None),
        (0, 0, True, (0.0, None, None), (2.0, None, None)),
    ]


@pytest.mark.dialects
async def test_what_is_put_aside_holds_until_the_groups_judgements_are_stored(
    store: Store, clock: MovableClock
) -> None:
    async def ask(name: str, usd: float = 1.0) -> str:
        return await store.runs.reserve_cost("run", "gsm8k", name, usd, 60)

    await store.runs.create(run(2.5))
    await store.tasks.put([record(0)])
    answers = [await ask("a"), await ask("b"), await ask("b"), await ask("c"), await ask("c", 2.6)]
    await store.groups.add([group("a", judgements=(paid(0.25),))])
    answers.append(await ask("c"))
    await store.groups.add([group("b", judgements=(paid(1.0),)), group("c", judgements=(paid(1.0),))])
    answers += [await ask("d"), await ask("d", 0.25), await ask("e", 0.25)]
    clock.forward(61)
    answers.append(await ask("e", 0.25))
    await store.runs.change("run", RunChange(budget_usd=None))
    assert [*answers, await ask("f", 99.0)] == [
        *("now", "now", "now", "later", "never"),
        "now",
        *("never", "now", "later"),
        "now",
        "now",
    ]


@pytest.mark.parametrize(
    ("changed", "answers"),
    [({}, ["later", "later"]), ({"started": 1}, ["now", "later"]), ({"host": "b", "started": 1}, ["later", "later"])],
    ids=["alive", "dead", "of another host"],
)
async def test_what_a_dead_process_put_aside_is_free_at_once_but_not_what_a_judged_group_cost(
    store: Store, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], answers: list[str]
) -> None:
    own = identify_process()
    assert own is not None

    async def ask(name: str) -> str:
        return await store.runs.reserve_cost("run", "gsm8k", name, 1.0, 60)

    await store.runs.create(run(2.5))
    with monkeypatch.context() as patched:
        patched.setattr("app.store.judge_limits.identify_process", lambda: replace(own, **changed))
        await ask("judged")
        await ask("open")
    await store.runs.settle_cost("judged", 1.0)
    assert [await ask("a"), await ask("b")] == answers


async def test_groups_to_come_are_expected_to_cost_what_those_before_did(store: Store) -> None:
    await store.runs.create(run(10.0))
    await store.tasks.put([record(0)])
    await store.groups.add([group(f"g{number}", judgements=(paid(1.0),)) for number in range(8)])
    fits = await store.runs.reserve_cost("run", "gsm8k", "a", 99.0, 60)
    assert (fits, await store.runs.reserve_cost("run", "another", "b", 99.0, 60)) == ("now", "never")
