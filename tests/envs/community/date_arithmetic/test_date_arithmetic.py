"""Date arithmetic: where walks through the calendar end, and which answers are paid."""

from datetime import date

import pytest

from app.domain.values import Frozen
from app.envs.community.date_arithmetic.environment import (
    KINDS,
    STEPS,
    CalendarStep,
    DateArithmetic,
    DateArithmeticParams,
    DateWalk,
    Kind,
)
from app.toolkit.procedural import LEVELS, Level
from tests.envs.replies import explain
from tests.support.tables import read_table, unfold


class Tables(Frozen):
    """The tables of dates.yaml, which says what each holds."""

    answers: dict[str, tuple[str, ...]]
    walks: tuple[tuple[str, list[CalendarStep], str], ...]


TABLES = read_table(__file__, "dates.yaml", Tables)

DATES = DateArithmetic()


def step(kind: Kind, count: int = 1, weekday: int = 0) -> CalendarStep:
    """Back where the count is negative."""
    return CalendarStep(kind=kind, forward=count > 0, count=abs(count), weekday=weekday)


@pytest.mark.parametrize(("start", "steps", "end"), TABLES.walks)
def test_a_walk_ends_where_the_calendar_says(start: str, steps: list[CalendarStep], end: str) -> None:
    assert DATES.solution(DateWalk(start=date.fromisoformat(start), steps=tuple(steps))) == end


def test_a_walk_is_said_with_the_rules_that_it_needs() -> None:
    walk = DateWalk(
        start=date(2030, 10, 31), steps=(step("months", 4), step("nth_weekday", 2, weekday=1), step("days", -9))
    )
    assert DATES.slots(walk) == {
        "start": "31 October 2030",
        "steps": "Go 4 months forward. Stay in the month you are in, and take its second Tuesday. Go 9 days back. "
        "Months keep the day of the month; where the month is too short for it, take its last day.",
    }


@pytest.mark.parametrize(("answer", "rationale"), unfold(TABLES.answers))
def test_only_the_day_itself_is_paid(answer: str, rationale: str) -> None:
    walk = DateWalk(start=date(2030, 10, 31), steps=(step("months", 4),))
    assert explain(DATES, walk, answer) == rationale


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_has_its_steps_and_kinds(level: Level) -> None:
    params = DateArithmeticParams(level=level)
    walks = [DATES.parse_reference(DATES.task("train", index, params)) for index in range(300)]
    kinds = {step.kind for walk in walks for step in walk.steps}
    assert (kinds, {len(walk.steps) for walk in walks}) == (set(KINDS[level]), {STEPS[level]})


def test_no_step_is_of_the_same_kind_as_the_one_before() -> None:
    walks = [
        DATES.parse_reference(DATES.task("test", index, DateArithmeticParams(level="hard", steps=12)))
        for index in range(100)
    ]
    pairs = [(one.kind, other.kind) for walk in walks for one, other in zip(walk.steps, walk.steps[1:], strict=False)]
    assert (len(pairs), [pair for pair in pairs if pair[0] == pair[1]]) == (1_100, [])
