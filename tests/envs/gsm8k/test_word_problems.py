"""Generated word problems: right, distinct, the same everywhere, and never the same in train and test."""

import re
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.envs.gsm8k.environment import (
    CHAINS,
    STORIES,
    TEST_SIZE,
    Story,
    StoryBook,
    StoryChains,
    WordProblem,
    WordProblems,
)
from app.toolkit.seeded import SeededRandom
from tests.support.tables import read_table
from tests.support.tiers import examples

TABLE = read_table(__file__, "stories.yaml", tuple[tuple[dict[str, object], str], ...])

PROBLEMS = WordProblems.read(STORIES, CHAINS)

TRAINED = examples(3_000, fewest=1_200)


@cache
def drawn() -> list[WordProblem]:
    return [PROBLEMS.problem("train", index) for index in range(TRAINED)]


PIES = read_table(__file__, "pies.yaml", Story)


def test_a_problem_is_told_and_worked_out() -> None:
    problems = WordProblems(StoryBook(names=("Ada", "Bo", "Cy"), stories=(PIES,)))
    problem = problems.problem("train", 0)
    match = re.fullmatch(
        r"(\w+) cuts (\d+) (apple|plum) pies into (4|8|12) pieces each for (\d) guests\. How many for each\?",
        problem.question,
    )
    assert match is not None
    name, pies, _, cut, eaters = match.groups()
    pieces, each = int(pies) * int(cut), int(pies) * int(cut) // int(eaters)
    solution = f"{name} has: {pies} * {cut} = {pieces}\nEach gets: {pieces} / {eaters} = {each}\n#### {each}"
    assert problem == WordProblem(problem.question, solution, each)


def test_nothing_and_less_than_nothing_are_no_results() -> None:
    """Two numbers in three of this story leave nothing or debts."""
    changes = {"name": "debts", "numbers": {"pies": [1, 9], "eaters": [1, 18]}, "text": "{A}: {pies}, {eaters}."}
    steps = [{"says": "Left", "does": "left = pies - eaters"}, {"says": "Twice", "does": "answer = left * 2"}]
    story = Story.model_validate(PIES.model_dump() | changes | {"steps": steps})
    problems = WordProblems(StoryBook(names=("Ada", "Bo", "Cy"), stories=(story,)))
    assert [index for index in range(20) if problems.problem("train", index).answer <= 0] == []


@given(st.integers(0, 2**53 - 1))
def test_every_line_of_a_solution_is_true(index: int) -> None:
    problem = PROBLEMS.problem("train", index)
    *lines, last = problem.solution.replace(",", "").split("\n")
    for line in lines:
        equation = line.rpartition(": ")[2]
        first, *rest = re.fullmatch(r"(.+) = (\d+)", equation).groups()[0].split()  # type: ignore[union-attr]
        value = int(first)
        for operator, operand in zip(rest[::2], map(int, rest[1::2]), strict=True):
            value, left = {
                "+": (value + operand, 0),
                "-": (value - operand, 0),
                "*": (value * operand, 0),
                "/": divmod(value, operand),
            }[operator]
            assert left == 0
        assert equation.endswith(f"= {value}")
    assert (last, len(lines) >= 2, problem.answer > 0) == (f"#### {value}", True, True)


def test_problems_are_distinct_and_the_splits_do_not_meet() -> None:
    test = {PROBLEMS.problem("test", index).question for index in range(TEST_SIZE)}
    train = {one.question for one in drawn()}
    assert (len(test), len(train) >= 0.99 * TRAINED, test & train) == (TEST_SIZE, True, set())


def test_every_story_is_told_and_reads_cleanly() -> None:
    questions = [one.question for one in drawn()]
    unclean = [question for question in questions if re.search(r"[{}_]|  |\bNone\b|\.\.|[^.?]$", question)]
    openings = {
        story.name
        for story in PROBLEMS.book.stories
        if any(re.search(re.sub(r"\\\{\w+\\\}", ".+", re.escape(story.text)), question) for question in questions)
    }
    assert (unclean, len(openings)) == ([], len(PROBLEMS.book.stories))


def test_no_number_of_a_text_is_its_answer() -> None:
    """But a few that belong to the words of a story, such as five days a week."""
    shown = sum(str(one.answer) in re.findall(r"\d+", one.question.replace(",", "")) for one in drawn())
    assert shown < 10


def steps(**does: str) -> list[dict[str, str]]:
    return [{"says": says, "does": computed} for says, computed in does.items()]


def test_a_story_is_composed_of_its_parts() -> None:
    theme = {"name": "eggs", "things": "eggs", "packs": "nests", "others": "hens", "spoils": "break"}
    beginning = {
        "numbers": {"other": [3, 9], "more": [1, 9]},
        "texts": ["{A} has {more} more than {B} with {other}."],
        "steps": steps(First="now = other + more"),
    }
    change = {
        "numbers": {"days": [2, 3], "daily": [1, 2]},
        "texts": ["For {days} days {A} {loses} {daily} {things}."],
        "steps": steps(Gone="gone = days * daily", Left="now = before - gone"),
    }
    asked = {"texts": ["How many {things} do {A} and {B} have?"], "steps": steps(Both="answer = before + other")}
    words = {"gains": ["finds"], "loses": ["sells"]}
    parts = {"beginnings": [beginning], "changes": [change], "questions": [asked], "asides": []}
    chains = StoryChains.model_validate({"themes": [{**theme, **words}], **parts})
    assert chains.compose(SeededRandom("any")) == Story.model_validate(
        {
            "name": "eggs-0-0-0",
            "numbers": {"other0": (3, 9), "more0": (1, 9), "days1": (2, 3), "daily1": (1, 2)},
            "words": {**{name: (word,) for name, word in theme.items() if name != "name"}, **words},
            "text": "{A} has {more0} more than {B} with {other0}. For {days1} days {A} {loses} {daily1} {things}. "
            "How many {things} do {A} and {B} have?",
            "steps": [
                *steps(First="now0 = other0 + more0", Gone="gone1 = days1 * daily1"),
                *steps(Left="now1 = now0 - gone1", Both="answer = now1 + other0"),
            ],
        }
    )


@pytest.mark.slow
def test_stories_that_do_not_suffice_are_found_out() -> None:
    odd = Story.model_validate(PIES.model_dump() | {"name": "odd", "numbers": {**PIES.numbers, "eaters": [9999, 9999]}})
    for story, complaint in ((PIES, "fewer than 1000 different test problems"), (odd, "no numbers of story odd give")):
        with pytest.raises(ValueError, match=complaint):
            WordProblems(StoryBook(names=("Ada", "Bo", "Cy"), stories=(story,))).problem("test", TEST_SIZE - 1)


def test_a_test_problem_is_the_same_whatever_was_asked_for_before() -> None:
    first, last = (WordProblems.read(STORIES, CHAINS) for _ in range(2))
    indexes = (0, 7, 60)
    upwards = [first.problem("test", index) for index in indexes]
    assert [last.problem("test", index) for index in reversed(indexes)] == upwards[::-1]


@pytest.mark.parametrize(("change", "complaint"), TABLE)
def test_a_story_that_does_not_hang_together_is_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Story.model_validate(PIES.model_dump() | change)
