"""Countdown: expressions are read and worked out, never evaluated."""

import asyncio

import pytest

from app.domain.tasks import Completion, Task
from app.envs.countdown.environment import Countdown, CountdownParams, NumberPuzzle
from app.ports.environment import Tools
from app.service.judging import NoPanel

PUZZLE = NumberPuzzle(numbers=(3, 7, 25, 50), target=85, solution="3 + 7 + 25 + 50")
NUMBERS = "it does not use every number exactly once"
CHARACTERS = "it is no expression of numbers, + - * / and brackets"
INCOMPLETE = "it is no complete expression"


def rationale(answer: str) -> str:
    task = Task(messages=(), reference=PUZZLE.model_dump(mode="json"))
    tagged = Completion(text=f"<answer>{answer}</answer>")
    (score,) = asyncio.run(Countdown().score(task, [tagged], Tools(panel=NoPanel())))
    assert score.reward == (1.0 if score.rationale == "correct" else 0.0)
    return score.rationale


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("3 + 7 + 25 + 50", "correct"),
        ("50+25+7+3", "correct"),
        ("((50)+(25+7))+3", "correct"),
        ("50 − -(25 + 7) + 3", "correct"),
        ("50/25*7+3", "its value is 17, which is not the target"),
        ("7 × 25 ÷ 50 + 3", "its value is 13/2, which is not the target"),
        ("7 - 3 - 25 - 50", "its value is -71, which is not the target"),
        ("50 / (25 - 3 * 7)", "its value is 25/2, which is not the target"),
        ("3 + 7 + 25", NUMBERS),
        ("3 + 7 + 25 + 50 + 0", NUMBERS),
        ("3 + 7 + 75", NUMBERS),
        ("85", NUMBERS),
        ("50 / (25 - 25)", "it divides by zero"),
        ("3 + 7 + 25 + 50 = 85", CHARACTERS),
        ("3 + 7 + 25 + 50.0", CHARACTERS),
        ("٣ + 7 + 25 + 50", CHARACTERS),
        ("__import__('os')", CHARACTERS),
        ("(" * 10_000, CHARACTERS),
        ("2 ** 50", INCOMPLETE),
        ("3 +", INCOMPLETE),
        ("()", INCOMPLETE),
        ("(3 + 7", "its brackets do not match"),
        ("3 + 7) + 25 + 50", "it goes on after the expression"),
        ("3 7 25 50", "it goes on after the expression"),
        ("25(3)", "it goes on after the expression"),
    ],
)
def test_an_expression_is_read_and_worked_out(answer: str, expected: str) -> None:
    assert rationale(answer) == expected


@pytest.mark.parametrize(
    ("params", "numbers"),
    [
        (CountdownParams(numbers=3), {3}),
        (CountdownParams(numbers=6), {6}),
        (CountdownParams(level="easy"), {3}),
        (CountdownParams(level="medium"), {4}),
        (CountdownParams(level="hard"), {5, 6}),
        (CountdownParams(), {3, 4, 5, 6}),
    ],
)
def test_harder_puzzles_have_more_numbers(params: CountdownParams, numbers: set[int]) -> None:
    tasks = [Countdown().task("train", index, params) for index in range(100)]
    puzzles = [NumberPuzzle.model_validate(task.reference) for task in tasks]
    assert {(len(puzzle.numbers), puzzle.target <= 200) for puzzle in puzzles} == {(one, True) for one in numbers}
