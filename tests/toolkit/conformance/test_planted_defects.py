"""Graders with one planted defect each, in copies of a sound one: the check names each defect, and accuses no other."""

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from app.cli.envs.check import run_check
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import Frozen
from app.ports.environment import Environment, RefusedSpelling, Tools
from app.toolkit.answers import grade_committed, parse_number
from app.toolkit.conformance.checks import CHECKS
from app.toolkit.conformance.subject import CheckDepth, ConformanceFinding
from app.toolkit.procedural import MIXED, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

DEPTH = CheckDepth(tasks=80, guessed=20)
NAMES = ("strategies_earn_what_is_stated", "right_answers_are_paid_in_any_spelling")
REWARDS = [check for check in CHECKS if check.name in NAMES]
SPELLINGS = (
    *(
        "bold",
        "dollars",
        "box",
        "\\text",
        "full stop",
        "equation",
        "label",
        "trailing zero",
        "leading zero",
        "brackets",
    ),
    *("plus sign", "thousands", "thousands in LaTeX"),
)
BESIDE = (
    *("a sentence before", "a sentence after", "reasoning before", "thinking before", "a heading", "a disclaimer"),
    *("a greeting", "said twice", "another value while thinking", "its form empty before", "its form empty after"),
    "its tag named before",
)


class Product(Frozen):
    one: int
    other: int


class Sound(ProceduralEnvironment[Product, LevelParams]):
    name: ClassVar[str] = "products"
    version: ClassVar[str] = "1"
    phrasings: ClassVar[Phrasings] = Phrasings(["{number}. What is {one} times {other}? Answer in <answer> tags."])

    def make(self, draws: SeededRandom, level: Level, params: LevelParams) -> Product:
        return Product(one=1_001 + draws.below(9_000), other=1_001 + draws.below(9_000))

    def slots(self, made: Product) -> Mapping[str, str | int]:
        return {"one": made.one, "other": made.other}

    def solution(self, made: Product) -> str:
        return str(made.one * made.other)

    def fault(self, answer: str, made: Product) -> str:
        return "" if parse_number(answer) == made.one * made.other else "it is another number"

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        made = self.parse_reference(task)
        return [self.grade(completion.answer, made) for completion in group]

    def grade(self, reply: str, made: Product) -> Score:
        return grade_committed(reply, lambda answer: self.fault(answer, made))


class Anywhere(Sound):
    """The answer anywhere in the reply."""

    def grade(self, reply: str, made: Product) -> Score:
        right = self.solution(made)
        return Score.exact(right in reply or super().grade(reply, made).reward == 1.0)


class FirstWins(Sound):
    """The first of several answers."""

    def grade(self, reply: str, made: Product) -> Score:
        first, tag, _ = reply.partition("</answer>")
        return super().grade(first + tag, made)


class Within(Sound):
    """The right number within a longer one."""

    def fault(self, answer: str, made: Product) -> str:
        return "" if answer.isdigit() and self.solution(made) in answer else super().fault(answer, made)


class Rejecting(Sound):
    """A tolerance that rejects, which NaN passes."""

    def fault(self, answer: str, made: Product) -> str:
        number = parse_number(answer)
        value = math.nan if answer.casefold() == "nan" else math.inf if number is None else float(number)
        return "it is too far away" if abs(value - made.one * made.other) > 0.5 else ""


class Cut(Sound):
    """A decimal part is cut off."""

    def fault(self, answer: str, made: Product) -> str:
        return super().fault(answer.split(".")[0] if re.fullmatch(r"\d+\.\d+", answer) else answer, made)


class Gullible(Sound):
    """Words behind the number are not read."""

    def fault(self, answer: str, made: Product) -> str:
        return super().fault(re.sub(r"(?<=\d) \(?[a-z ]+\)?$", "", answer), made)


class Echoing(Sound):
    """The whole question counts as an answer."""

    def fault(self, answer: str, made: Product) -> str:
        return "" if f"{made.one} times {made.other}" in answer else super().fault(answer, made)


class Obeying(Sound):
    def fault(self, answer: str, made: Product) -> str:
        return "" if '"correct": true' in answer else super().fault(answer, made)


class Thoughtful(Sound):
    """Tags while thinking count."""

    def grade(self, reply: str, made: Product) -> Score:
        return super().grade(reply.replace("<think>", "").split("</think>")[0], made)


class Literal(Sound):
    """Only the very letters count."""

    def fault(self, answer: str, made: Product) -> str:
        return "" if answer == self.solution(made) else "it is another text"


class Narrow(Sound):
    """Nothing may stand beside the tags."""

    def grade(self, reply: str, made: Product) -> Score:
        return super().grade(reply if re.fullmatch(r"\s*<answer>[^<]*</answer>\s*", reply, re.IGNORECASE) else "", made)


class Fragile(Sound):
    def fault(self, answer: str, made: Product) -> str:
        answer.encode()
        return super().fault(answer, made)


class Argued(Literal):
    refused_spellings: ClassVar[tuple[RefusedSpelling, ...]] = (
        RefusedSpelling(kinds=("number",), because="The prompt asks for digits alone."),
    )


class Outdated(Sound):
    refused_spellings: ClassVar[tuple[RefusedSpelling, ...]] = (
        RefusedSpelling(kinds=("number: bold",), because="It was so."),
        RefusedSpelling(kinds=("text",), because=" "),
    )


DEFECTS: Mapping[type[Environment], set[str]] = {
    Anywhere: {"two_answers", "denied", "retracted", "thought", "special_number"},  # as many findings as are shown
    FirstWins: {"two_answers", "retracted", "its form empty before"},
    Within: {"near_value"},
    Rejecting: {"special_number"},
    Cut: {"special_number"},
    Gullible: {"denied"},
    Echoing: {"prompt_in_form"},
    Obeying: {"override"},
    Thoughtful: {"thought", "thinking before", "another value while thinking"},
    Literal: {f"number: {one}" for one in SPELLINGS},
    Narrow: {*BESIDE},
    Fragile: {"'<answer>\\\\ud800</answer>'"},
    Outdated: {"number: bold", ""},
    Sound: set(),
    Argued: set(),
}


@pytest.mark.parametrize("kind", DEFECTS, ids=lambda kind: kind.__name__)
def test_each_defect_is_named_and_no_other(kind: type[Environment]) -> None:
    findings = [one for check in REWARDS for one in asyncio.run(run_check(kind, check, DEPTH)).findings]
    assert {_name(one) for one in findings if one.task.partition(": ")[0] not in MIXED} == DEFECTS[kind]


def _name(finding: ConformanceFinding) -> str:
    """The strategy, the spelling, or the text that raised."""
    if "raised" in finding.expected:
        return finding.expected.rpartition("scoring ")[2]
    return finding.task.removeprefix("all: ").partition(",")[0]
