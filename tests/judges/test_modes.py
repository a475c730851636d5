"""What a chat judge asks over the wire in each mode, and what it makes of token probabilities."""

import json
import math
from typing import get_args

import pytest

from app.domain.judging import Case, Judgement, Mode, PanelResult
from app.judges.chat_judge import ChatJudge
from app.judges.configuration import ChatJudgeConfig
from app.judges.panel import JudgePanel
from tests.judges.scripted import build_rubric
from tests.support.chat_server import Received, Reply, Script, serving
from tests.support.event_loop import closed_after
from tests.support.shown_prompts import shown_to

MODES: tuple[Mode, ...] = get_args(Mode)
RUBRIC = build_rubric("likeness")
TEXTS = ("good one", "fair one", "poor one")
LEVELS = {"good one": 4, "fair one": 3, "poor one": 1}


def shown(received: Received) -> dict[str, str]:
    """Texts by id, in the order of presentation."""
    return shown_to(received).texts


def fair(received: Received) -> str:
    texts = shown(received)
    verdicts = [{"candidate": name, "scores": {"likeness": LEVELS[text]}} for name, text in texts.items()]
    best_first = sorted(texts, key=lambda name: -LEVELS[texts[name]])
    answer: dict[str, object] = {"verdicts": verdicts}
    if len(texts) > 1:
        answer["ranking"] = [[name] for name in best_first]
    return json.dumps(answer)


def completion(text: str, logprobs: object = None) -> Reply:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", "logprobs": logprobs}
    return Reply(json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode())


def torn(text: str) -> object:
    """One token per character; every digit might as well have been one less."""
    return {
        "content": [
            {
                "token": character,
                "logprob": math.log(0.5) if character.isdigit() else 0.0,
                "top_logprobs": [{"token": str(int(character) - 1), "logprob": math.log(0.5)}]
                if character.isdigit()
                else [],
            }
            for character in text
        ]
    }


async def judged(script: Script, mode: Mode, *, expected_scores: bool = False) -> tuple[PanelResult, list[Received]]:
    case = Case(key="k", rubric=RUBRIC, document={}, candidates=TEXTS)
    with serving(script) as server:
        settings = ChatJudgeConfig(
            name="wired", base_url=server.url, model="judge-1", json_mode="schema", expected_scores=expected_scores
        )
        async with closed_after(ChatJudge(settings)) as judge:
            return await JudgePanel((judge,), 0.5, mode).judge(case), server.received


@pytest.mark.parametrize(("mode", "calls", "at_once"), [("listwise", 2, 3), ("pairwise", 6, 2), ("pointwise", 3, 1)])
async def test_each_mode_has_its_own_question(mode: Mode, calls: int, at_once: int) -> None:
    result, received = await judged(lambda number, received: completion(fair(received)), mode)
    assert [judgement.error for judgement in result.judgements] == [None] * calls
    assert {len(shown(each)) for each in received} == {at_once}
    assert [score.relative for score in result.scores] == pytest.approx([1.0, 0.5, 0.0])
    assert {
        "listwise": "You judge replies to",
        "pairwise": "You compare two replies to",
        "pointwise": "You judge one reply to",
    }[mode] in received[0].messages[0]["content"]
    assert len({each.messages[0]["content"] for each in received}) == 1
    schemas = [each.body["response_format"] for each in received]
    assert all(isinstance(schema, dict) and schema["type"] == "json_schema" for schema in schemas)


@pytest.mark.parametrize("mode", MODES)
async def test_probabilities_enter_the_scores(mode: Mode) -> None:
    def script(number: int, received: Received) -> Reply:
        assert (received.body["logprobs"], received.body["top_logprobs"]) == (True, 8)
        return completion(fair(received), torn(fair(received)))

    result, _ = await judged(script, mode, expected_scores=True)
    assert [score.absolute for score in result.scores] == pytest.approx([3.5 / 4, 2.5 / 4, 0.5 / 4])
    assert {judgement.error for judgement in result.judgements} == {None}
    assert all('"likeness": 4}' in judgement.raw for judgement in holding(result, "good one"))


@pytest.mark.parametrize("expected_scores", [True, False])
async def test_without_probabilities_the_plain_score_counts(expected_scores: bool) -> None:
    def script(number: int, received: Received) -> Reply:
        assert ("logprobs" in received.body) is expected_scores
        return completion(fair(received), None if expected_scores else torn(fair(received)))

    result, _ = await judged(script, "pointwise", expected_scores=expected_scores)
    assert [score.absolute for score in result.scores] == [1.0, 0.75, 0.25]


def holding(result: PanelResult, text: str) -> list[Judgement]:
    name = result.scores[TEXTS.index(text)].candidate
    return [judgement for judgement in result.judgements if name in judgement.order]
