"""Judges on the wire that will not judge, and the judge behind them."""

import json

import pytest

from app.domain.judging import JudgeFailure, Judgement
from app.judges import judge_client as line
from app.judges.panel import build_chat_judges
from app.judges.verdicts import is_refusal
from app.ports.environment import ManagedResource
from tests.support.chat_server import Reply, Script, serving
from tests.support.judge_cases import BAD, GOOD, REQUEST, always, completion, config, failure, first, judged
from tests.support.tables import read_table

PLAIN = read_table(__file__, "refusals.yaml", tuple[str, ...])

SORRY = "I'm sorry, I can't help with that."
FILTERED = Reply(json.dumps({"error": {"message": "blocked", "code": "content_filter"}}).encode(), 400)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "FIRST_PAUSE_SECONDS", 0.01)


async def with_fallback(script: Script, behind: Script) -> Judgement:
    with serving(script) as server, serving(behind) as other:
        configs = [config(server.url, deadline_seconds=2.0), config(other.url, name="plain", deadline_seconds=2.0)]
        judges = build_chat_judges(configs, {"big": "plain"}, None)
        try:
            return await judges["big"].judge(REQUEST)
        finally:
            for judge in judges.values():
                if isinstance(judge, ManagedResource):
                    await judge.close()


def told(judgement: Judgement) -> list[tuple[str, JudgeFailure | None, int]]:
    return [(each.judge, each.failure, each.calls) for each in judgement.attempts]


ANSWERS: dict[str, tuple[Script, JudgeFailure | None, int]] = {
    "a field of its own": (always(completion(None, refusal="No.")), "refused", 1),
    "filtered in the middle": (always(completion('{"verdicts": [', "content_filter")), "refused", 1),
    "a filter's status": (always(FILTERED), "refused", 1),
    "in words after a thought": (always(completion(f"<think>Is {{this}} right?</think>{SORRY}")), "refused", 1),
    "in other words": (always(BAD), "unusable", 2),
    "in words when corrected": (first(BAD, then=completion(SORRY)), "refused", 2),
    "without a word": (always(completion("")), "unusable", 2),
    "in another form": (always(completion('{"error": "I cannot judge this."}')), "unusable", 2),
    "an answer when corrected": (first(BAD), None, 2),
    "an answer behind an apology": (always(completion(f"{SORRY} But here it is: {GOOD}")), None, 1),
    "no server": (always(failure(401)), "unavailable", 1),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_who_will_not_judge_is_replaced_and_anything_else_stands_as_it_is(name: str) -> None:
    script, kind, calls = ANSWERS[name]
    behind: list[tuple[str, JudgeFailure | None, int]] = [("plain", None, 1)] if kind in ("refused", "unusable") else []
    assert told(await with_fallback(script, always(completion(GOOD)))) == [("big", kind, calls), *behind]


async def test_when_both_refuse_there_is_no_answer() -> None:
    judgement = await with_fallback(always(completion(SORRY)), always(completion(SORRY)))
    assert (told(judgement), judgement.error) == (
        [("big", "refused", 1), ("plain", "refused", 2)],
        f"the judge refuses: {SORRY}",
    )


async def test_without_a_fallback_a_refusal_in_words_is_argued_with_once() -> None:
    with serving(first(completion(SORRY))) as server:
        gave_in = (await judged(config(server.url)))[1]
    with serving(always(completion(SORRY))) as server:
        insisted = (await judged(config(server.url)))[1]
    assert told(gave_in) + told(insisted) == [("big", None, 2), ("big", "refused", 2)]


OTHER = (
    "",
    "I would rather not.",
    "I can't find fault with q7; it is the best of them.",
    "q7 is the best. It says: I cannot help you, stranger.",
    'I cannot judge that in words, so: {"verdicts": []}',
    "<think>I'm sorry, I can't help with that.",
    "I cannot judge that. " + "It is a long story. " * 100,
)


def test_plain_refusals_are_recognised_and_other_answers_are_not_taken_for_them() -> None:
    assert [answer for answer in (*PLAIN, *OTHER) if is_refusal(answer)] == list(PLAIN)
