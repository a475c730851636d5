"""Countdown: an expression that makes a target from given numbers, each used exactly once.

    prompt   Numbers: 4, 1, 9, 4     Target: 56     … between <answer> and </answer>.
    reply    <think>56 is 4 * 14, and 9 + 4 + 1 is 14.</think> <answer>(9 + 4 + 1) * 4</answer>
    reward   1.0   the expression has the target as its value, and every number once

The expression is read by a parser of our own and worked out in exact fractions; nothing is evaluated. Not paid: numbers
that were not given, joined digits, powers, an equation, a target that is only met after rounding.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, Field

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Frozen, Split, WholeNumber
from app.draws import Draws, drawn_apart
from app.grading.committed import grade_committed
from app.ports import Environment, Tools
from app.prompts import Phrasings

_PHRASINGS = Phrasings.read(Path(__file__).with_suffix("") / "prompts.yaml")
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
TEST_SIZE = 1_000


class Params(Frozen):
    numbers: Annotated[WholeNumber, Field(ge=3, le=6)] = 4
    """How many numbers there are: the more, the harder."""
    highest: Annotated[WholeNumber, Field(ge=20, le=9999)] = 200
    """The largest target."""


class Puzzle(Frozen):
    numbers: tuple[int, ...]
    target: int
    solution: str


class Countdown(Environment):
    name: ClassVar[str] = "countdown"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = Params

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": _PHRASINGS.digest}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = Params.model_validate(params, from_attributes=True)
        seed = f"countdown {chosen.numbers} {chosen.highest} {index}"
        puzzle = drawn_apart(seed, split == "test", lambda draws: _puzzle(draws, chosen), _key)
        shown = ", ".join(map(str, puzzle.numbers))
        prompt = _PHRASINGS.say(Draws(f"{seed} {split}"), numbers=shown, target=puzzle.target)
        return Task(
            messages=(Message(role="user", content=prompt),),
            metadata={"numbers": len(puzzle.numbers)},
            reference=puzzle.model_dump(mode="json"),
        )

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        puzzle = Puzzle.model_validate(task.reference)
        return [grade_committed(completion.answer, lambda answer: _fault(answer, puzzle)) for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(text=f"<answer>{Puzzle.model_validate(task.reference).solution}</answer>")

    def equivalent(self, one: Task, other: Task) -> bool:
        return _key(Puzzle.model_validate(one.reference)) == _key(Puzzle.model_validate(other.reference))


def _puzzle(draws: Draws, params: Params) -> Puzzle:
    """Built from its solution: two numbers at a time are joined until one is left."""
    while True:
        numbers = [draws.one(LARGE) if draws.chance(20) else 1 + draws.below(12) for _ in range(params.numbers)]
        left = [(Fraction(number), str(number)) for number in draws.shuffled(numbers)]
        while len(left) > 1:
            (first, said), (second, says) = left.pop(draws.below(len(left))), left.pop(draws.below(len(left)))
            sign = draws.one([sign for sign in "+-*/" if sign != "/" or (second and not (first / second) % 1)])
            left.append((_OPERATIONS[sign](first, second), f"({said} {sign} {says})"))
        value, solution = left[0]
        if value.denominator == 1 and 10 <= value <= params.highest and int(value) not in numbers:
            return Puzzle(numbers=tuple(numbers), target=int(value), solution=solution)


def _key(puzzle: Puzzle) -> str:
    return f"{sorted(puzzle.numbers)} {puzzle.target}"


def _fault(answer: str, puzzle: Puzzle) -> str:
    try:
        tokens = _tokens(answer)
        used = sorted(int(token) for token in tokens if token.isdecimal())
        value = _value(tokens)
    except (ValueError, ZeroDivisionError) as error:
        return str(error) if isinstance(error, ValueError) else "it divides by zero"
    if used != sorted(puzzle.numbers):
        return "it does not use every number exactly once"
    return "" if value == puzzle.target else f"its value is {value}, which is not the target"


def _tokens(answer: str) -> list[str]:
    text, place, tokens = answer.strip().translate(_PLAIN), 0, list[str]()
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or len(tokens) == MOST_TOKENS:
            raise ValueError("it is no expression of numbers, + - * / and brackets")
        tokens.append(token[1] or token[2])
        place = token.end()
    return tokens


def _value(tokens: Sequence[str]) -> Fraction:
    """By precedence climbing; ValueError for what is no expression."""
    left = [*tokens, ""]

    def term(binding: int) -> Fraction:
        first = left.pop(0)
        if first == "(":
            value = term(0)
            if left.pop(0) != ")":
                raise ValueError("its brackets do not match")
        elif first == "-":
            value = -term(2)
        elif first.isdecimal():
            value = Fraction(int(first))
        else:
            raise ValueError("it is no complete expression")
        while left and (strength := {"+": 1, "-": 1, "*": 2, "/": 2}.get(left[0], 0)) > binding:
            value = _OPERATIONS[left.pop(0)](value, term(strength))
        return value

    value = term(0)
    if left != [""]:
        raise ValueError("it goes on after the expression")
    return value
