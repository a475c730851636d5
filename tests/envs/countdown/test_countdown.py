"""Countdown: expressions are read and worked out, never evaluated."""

from collections import Counter
from fractions import Fraction
from itertools import chain, permutations, product

import pytest

from app.envs.countdown.environment import (
    Countdown,
    CountdownParams,
    NumberPuzzle,
    compute_value,
    is_reached_without_brackets,
)
from app.toolkit.procedural import LEVELS, MIXED, Level
from tests.envs.replies import explain
from tests.support.tables import read_table, unfold
from tests.support.tiers import examples

TABLE = read_table(__file__, "countdown.yaml", dict[str, tuple[str, ...]])

PUZZLE = NumberPuzzle(numbers=(3, 7, 25, 50), target=85, solution="3 + 7 + 25 + 50")
CHARACTERS = "it is no expression of numbers, + - * / and brackets"


@pytest.mark.parametrize(("answer", "expected"), [*unfold(TABLE), ("(" * 10_000, CHARACTERS)])
def test_an_expression_is_read_and_worked_out(answer: str, expected: str) -> None:
    assert explain(Countdown(), PUZZLE, answer) == expected


@pytest.mark.parametrize(
    ("params", "numbers"), read_table(__file__, "levels.yaml", list[tuple[CountdownParams, set[int]]])
)
def test_harder_puzzles_have_more_numbers(params: CountdownParams, numbers: set[int]) -> None:
    tasks = [Countdown().task("train", index, params) for index in range(30)]
    puzzles = [NumberPuzzle.model_validate(task.reference) for task in tasks]
    assert {(len(puzzle.numbers), puzzle.target <= 200) for puzzle in puzzles} == {(one, True) for one in numbers}


def draw_puzzles(level: Level) -> list[NumberPuzzle]:
    tasks = (
        Countdown().task("train", index, CountdownParams(level=level)) for index in range(examples(600, fewest=60))
    )
    return [NumberPuzzle.model_validate(task.reference) for task in tasks]


@pytest.mark.deep
@pytest.mark.parametrize("level", MIXED)
def test_no_form_that_is_always_the_same_is_worth_giving(level: Level) -> None:
    """Adding up all numbers solved a tenth of the puzzles, and a fifth of the easy ones."""
    puzzles, solved = draw_puzzles(level), Counter[str]()
    for puzzle in puzzles:
        for signs in product("+-*/", repeat=len(puzzle.numbers) - 1):
            written = "".join(map("".join, zip(map(str, sorted(puzzle.numbers)), (*signs, ""), strict=True)))
            solved["".join(signs)] += not Countdown().fault(written, puzzle)
    plain = [solved["+" * count] + solved["*" * count] for count in range(2, 6)]
    assert (plain, max(solved.values()) <= 0.2 * len(puzzles)) == ([0, 0, 0, 0], True)


def test_what_can_be_reached_without_brackets_is_found() -> None:
    """An oracle of another make: every expression is written down and worked out."""
    puzzles = [puzzle for level in LEVELS for puzzle in draw_puzzles(level)[:15] if len(puzzle.numbers) < 5]
    found = [is_reached_without_brackets(puzzle.numbers, puzzle.target) for puzzle in puzzles]
    assert (found, {*found}) == ([puzzle.target in work_out_all(puzzle.numbers) for puzzle in puzzles], {True, False})


def work_out_all(numbers: tuple[int, ...]) -> set[Fraction]:
    return {
        compute_value([*first, *chain.from_iterable(zip(signs, map(str, order[1:]), strict=True))])
        for order in permutations(numbers)
        for first in ([str(order[0])], ["-", str(order[0])])
        for signs in product("+-*/", repeat=len(order) - 1)
    }


@pytest.mark.deep
def test_hard_puzzles_need_brackets() -> None:
    puzzles = draw_puzzles("hard")
    assert not any(is_reached_without_brackets(puzzle.numbers, puzzle.target) for puzzle in puzzles)
