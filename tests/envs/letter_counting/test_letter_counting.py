"""Letter counting: what is asked, and how near misses are told apart."""

import re

import pytest

from app.envs.letter_counting.environment import Kind, LetterCounting, LetterCountingParams, LetterQuestion
from app.toolkit.procedural import MIXED, Level
from tests.envs.replies import explain
from tests.support.tables import read_table, unfold

TABLE = read_table(__file__, "counts.yaml", dict[str, tuple[str, ...]])

ENVIRONMENT = LetterCounting()
QUESTION = LetterQuestion(text="Eeeeeeee ppp", letters=("e", "r", "p"))


@pytest.mark.parametrize(("answer", "expected"), [*unfold(TABLE), ("9" * 5_000, "it is no list of whole numbers")])
def test_counts_are_compared_one_by_one(answer: str, expected: str) -> None:
    assert explain(ENVIRONMENT, QUESTION, answer) == expected


@pytest.mark.parametrize("level", MIXED)
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
