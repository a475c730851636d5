"""Date arithmetic: apply steps to a start date and give the resulting date.

    prompt   Start on 31 October 2030. Go 4 months forward. Go forward to the nearest Monday … Which date is it then?
    reply    <think>28 February 2031 is a Friday, so Monday is 3 March.</think> <answer>2031-03-03</answer>
    reward   1.0   the very day, written as YYYY-MM-DD

The steps meet leap years, short months and weekends; more steps are harder. Not paid: a date that is only close,
another date format, two dates of which one is right.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, TypeAdapter

from app.domain.values import Frozen, WholeNumber, digest
from app.toolkit.procedural import LEVELS, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, read_packaged_data

Kind = Literal["days", "weeks", "months", "weekday", "nth_weekday", "month_end", "working_days"]

_FOLDER = Path(__file__).parent
_STEP_TEXTS = read_packaged_data(_FOLDER / "steps.yaml", TypeAdapter(dict[Kind, str]))
_RULES = read_packaged_data(_FOLDER / "rules.yaml", TypeAdapter(dict[Kind, str]))
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DAY = timedelta(days=1)

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NTH = ("first", "second", "third", "fourth")
FIRST_DAY = date(1960, 1, 1)
DAYS = 140 * 365
KINDS: Final[Mapping[Level, tuple[Kind, ...]]] = {
    "first": ("days",),
    "easy": ("days", "weeks"),
    "medium": ("days", "months", "weekday"),
    "hard": ("days", "months", "weekday", "nth_weekday", "month_end", "working_days"),
}
STEPS: Final[Mapping[Level, int]] = {"first": 1, "easy": 1, "medium": 2, "hard": 4}
MOST: Final[Mapping[Kind, int]] = {"days": 400, "weeks": 60, "months": 30, "working_days": 60}
"""The largest count of a kind; the others have none."""
FIRST_YEAR: Final = 2028
MOST_FIRST: Final = 3
"""`first` walks go forward, so many days at most, from the first days of a month of this year."""


class DateArithmeticParams(LevelParams):
    """Number of steps."""

    steps: Annotated[WholeNumber, Field(ge=1, le=12)] | None = None
    """Steps in a task. Default by level: 1 (first, easy), 2 (medium), 4 (hard)."""


class CalendarStep(Frozen):
    kind: Kind
    forward: bool
    count: int
    """In the unit that `kind` names; for `nth_weekday` which one of the month, from 1."""
    weekday: int
    """0 is Monday; only used by the weekday kinds."""


class DateWalk(Frozen):
    start: date
    steps: tuple[CalendarStep, ...]


class DateArithmetic(ProceduralEnvironment[DateWalk, DateArithmeticParams]):
    name: ClassVar[str] = "date_arithmetic"
    version: ClassVar[str] = "3"
    ignores_markup: ClassVar[bool] = True
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    phrasings: ClassVar[Phrasings] = Phrasings.read(_FOLDER / "prompts.yaml")
    data: ClassVar[Mapping[str, str]] = {"steps": digest(_STEP_TEXTS), "rules": digest(_RULES)}

    def make(self, draws: SeededRandom, level: Level, params: DateArithmeticParams) -> DateWalk:
        kinds = draws.shuffled(KINDS[level])
        steps = tuple(
            _draw_step(draws, kinds[index % len(kinds)], level) for index in range(params.steps or STEPS[level])
        )
        if level == "first":
            return DateWalk(start=date(FIRST_YEAR, 1 + draws.below(12), 1 + draws.below(6)), steps=steps)
        return DateWalk(start=FIRST_DAY + draws.below(DAYS) * _DAY, steps=steps)

    def kind(self, made: DateWalk) -> object:
        return made.start.month

    def slots(self, made: DateWalk) -> Mapping[str, str | int]:
        start = f"{made.start.day} {MONTHS[made.start.month - 1]} {made.start.year}"
        rules = [_RULES[kind] for kind in dict.fromkeys(step.kind for step in made.steps) if kind in _RULES]
        return {"start": start, "steps": " ".join([*map(_describe_step, made.steps), *rules])}

    def fault(self, answer: str, made: DateWalk) -> str:
        if not _ISO.fullmatch(answer):
            return "it is no date of the form YYYY-MM-DD"
        return "" if answer == self.solution(made) else "it is another date"

    def solution(self, made: DateWalk) -> str:
        day = made.start
        for step in made.steps:
            day = _apply_step(day, step)
        return day.isoformat()


def _draw_step(draws: SeededRandom, kind: Kind, level: Level) -> CalendarStep:
    most = MOST_FIRST if level == "first" else MOST.get(kind)
    count = 2 + draws.below(most - 1) if most else 1 + draws.below(len(NTH))
    return CalendarStep(kind=kind, forward=level == "first" or draws.chance(60), count=count, weekday=draws.below(7))


def _describe_step(step: CalendarStep) -> str:
    values = {"count": step.count, "weekday": WEEKDAYS[step.weekday], "nth": NTH[(step.count - 1) % len(NTH)]}
    return _STEP_TEXTS[step.kind].format_map({**values, "way": "forward" if step.forward else "back"})


def _apply_step(day: date, step: CalendarStep) -> date:
    way = 1 if step.forward else -1
    match step.kind:
        case "days" | "weeks":
            return day + way * step.count * (7 if step.kind == "weeks" else 1) * _DAY
        case "months":
            year, month = divmod(day.year * 12 + day.month - 1 + way * step.count, 12)
            return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))
        case "weekday":
            return _find_next_day(day, way, lambda one: one.weekday() == step.weekday)
        case "nth_weekday":
            first = day.replace(day=1)
            return first + ((step.weekday - first.weekday()) % 7 + 7 * (step.count - 1)) * _DAY
        case "month_end":
            return day.replace(day=monthrange(day.year, day.month)[1])
        case "working_days":
            for _ in range(step.count):
                day = _find_next_day(day, way, lambda one: one.weekday() < 5)
            return day


def _find_next_day(day: date, way: int, fits: Callable[[date], bool]) -> date:
    """The nearest wanted day in that direction, not `day` itself."""
    day += way * _DAY
    while not fits(day):
        day += way * _DAY
    return day
