"""What a run holds of an evaluation: what is still owed, and what the report says of each attempt."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import respx

from app.cli.campaigns import Campaign, sum_judgement_usd
from app.cli.evaluate.attempts import (
    AttemptAnswered,
    AttemptFailed,
    AttemptNotes,
    EvaluationLedger,
    EvaluationOptions,
    EvaluationPlan,
    build_attempts,
    load_ledger,
)
from app.domain.errors import UserError
from app.domain.groups import Group, Rollout
from app.domain.judging import Judgement, combine_outcomes
from app.domain.scores import Score
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall
from app.service.requests import HandedOutTask
from app.terminal.client import GatewayClient, Retrier
from tests.support.playground import handed_out
from tests.support.tables import read_table

OPTIONS = read_table(__file__, "ledger_options.yaml", EvaluationOptions)
PLAN = EvaluationPlan(options=OPTIONS, task_ids=("a", "b", "c"), began_at=datetime(2026, 1, 2, tzinfo=UTC))


def answered(place: int, sample: int, completion: Completion | None = None) -> AttemptAnswered:
    said = completion or Completion(text=f"{place}.{sample}", finish_reason="stop")
    return AttemptAnswered.begin(said, AttemptNotes(turns=1, input_tokens=3, output_tokens=2, seconds=0.5))


def group(place: int, scores: Mapping[int, Score], completion: Completion | None = None) -> Group:
    """With the attempts of these samples; `completion` is what the first of them said."""
    said = {sample: answered(place, sample, completion if sample == min(scores) else None) for sample in scores}
    return Group(
        group_id=f"group-{place}",
        task_id=PLAN.task_ids[place],
        environment="e",
        run="r",
        lease_id=None,
        policy=PLAN.policy,
        purpose="eval",
        outcome=combine_outcomes(list(scores.values())),
        rollouts=tuple(
            Rollout(rollout_id=f"group-{place}-{sample}", completion=said[sample].completion, score=score)
            for sample, score in scores.items()
        ),
        created_at=PLAN.began_at,
    )


def ledger_of(*groups: tuple[int, Group]) -> EvaluationLedger:
    ledger = EvaluationLedger.begin(PLAN)
    for place, one in groups:
        ledger.items[place].take_group(one, 0, None)
    return ledger


def test_what_is_open_has_an_attempt_without_a_reward() -> None:
    ledger = ledger_of(
        (0, group(0, {0: Score.exact(True), 1: Score.exact(False)})),
        (1, group(1, {0: Score.exact(True), 1: Score.unscored("judge_failed")})),
    )
    unscored = [item.list_unscored() for item in ledger.items]
    assert (ledger.list_open(), unscored, ledger.usage.completion_tokens) == ([1, 2], [{}, {0: 1}, {}], 8)


def test_another_plan_has_other_groups() -> None:
    """The same options and tasks have the same, whenever it began."""
    changed: tuple[dict[str, object], ...] = (
        {"began_at": datetime(2026, 1, 3, tzinfo=UTC)},
        {"task_ids": ("a", "b", "d")},
        {"options": OPTIONS.model_copy(update={"sampling": {"temperature": 0.5}})},
        {"options": OPTIONS.model_copy(update={"model": "other"})},
        {"options": OPTIONS.model_copy(update={"samples": 3})},
    )
    plans = [EvaluationPlan.model_validate(PLAN.model_dump() | change) for change in changed]
    same = [one.compute_group_id("a", 0) == PLAN.compute_group_id("a", 0) for one in plans]
    assert same == [True, False, False, False, False]


@respx.mock
async def test_what_was_pruned_needs_another_run() -> None:
    respx.get(url__startswith="http://gateway.invalid/groups/").respond(410, text="it was pruned")
    said = r"were pruned: use another --out, and another --run or --seed .*it was pruned"
    async with httpx.AsyncClient(base_url="http://gateway.invalid") as client:
        campaign = Campaign(GatewayClient(client), Retrier(), "r", "tasks", 1, "")
        with pytest.raises(UserError, match=said):
            await load_ledger(campaign, PLAN, 2, judges_cost=False)


def asked(place: int) -> HandedOutTask:
    said = (Message(role="system", content="Be brief."), Message(role="user", content="Hello?"))
    return handed_out(place, messages=said, metadata={"character": "ann", "level": 3})


def test_attempts_say_what_became_of_them() -> None:
    call = ToolCall(function=FunctionCall(name="look", arguments={"at": "sea"}))
    acted = Completion(
        messages=(
            Message(role="assistant", content="Let me see.", tool_calls=(call,)),
            Message(role="tool", content="Water.", tool_call_id="1"),
        )
    )
    held = group(0, {0: Score.exact(True, rationale="right"), 1: Score.unscored("judge_failed", "away")}, acted)
    ledger = ledger_of((0, held), (1, group(1, {0: Score.pending()})))
    ledger.items[1].failed[1] = AttemptFailed(reason="policy_refused", detail="too long")
    told = [
        (one.place, one.sample, one.outcome, one.reason, one.reward, one.rationale, one.text, one.label, one.group_id)
        for one in build_attempts(ledger, [asked(place) for place in range(3)], "character")
    ]
    said = 'assistant: Let me see.\nlook({"at": "sea"})\n\ntool: Water.'
    assert told == [
        (0, 0, "scored", None, 1.0, "right", said, "ann", "group-0"),
        (0, 1, "unscored", "judge_failed", None, "away", "0.1", "ann", "group-0"),
        (1, 1, "unscored", "policy_refused", None, "too long", "", "ann", None),
    ]


def test_a_label_that_is_no_text_is_none() -> None:
    ledger = ledger_of((0, group(0, {0: Score.exact(True)})))
    assert [(one.label, one.prompt) for one in build_attempts(ledger, [asked(0)], "level")] == [(None, "Hello?")]


def test_what_judges_took_is_known_or_not() -> None:
    def judgement(calls: int, cost: float | None, cached: bool = False) -> Judgement:
        return Judgement(judge="j", model="m", order=(), calls=calls, cost_usd=cost, cached=cached, unanswered_usd=0.5)

    paid, remembered, own = judgement(1, 0.25), judgement(1, 0.25, cached=True), judgement(0, None)
    known = [
        sum_judgement_usd(some) for some in ([paid, paid], [paid, remembered], [own], [paid, judgement(1, None)], [])
    ]
    assert known == [1.5, 0.75, 0, None, 0]


@pytest.mark.parametrize("stored", [{}, {"attempt": "mine"}, {"attempt": {"turns": "many"}}], ids=str)
def test_an_attempt_without_notes_of_ours_is_one_that_took_nothing_known(stored: dict[str, Any]) -> None:
    completion = Completion(text="a", extra=stored)
    assert AttemptAnswered.from_stored(completion) == AttemptAnswered(completion=completion, notes=AttemptNotes())
