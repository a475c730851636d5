"""Letter counting: what is asked, and how near misses are told apart."""

import asyncio
import re
from collections import Counter

import pytest

from app.domain.tasks import Completion, Task
from app.envs.letter_counting.environment import Kind, LetterCounting, LetterCountingParams, LetterQuestion
from app.ports.environment import Tools
from app.service.judging import NoPanel
from app.toolkit.procedural import LEVELS, Level

ENVIRONMENT = LetterCounting()
TASK = Task(messages=(), reference=LetterQuestion(text="Eeeeeeee ppp", letters=("e", "r", "p")).model_dump(mode="json"))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("8, 0, 3", "correct"),
        ("8,0 ,\n3", "correct"),
        ("08, 0, 3", "correct"),
        ("8, 0, 3.", "correct"),
        ("8, 0, 3..", "it is no list of whole numbers"),
        ("8, 0, 4", "1 of 3 counts are wrong"),
        ("3, 0, 8", "2 of 3 counts are wrong"),
        ("8, 0", "it has 2 numbers for 3 letters"),
        ("8, 0, 3, 3", "it has 4 numbers for 3 letters"),
        ("8 0 3", "it is no list of whole numbers"),
        ("e: 8, r: 0, p: 3", "it is no list of whole numbers"),
        ("8, -0, 3", "it is no list of whole numbers"),
        ("٨, 0, 3", "it is no list of whole numbers"),
        ("9" * 5_000, "it is no list of whole numbers"),
    ],
)
def test_counts_are_compared_one_by_one(answer: str, expected: str) -> None:
    tagged = Completion(text=f"<answer>{answer}</answer>")
    (score,) = asyncio.run(ENVIRONMENT.score(TASK, [tagged], Tools(panel=NoPanel())))
    assert (score.rationale, score.reward) == (expected, 1.0 if expected == "correct" else 0.0)


def test_no_constant_answer_is_worth_giving() -> None:
    tasks = [ENVIRONMENT.task("train", index, LetterCountingParams()) for index in range(2_000)]
    answers = Counter(ENVIRONMENT.solution(ENVIRONMENT.parse_reference(task)) for task in tasks)
    ((_, times),) = answers.most_common(1)
    assert times <= 0.015 * 2_000


@pytest.mark.parametrize("level", LEVELS)
def test_who_takes_no_notice_of_case_is_hardly_ever_right(level: Level) -> None:
    """Counting small letters alone was right in more than four tasks of five."""
    tasks = [ENVIRONMENT.task("train", index, LetterCountingParams(level=level)) for index in range(500)]
    made = [ENVIRONMENT.parse_reference(task) for task in tasks]
    right = [
        sum(tuple(count(one.text, letter) for letter in one.letters) == one.counts for one in made)
        for count in (
            str.count,
            lambda text, letter: text.count(letter.upper()),
            lambda text, letter: 2 * text.count(letter),
        )
    ]
    assert [times <= share * len(made) for times, share in zip(right, (0, 0.01, 0.1), strict=True)] == [True] * 3


@pytest.mark.parametrize(("kind", "meaningless"), [("sentence", {False}), ("letters", {True}), ("both", {False, True})])
def test_texts_are_of_the_kind_that_is_wanted(kind: Kind, meaningless: set[bool]) -> None:
    prompts = [
        ENVIRONMENT.task("train", index, LetterCountingParams(kind=kind)).messages[0].content or ""
        for index in range(50)
    ]
    assert {re.search("[A-Za-z]{30}", prompt) is not None for prompt in prompts} == meaningless
