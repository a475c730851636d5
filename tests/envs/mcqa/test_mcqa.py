"""Multiple choice: every topic solved anew from the prompt alone, and what counts as a choice."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from math import sqrt

import pytest

from app.domain.tasks import Task
from app.envs.mcqa.environment import ChoiceQuestion, Mcqa, McqaParams
from app.toolkit.procedural import MIXED, Level
from tests.envs.mcqa.guesses import count_right_guesses
from tests.envs.replies import explain
from tests.support.tables import read_table, unfold
from tests.support.tiers import examples

TABLE = read_table(__file__, "mcqa.yaml", dict[str, tuple[str, ...]])

ENVIRONMENT = Mcqa()
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"


def right(task: Task) -> str:
    return ENVIRONMENT.solution(ENVIRONMENT.parse_reference(task))


@cache
def tasks() -> list[Task]:
    return [ENVIRONMENT.task("train", index, McqaParams(options=3 + index % 4)) for index in range(400)]


def prompt(task: Task) -> str:
    return task.messages[0].content or ""


def options(task: Task) -> dict[str, str]:
    return dict(re.findall(r"^([A-F])\. (.*)$", prompt(task), re.MULTILINE))


def chosen(task: Task, text: str) -> str:
    return next((letter for letter, option in options(task).items() if option == text), "not among the options")


def units(task: Task) -> str:
    factor, count = re.search(r"has ([\d,]+) .*as (\d+) times", prompt(task)).groups()  # type: ignore[union-attr]
    return f"{int(factor.replace(',', '')) * int(count):,}"


def dates(task: Task) -> str:
    days, first = re.search(r"is (\d+) days after (\d+ \w+ \d+)\?", prompt(task)).groups()  # type: ignore[union-attr]
    then = datetime.strptime(first, "%d %B %Y") + timedelta(days=int(days))
    return f"{then.day} {then:%B %Y}"


def sets(task: Task) -> str:
    (first, one), (_, other) = re.findall(r"(\w+) has: ([^.]*)\.", prompt(task))
    mine, theirs = set(one.split(", ")), set(other.split(", "))
    counts = {
        "both have": mine & theirs,
        "and": mine - theirs,
        "does exactly": mine ^ theirs,
        "does at least": mine | theirs,
    }
    asked = re.search(rf"different things (does exactly|does at least|.*both have|does {first} have and)", prompt(task))
    assert asked is not None
    return str(len(next(found for words, found in counts.items() if asked[1].endswith(words))))


def orders(task: Task) -> str:
    before = re.search(r"everybody (.*) all those", prompt(task))[1]  # type: ignore[index]
    said = re.findall(r"([A-Z][a-z]+) ([a-z ]+) ([A-Z][a-z]+)\.", prompt(task))
    pairs = [(one, other) if comparison == before else (other, one) for one, comparison, other in said]
    behind = dict(pairs)
    row = [*({*behind} - {*behind.values()})]
    while row[-1] in behind:
        row.append(behind[row[-1]])
    ordinal = re.search(r"who comes (\w+)\?", prompt(task))[1]  # type: ignore[index]
    return str(row[ORDINALS.split().index(ordinal)])


def tables(task: Task) -> str:
    rows = re.findall(r"^(\w+): (\d+) \w+, (\d+) \w+$", prompt(task), re.MULTILINE)
    return str(max(rows, key=lambda row: int(row[1]) + int(row[2]))[0])


SOLVERS: dict[str, Callable[[Task], str]] = {
    "units": units,
    "dates": dates,
    "sets": sets,
    "orders": orders,
    "tables": tables,
}


@pytest.mark.parametrize("topic", sorted(SOLVERS))
def test_the_right_option_is_the_right_one(topic: str) -> None:
    asked = [task for task in tasks() if task.metadata["topic"] == topic]
    solved = [chosen(task, SOLVERS[topic](task)) for task in asked]
    assert (len(asked) > 40, solved) == (True, [right(task) for task in asked])


def test_options_are_as_many_as_wanted_and_all_different() -> None:
    counts = [(len(options(task)), len(set(options(task).values()))) for task in tasks()]
    assert counts == [(3 + index % 4, 3 + index % 4) for index in range(400)]


@pytest.mark.deep
@pytest.mark.parametrize("level", MIXED)
def test_no_guess_by_the_look_of_a_question_is_better_than_chance(level: Level) -> None:
    drawn = (ENVIRONMENT.task("train", index, McqaParams(level=level)) for index in range(examples(6_000, fewest=900)))
    made = [ENVIRONMENT.parse_reference(task) for task in drawn]
    better = []
    for topic in SOLVERS:
        right, guessed = count_right_guesses([one for one in made if one.topic == topic])
        if right > guessed * ENVIRONMENT.chance + 3 * sqrt(guessed * ENVIRONMENT.chance * (1 - ENVIRONMENT.chance)):
            better.append((topic, right, guessed))
    assert better == []


@pytest.mark.parametrize(("answer", "expected"), unfold(TABLE))
def test_one_letter_is_a_choice(answer: str, expected: str) -> None:
    asked = ChoiceQuestion(topic="sets", text="How many?", options=("3", "4", "5"), right=1)
    assert explain(ENVIRONMENT, asked, answer) == expected
