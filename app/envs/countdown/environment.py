r"""Countdown: write an expression that reaches the target and uses each given number exactly once.

    prompt   Numbers: 4, 1, 9, 4     Target: 56     … between <answer> and </answer>.
    reply    <think>56 is 4 * 14, and 9 + 4 + 1 is 14.</think> <answer>(9 + 4 + 1) * 4</answer>
    reward   1.0   the expression has the target as its value, and every number once

A small parser reads the expression and computes it in exact fractions, without `eval`. It knows the usual signs (`×`,
`x`, `⋅`, `÷`, `\times`, `\frac{1}{2}`), and leaves out what stands around an expression: `$…$`, backticks, a final
dot, `= 56`. No target is reached by adding up and taking away alone, or by multiplying all numbers, and no hard one
without brackets. Not paid: numbers that were not given, joined digits, powers, another number after `=`, a target that
is only met after rounding.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Field, JsonValue

from app.domain.values import Frozen, Split, WholeNumber
from app.ports.environment import FreeReward
from app.toolkit.procedural import LEVELS, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

_SEARCHES: Final = 200
"""For a hard puzzle that needs brackets; about ten are enough, unless targets are to be very small."""
_NUMBERS_TRIED: Final = 40
"""For one form of a solution."""
_LARGE = (25, 50, 75, 100)
_NUMBERS: Final[Mapping[Level, tuple[int, ...]]] = {"first": (2,), "easy": (3,), "medium": (4,), "hard": (5, 6)}


class CountdownParams(LevelParams):
    numbers: Annotated[WholeNumber, Field(ge=3, le=6)] | None = None
    """How many numbers are given. Default by level: 2 (first), 3 (easy), 4 (medium), 5 or 6 (hard)."""
    highest: Annotated[WholeNumber, Field(ge=20, le=9999)] = 200
    """The largest target. Where it is below about 50, a hard puzzle of 6 numbers may be reached without brackets."""


class NumberPuzzle(Frozen):
    numbers: tuple[int, ...]
    target: int
    solution: str


class Countdown(ProceduralEnvironment[NumberPuzzle, CountdownParams]):
    name: ClassVar[str] = "countdown"
    version: ClassVar[str] = "5"
    ignores_markup: ClassVar[bool] = True
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    phrasings: ClassVar[Phrasings] = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="prompt_features",
            share=0.1,
            because="With three numbers a frequent order of operations is right by luck.",
        ),
    )

    def make(self, draws: SeededRandom, level: Level, params: CountdownParams) -> NumberPuzzle:
        return _draw_puzzle(draws, params.numbers or draws.one(_NUMBERS[level]), params.highest, level)

    def draw_content(self, seed: str, split: Split, level: Level, params: CountdownParams) -> NumberPuzzle:
        """Draws hard puzzles again until one needs brackets. That takes long, so the split is decided before."""
        puzzle = super().draw_content(seed, split, level, params)
        for attempt in range(_SEARCHES if level == "hard" else 0):
            if not is_reached_without_brackets(puzzle.numbers, puzzle.target):
                break
            puzzle = super().draw_content(f"{seed} {attempt}", split, level, params)
        return puzzle

    def key(self, made: NumberPuzzle) -> str:
        return f"{sorted(made.numbers)} {made.target}"

    def slots(self, made: NumberPuzzle) -> Mapping[str, str | int]:
        return {"numbers": ", ".join(map(str, made.numbers)), "target": made.target}

    def metadata(self, made: NumberPuzzle) -> dict[str, JsonValue]:
        return {"numbers": len(made.numbers)}

    def fault(self, answer: str, made: NumberPuzzle) -> str:
        try:
            tokens = _read_expression(answer, made.target)
            used = sorted(int(token) for token in tokens if token.isdecimal())
            value = compute_value(tokens)
        except (ValueError, ZeroDivisionError) as error:
            return str(error) if isinstance(error, ValueError) else "it divides by zero"
        if used != sorted(made.numbers):
            return "it does not use every number exactly once"
        return "" if value == made.target else f"its value is {value}, which is not the target"

    def solution(self, made: NumberPuzzle) -> str:
        return made.solution


@dataclass(frozen=True)
class _Plan:
    """The form of a solution, drawn before the numbers: otherwise a few forms would solve most puzzles."""

    ranks: tuple[int, ...]
    """Of the numbers by size, in the order in which they are laid out."""
    steps: tuple[tuple[int, int, str], ...]
    """Two places of what is left, which are taken out, and the sign between them; the result is put at the end."""

    @property
    def nested(self) -> bool:
        """Whether a sum is multiplied or divided."""
        left = [""] * len(self.ranks)
        for one, other, sign in self.steps:
            parts = left.pop(one), left.pop(other)
            if sign in "*/" and {*parts} & {"+", "-"}:
                return True
            left.append(sign)
        return False


def _draw_puzzle(draws: SeededRandom, count: int, highest: int, level: Level) -> NumberPuzzle:
    while True:
        plan = _draw_plan(draws, count)
        for _ in range(_NUMBERS_TRIED if plan.nested or level != "hard" else 0):
            numbers = [draws.one(_LARGE) if draws.chance(20) else 2 + draws.below(11) for _ in range(count)]
            value, solution = _work_out(plan, sorted(numbers))
            if value.denominator == 1 and 10 <= value <= highest and int(value) not in numbers:
                puzzle = NumberPuzzle(numbers=tuple(numbers), target=int(value), solution=solution)
                if level == "first" or not _is_plain(puzzle):
                    return puzzle


def _draw_plan(draws: SeededRandom, count: int) -> _Plan:
    steps = ((draws.below(left), draws.below(left - 1), draws.one("+-*/")) for left in range(count, 1, -1))
    return _Plan(tuple(draws.shuffled(range(count))), tuple(steps))


def _work_out(plan: _Plan, numbers: Sequence[int]) -> tuple[Fraction, str]:
    """The value and how it is written; 0 where something cannot be divided."""
    left = [(Fraction(numbers[rank]), str(numbers[rank])) for rank in plan.ranks]
    for first, second, sign in plan.steps:
        (one, one_text), (other, other_text) = left.pop(first), left.pop(second)
        if sign == "/" and (not other or (one / other) % 1):
            return Fraction(0), ""
        left.append((_OPERATIONS[sign](one, other), f"({one_text} {sign} {other_text})"))
    return left[0]


def _is_plain(puzzle: NumberPuzzle) -> bool:
    """Whether adding up and taking away reaches the target, or multiplying all numbers or the first few."""
    sums, product = {0}, 1
    for number in puzzle.numbers:
        sums = {one + way for one in sums for way in (number, -number)}
        product *= number
        if puzzle.target in (product, max(sums)):
            return True
    return puzzle.target in sums


# Expressions: read, worked out, and what can be reached without brackets.

_FRACTION: Final = r"\frac"
_SIGNS: Final = {
    **dict.fromkeys("×xX·⋅∙•∗", "*"),
    **dict.fromkeys((r"\times", r"\cdot", r"\ast"), "*"),
    **dict.fromkeys("÷∕⁄", "/"),
    r"\div": "/",
    **dict.fromkeys("−–", "-"),
    **dict.fromkeys((r"\left", r"\right", r"\,", r"\;", r"\ ", r"\!"), ""),
    **dict.fromkeys((r"\frac", r"\dfrac", r"\tfrac"), _FRACTION),
}
_WRITTEN_SIGNS = "|".join(re.escape(sign) + "(?![a-z])" * sign[-1].islower() * (len(sign) > 1) for sign in _SIGNS)
_TOKEN = re.compile(rf"\s*(?:([0-9]{{1,6}})|([-+*/()\[\]{{}}=]|{_WRITTEN_SIGNS}))")
_WRAPPINGS: Final = (("```", "```"), ("`", "`"), ("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"))
_BRACKETS: Final = {"(": ")", "[": "]"}
_MOST_TOKENS = 80
"""Far more than a solution has; the parser calls itself once for each bracket."""
_MOST_WRAPPINGS = 4
_STRENGTHS: Final = {"+": 1, "-": 1, "*": 2, "/": 2}
_OPERATIONS: Final[Mapping[str, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": Fraction.__add__,
    "-": Fraction.__sub__,
    "*": Fraction.__mul__,
    "/": Fraction.__truediv__,
}


def is_reached_without_brackets(numbers: Sequence[int], target: int) -> bool:
    """Whether any expression without brackets has the target as its value: a sum of terms, of which each multiplies and
    divides some of the numbers. Exact: all values are multiplied by the product of all numbers, so all are whole."""
    scale = prod(numbers)
    full = 2 ** len(numbers) - 1
    terms = {chosen: _find_terms(numbers, chosen, scale) for chosen in range(1, full + 1)}
    sums: dict[int, set[int]] = {0: {0}}
    for chosen in range(1, full + 1):
        sums[chosen] = _add_terms(chosen, terms, sums) if chosen != full and not chosen & 1 else set()
    scaled_target = target * scale
    return any(
        scaled_target - term in sums[full ^ chosen] or scaled_target + term in sums[full ^ chosen]
        for chosen in range(1, full + 1, 2)
        for term in terms[chosen]
    )


def _find_terms(numbers: Sequence[int], chosen: int, scale: int) -> set[int]:
    """Values of products and quotients of the chosen numbers, of which at least one multiplies, times `scale`."""
    factors = [number for index, number in enumerate(numbers) if chosen >> index & 1]
    values = {(1, 1)}
    for factor in factors:
        values = {pair for over, under in values for pair in ((over * factor, under), (over, under * factor))}
    if 1 not in factors:
        values.remove((1, prod(factors)))
    return {scale * over // under for over, under in values}


def _add_terms(chosen: int, terms: Mapping[int, set[int]], sums: Mapping[int, set[int]]) -> set[int]:
    """All sums over the chosen numbers: a term that holds the first of them, of either sign, and a sum of the rest."""
    lowest, values, part = chosen & -chosen, set[int](), chosen
    while part:
        if part & lowest:
            rest = sums[chosen ^ part]
            for term in terms[part]:
                values.update(term + other for other in rest)
                values.update(other - term for other in rest)
        part = (part - 1) & chosen
    return values


def _split_tokens(answer: str) -> list[str]:
    text, position, tokens = _unwrap(answer), 0, list[str]()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or len(tokens) == _MOST_TOKENS:
            raise ValueError("it is no expression of numbers, + - * / and brackets")
        sign = token[1] or token[2]
        tokens.extend(filter(None, [_SIGNS.get(sign, sign)]))
        position = token.end()
    return tokens


def _unwrap(answer: str) -> str:
    """Without what stands around an expression on a page, and without a final dot."""
    text = answer.strip()
    for _ in range(_MOST_WRAPPINGS):
        text = text.removesuffix(".").rstrip()
        for start, end in _WRAPPINGS:
            if len(text) > len(start + end) and text.startswith(start) and text.endswith(end):
                text = text[len(start) : -len(end)].strip()
                break
    return text


def _read_expression(answer: str, target: int) -> Sequence[str]:
    """Its tokens, without `= target`. ValueError if it has other characters, or says that something else is equal."""
    tokens = _split_tokens(answer)
    if "=" not in tokens:
        return tokens
    index, last = tokens.index("="), str(target)
    sides = [tokens[:index], tokens[index + 1 :]]
    if [last] not in sides:
        raise ValueError("its equals sign has something else than the target beside it")
    return sides[1 - sides.index([last])]


def compute_value(tokens: Sequence[str]) -> Fraction:
    """ValueError if it is not an expression."""
    parser = _ExpressionParser([*tokens, ""])
    value = parser.parse_term(0)
    if parser.left != [""]:
        raise ValueError("it goes on after the expression")
    return value


@dataclass
class _ExpressionParser:
    """Precedence climbing. `left` ends with an empty token."""

    left: list[str]

    def parse_term(self, binding: int) -> Fraction:
        value = self._parse_first()
        while (strength := _STRENGTHS.get(self.left[0], 0)) > binding:
            value = _OPERATIONS[self.left.pop(0)](value, self.parse_term(strength))
        return value

    def _parse_first(self) -> Fraction:
        first = self.left.pop(0)
        if first in _BRACKETS:
            return self._parse_group(_BRACKETS[first])
        if first == _FRACTION:
            return self._parse_braces() / self._parse_braces()
        if first == "-":
            return -self.parse_term(_STRENGTHS["*"])
        if first.isdecimal():
            return Fraction(int(first))
        raise ValueError("it is no complete expression")

    def _parse_braces(self) -> Fraction:
        if self.left.pop(0) != "{":
            raise ValueError("it is no complete expression")
        return self._parse_group("}")

    def _parse_group(self, closing: str) -> Fraction:
        value = self.parse_term(0)
        if self.left.pop(0) != closing:
            raise ValueError("its brackets do not match")
        return value
