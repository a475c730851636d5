"""Pairs of a right answer and a reply, of which it is known by construction whether they say the same.

A kind draws values and writes them in several forms; the first is the right answer. An answer that is not equal is one
of the same forms of other values: a near miss. So the truth is known before anything is graded. `pairs_of_numbers`,
`pairs_of_expressions`, `pairs_of_intervals` and `pairs_of_collections` have the kinds. These follow how people and data
sets write answers and what reports tell of graders, not what a grader can read; none is left out because we fail it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Final, TypeVar

T = TypeVar("T")

FIND: Final = "Find what is asked for."


@dataclass(frozen=True)
class Question:
    gold: str
    equal: tuple[str, ...]
    unequal: tuple[str, ...]
    problem: str = FIND
    in_one_box: bool = True
    """The answers are what stands in the box. Otherwise they are whole replies."""


Kind = Callable[[Random], Question]


@dataclass(frozen=True)
class Pair:
    kind: str
    problem: str
    gold: str
    reply: str
    equal: bool


def ask(
    write: Callable[..., Sequence[str]],
    right: tuple[object, ...],
    *wrong: tuple[object, ...],
    problem: str = FIND,
    in_one_box: bool = True,
) -> Question:
    """`write` has all forms of some values, the right answer's own first; each of `wrong` has other values."""
    gold, *equal = write(*right)
    unequal = [text for values in wrong for text in write(*values)]
    return Question(gold, tuple(equal), tuple(unequal), problem, in_one_box)


def draw_pairs(kinds: Sequence[Kind], seed: str, each: int) -> list[Pair]:
    """Of every kind at most `each` equal and as many unequal ones, all different: some kinds have few."""
    return [pair for kind in kinds for pair in _draw_of_kind(kind, seed, each)]


def _draw_of_kind(kind: Kind, seed: str, each: int) -> list[Pair]:
    name = kind.__name__
    draws = Random(f"{seed} {name}")
    found: dict[bool, dict[tuple[str, str], Pair]] = {True: {}, False: {}}
    for _ in range(each * 4):
        asked = kind(draws)
        same = {asked.gold.strip(), *asked.equal}
        if wrongly := same & set(asked.unequal):
            raise ValueError(f"{name}: {sorted(wrongly)} are equal and unequal to {asked.gold}")
        for equal, texts in ((True, asked.equal), (False, asked.unequal)):
            answer = draws.choice([text for text in texts if text != asked.gold])
            reply = f"So the answer is $\\boxed{{{answer}}}$." if asked.in_one_box else answer
            if len(found[equal]) < each:
                found[equal].setdefault((asked.gold, reply), Pair(name, asked.problem, asked.gold, reply, equal))
    return [*found[True].values(), *found[False].values()]


# What kinds draw and write

PRIMES: Final = (2, 3, 5, 7, 11, 13)
LETTERS: Final = ("x", "y", "m", "n", "a", "b", "t")


def draw_numbers(draws: Random, count: int, most: int = 30) -> list[int]:
    """Different ones, without zero."""
    return draws.sample([number for number in range(-most, most + 1) if number], count)


def draw_nonzero(draws: Random, most: int) -> int:
    return draws.choice([-1, 1]) * draws.randint(1, most)


def draw_other(draws: Random, of: Sequence[T], one: T) -> T:
    return draws.choice([other for other in of if other != one])


def write_fraction(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def write_polynomial(terms: Sequence[tuple[int, str]]) -> str:
    """Of coefficients with the powers that they stand before, in this order."""
    written = ""
    for factor, power in terms:
        size = "" if abs(factor) == 1 and power else f"{abs(factor)}"
        sign = "-" if factor < 0 else "+"
        if factor:
            written = f"{written} {sign} {size}{power}" if written else f"{sign if factor < 0 else ''}{size}{power}"
    return written or "0"
