"""Date arithmetic: where walks through the calendar end, and which answers are paid."""

from datetime import date

import pytest

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

TABLE = read_table(__file__, "dates.yaml", dict[str, tuple[str, ...]])

DATES = DateArithmetic()


def step(kind: Kind, count: int = 1, weekday: int = 0) -> CalendarStep:
    """Back where the count is negative."""
    return CalendarStep(kind=kind, forward=count > 0, count=abs(count), weekday=weekday)


@pytest.mark.parametrize(
    ("start", "steps", "end"),
    [
        ("2024-02-28", [step("days", 2)], "2024-03-01"),
        ("2023-02-28", [step("days", 2)], "2023-03-02"),
        ("2100-02-28", [step("days")], "2100-03-01"),
        ("2001-01-01", [step("weeks", -52)], "2000-01-03"),
        ("2030-10-31", [step("months", 4)], "2031-02-28"),
        ("2024-03-31", [step("months", -1)], "2024-02-29"),
        ("2024-01-15", [step("months", -1)], "2023-12-15"),
        ("2026-11-20", [step("weekday", weekday=4)], "2026-11-27"),
        ("2026-11-20", [step("weekday", -1, weekday=3)], "2026-11-19"),
        ("2026-11-20", [step("nth_weekday", weekday=6)], "2026-11-01"),
        ("2026-11-20", [step("nth_weekday", 4, weekday=5)], "2026-11-28"),
        ("2028-02-01", [step("month_end")], "2028-02-29"),
        ("2026-11-20", [step("working_days")], "2026-11-23"),
        ("2026-11-22", [step("working_days", -6)], "2026-11-13"),
        ("2030-10-31", [step("months", 4), step("weekday", weekday=0), step("month_end")], "2031-03-31"),
    ],
)
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


@pytest.mark.parametrize(("answer", "rationale"), unfold(TABLE))
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
