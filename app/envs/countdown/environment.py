"""Countdown: write an expression that reaches the target and uses each given number exactly once.

    prompt   Numbers: 4, 1, 9, 4     Target: 56     … between <answer> and </answer>.
    reply    <think>56 is 4 * 14, and 9 + 4 + 1 is 14.</think> <answer>(9 + 4 + 1) * 4</answer>
    reward   1.0   the expression has the target as its value, and every number once

A small parser reads the expression and computes it in exact fractions, without `eval`. Not paid: numbers that were not
given, joined digits, powers, an equation, a target that is only met after rounding.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Field, JsonValue

from app.domain.values import Frozen, WholeNumber
from app.ports.environment import FreeReward
from app.toolkit.procedural import Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

_TOKEN = re.compile(r"\s*(?:([0-9]{1,6})|([-+*/()×÷·−]))")
_PLAIN = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})
_OPERATIONS: Final[Mapping[str, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": Fraction.__add__,
    "-": Fraction.__sub__,
    "*": Fraction.__mul__,
    "/": Fraction.__truediv__,
}
MOST_TOKENS = 60
LARGE = (25, 50, 75, 100)
_NUMBERS: Final[Mapping[Level, tuple[int, ...]]] = {"easy": (3,), "medium": (4,), "hard": (5, 6)}


class CountdownParams(LevelParams):
    numbers: Annotated[WholeNumber, Field(ge=3, le=6)] | None = None
    """How many numbers are given. Default by level: 3 (easy), 4 (medium), 5 or 6 (hard)."""
    highest: Annotated[WholeNumber, Field(ge=20, le=9999)] = 200
    """The largest target."""


class NumberPuzzle(Frozen):
    numbers: tuple[int, ...]
    target: int
    solution: str


class Countdown(ProceduralEnvironment[NumberPuzzle, CountdownParams]):
    name: ClassVar[str] = "countdown"
    version: ClassVar[str] = "2"
    phrasings: ClassVar[Phrasings] = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="prompt_features",
            share=0.1,
            because="With three numbers a frequent order of operations is right by luck.",
        ),
    )

    def make(self, draws: SeededRandom, level: Level, params: CountdownParams) -> NumberPuzzle:
        return _draw_puzzle(draws, params.numbers or draws.one(_NUMBERS[level]), params.highest)

    def key(self, made: NumberPuzzle) -> str:
        return f"{sorted(made.numbers)} {made.target}"

    def slots(self, made: NumberPuzzle) -> Mapping[str, str | int]:
        return {"numbers": ", ".join(map(str, made.numbers)), "target": made.target}

    def metadata(self, made: NumberPuzzle) -> dict[str, JsonValue]:
        return {"numbers": len(made.numbers)}

    def fault(self, answer: str, made: NumberPuzzle) -> str:
        try:
            tokens = _split_tokens(answer)
            used = sorted(int(token) for token in tokens if token.isdecimal())
            value = _compute_value(tokens)
        except (ValueError, ZeroDivisionError) as error:
            return str(error) if isinstance(error, ValueError) else "it divides by zero"
        if used != sorted(made.numbers):
            return "it does not use every number exactly once"
        return "" if value == made.target else f"its value is {value}, which is not the target"

    def solution(self, made: NumberPuzzle) -> str:
        return made.solution


def _draw_puzzle(draws: SeededRandom, count: int, highest: int) -> NumberPuzzle:
    """Built from the solution: two numbers at a time are combined until one is left."""
    while True:
        numbers = [draws.one(LARGE) if draws.chance(20) else 1 + draws.below(12) for _ in range(count)]
        left = [(Fraction(number), str(number)) for number in draws.shuffled(numbers)]
        while len(left) > 1:
            (first, said), (second, says) = left.pop(draws.below(len(left))), left.pop(draws.below(len(left)))
            sign = draws.one([sign for sign in "+-*/" if sign != "/" or (second and not (first / second) % 1)])
            left.append((_OPERATIONS[sign](first, second), f"({said} {sign} {says})"))
        value, solution = left[0]
        if value.denominator == 1 and 10 <= value <= highest and int(value) not in numbers:
            return NumberPuzzle(numbers=tuple(numbers), target=int(value), solution=solution)


def _split_tokens(answer: str) -> list[str]:
    text, place, tokens = answer.strip().translate(_PLAIN), 0, list[str]()
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or len(tokens) == MOST_TOKENS:
            raise ValueError("it is no expression of numbers, + - * / and brackets")
        tokens.append(token[1] or token[2])
        place = token.end()
    return tokens


def _compute_value(tokens: Sequence[str]) -> Fraction:
    """Precedence climbing. ValueError if it is not an expression."""
    left = [*tokens, ""]

    def parse_term(binding: int) -> Fraction:
        first = left.pop(0)
        if first == "(":
            value = parse_term(0)
            if left.pop(0) != ")":
                raise ValueError("its brackets do not match")
        elif first == "-":
            value = -parse_term(2)
        elif first.isdecimal():
            value = Fraction(int(first))
        else:
            raise ValueError("it is no complete expression")
        while left and (strength := {"+": 1, "-": 1, "*": 2, "/": 2}.get(left[0], 0)) > binding:
            value = _OPERATIONS[left.pop(0)](value, parse_term(strength))
        return value

    value = parse_term(0)
    if left != [""]:
        raise ValueError("it goes on after the expression")
    return value
