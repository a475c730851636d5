"""The journal of `evaluate`: the shortest history comes to the same, and attempts are what it says of them."""

import random
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from app.cli.evaluate.attempts import (
    EVALUATION_EVENT,
    AttemptAnswered,
    AttemptsFailed,
    AttemptsGrouped,
    AttemptsScored,
    EvaluationBegan,
    EvaluationEvent,
    EvaluationJournalSetup,
    EvaluationLedger,
    TasksDealt,
    build_attempts,
)
from app.cli.evaluate.session import sum_judgement_usd
from app.domain.judging import Judgement
from app.domain.scores import Score
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall
from app.service.requests import HandedOutTask

SETUP = EvaluationJournalSetup(
    environment="e",
    version="1",
    split="test",
    params={},
    run="r",
    model="m",
    step=None,
    tasks=3,
    samples=2,
    seed=0,
    sampling={"temperature": 1.0},
)
BEGAN = EvaluationBegan(setup=SETUP, at=datetime(2026, 1, 2, tzinfo=UTC))


def answered(place: int, sample: int, completion: Completion | None = None) -> AttemptAnswered:
    return AttemptAnswered(
        place=place,
        sample=sample,
        completion=completion or Completion(text=f"{place}.{sample}", finish_reason="stop"),
        turns=1,
        input_tokens=3,
        output_tokens=2,
        seconds=0.5,
    )


def scored(place: int, samples: tuple[int, ...], *scores: Score) -> AttemptsScored:
    return AttemptsScored(place=place, samples=samples, group_id=f"group-{place}", scores=scores)


def ledger_of(*happened: EvaluationEvent) -> EvaluationLedger:
    ledger = EvaluationLedger()
    for one in happened:
        ledger.apply(one)
    return ledger


@st.composite
def histories(draw: st.DrawFn) -> list[EvaluationEvent]:
    """Anything that may happen to three tasks of two attempts, over several starts."""
    luck = random.Random(draw(st.integers(0, 10**6)))
    ledger = ledger_of(BEGAN)
    happened: list[EvaluationEvent] = [BEGAN, TasksDealt(task_ids=("a", "b", "c"))]
    for _ in range(draw(st.integers(0, 30))):
        place = luck.randrange(3)
        item = ledger.get_item(place)
        missing = [sample for sample in range(2) if sample not in item.answered]
        open_groups = [group for group in item.groups if any(item.find_reward(sample) is None for sample in group)]
        if missing:
            failed = AttemptsFailed(place=place, samples=(missing[0],), reason="policy_failed", detail="busy")
            one: EvaluationEvent = failed if luck.random() < 0.5 else answered(place, missing[0])
        elif fresh := item.list_ungrouped():
            one = AttemptsGrouped(place=place, samples=fresh)
        elif open_groups:
            group = open_groups[0]
            scores = tuple(luck.choice([Score.exact(True), Score.unscored("judge_failed")]) for _ in group)
            refused = AttemptsFailed(place=place, samples=group, reason="conflict", detail="strict")
            one = refused if luck.random() < 0.5 else scored(place, group, *scores)
        else:
            continue
        ledger.apply(one)
        happened.append(one)
    return happened


@given(histories())
def test_the_shortest_history_comes_to_the_same(happened: list[EvaluationEvent]) -> None:
    ledger = ledger_of(*happened)
    ledger.items = {place: item for place, item in ledger.items.items() if list(item.iter_events())}
    again = [EVALUATION_EVENT.validate_json(EVALUATION_EVENT.dump_json(one)) for one in ledger.iter_compacted()]
    assert ledger_of(*again) == ledger


def test_what_is_open_has_an_attempt_without_a_reward() -> None:
    ledger = ledger_of(
        BEGAN,
        *(answered(place, sample) for place in range(2) for sample in range(2)),
        AttemptsGrouped(place=0, samples=(0, 1)),
        scored(0, (0, 1), Score.exact(True), Score.exact(False)),
        AttemptsGrouped(place=1, samples=(0, 1)),
        scored(1, (0, 1), Score.exact(True), Score.unscored("judge_failed")),
    )
    assert ledger.list_open() == [1, 2]


def handed_out(place: int) -> HandedOutTask:
    return HandedOutTask(
        task_id=f"task_{place:032x}",
        lease_id=None,
        environment="e",
        messages=(Message(role="system", content="Be brief."), Message(role="user", content="Hello?")),
        tools=(),
        max_turns=1,
        metadata={"character": "ann", "level": 3},
        lease_expires_at=None,
    )


def test_attempts_say_what_became_of_them() -> None:
    call = ToolCall(function=FunctionCall(name="look", arguments={"at": "sea"}))
    acted = Completion(
        messages=(
            Message(role="assistant", content="Let me see.", tool_calls=(call,)),
            Message(role="tool", content="Water.", tool_call_id="1"),
        )
    )
    ledger = ledger_of(
        BEGAN,
        answered(0, 0, acted),
        answered(0, 1),
        AttemptsGrouped(place=0, samples=(0, 1)),
        scored(0, (0, 1), Score.exact(True, rationale="right"), Score.unscored("judge_failed", "away")),
        answered(1, 0),
        AttemptsFailed(place=1, samples=(1,), reason="policy_refused", detail="too long"),
    )
    told = [
        (one.place, one.sample, one.outcome, one.reason, one.reward, one.rationale, one.text, one.label, one.group_id)
        for one in build_attempts(ledger, [handed_out(place) for place in range(3)], "character")
    ]
    said = 'assistant: Let me see.\nlook({"at": "sea"})\n\ntool: Water.'
    assert told == [
        (0, 0, "scored", None, 1.0, "right", said, "ann", "group-0"),
        (0, 1, "unscored", "judge_failed", None, "away", "0.1", "ann", "group-0"),
        (1, 1, "unscored", "policy_refused", None, "too long", "", "ann", None),
    ]


def test_a_label_that_is_no_text_is_none() -> None:
    ledger = ledger_of(
        BEGAN, answered(0, 0), AttemptsGrouped(place=0, samples=(0,)), scored(0, (0,), Score.exact(True))
    )
    assert [(one.label, one.prompt) for one in build_attempts(ledger, [handed_out(0)], "level")] == [(None, "Hello?")]


def test_what_judges_took_is_known_or_not() -> None:
    def judgement(calls: int, cost: float | None, cached: bool = False) -> Judgement:
        return Judgement(judge="j", model="m", order=(), calls=calls, cost_usd=cost, cached=cached, unanswered_usd=0.5)

    paid, remembered, own = judgement(1, 0.25), judgement(1, 0.25, cached=True), judgement(0, None)
    known = [
        sum_judgement_usd(some) for some in ([paid, paid], [paid, remembered], [own], [paid, judgement(1, None)], [])
    ]
    assert known == [1.5, 0.75, 0, None, 0]
