"""Run health notices what happens to a run, and stays quiet when nothing does, in a simulated run."""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

from app.domain.rollups import GROUPS_PER_BUCKET
from app.domain.runs import HealthOptions, TrendName
from app.features.health.model import (
    AnchorReading,
    HealthState,
    HealthTokens,
    Leniency,
    Mark,
    advance_state,
    follow_anchors,
)
from app.features.health.series import (
    LOGARITHMIC,
    TRENDS,
    WINDOW_BUCKETS,
    Cell,
    Noticed,
    describe_trend_change,
    find_change,
    find_trend_changes,
    is_alarm,
    summarise_trend,
)
from app.features.health.service import ANCHORS, HealthBudget, is_hurried

GROUP_SIZE: Final = 8
READINGS_PER_GROUP: Final = 2.5
"""Two mirrored orders, and two more of one group in four. An anchor is read once."""
JUDGE_CHANGES, COLLAPSES, PADS = 500, 800, 900
WITHIN: Final = 100
TEXT_NOISE: Final = 0.2
"""Of the same question asked again, in standard deviations of the quality."""
CALL_NOISE: Final = 0.05
LENGTH_SPREAD: Final = 0.2
"""Standard deviation of the logarithm of a reply's length, within a group."""
TOKENS: Final = 1_000
"""Of one reading."""


@dataclass(frozen=True)
class Policy:
    """Its course over the groups of a run. `quality` is in standard deviations, `length` a factor."""

    quality: Callable[[int], float]
    length: Callable[[int], float]
    repeats: Callable[[int], float] = lambda group: 0.01
    strata: Callable[[int], Sequence[tuple[str, float]]] = lambda group: [(f"npc {place}", 1.0) for place in range(6)]


@dataclass(frozen=True)
class Judge:
    leniency: Callable[[int], float] = lambda group: 0.0

    def read(self, quality: float, group: int) -> float:
        return 1 / (1 + math.exp(-0.9 * (quality + self.leniency(group))))


@dataclass(frozen=True)
class Course:
    policy: Policy
    judge: Judge
    groups: int


@dataclass
class Watch:
    """What run health is told, and what it said."""

    cells: dict[TrendName, list[Cell]] = field(default_factory=lambda: {rule.name: [] for rule in TRENDS})
    since: dict[TrendName, int] = field(default_factory=dict)
    judge_since: int = 0
    readings: list[AnchorReading] = field(default_factory=list)
    said: list[Noticed] = field(default_factory=list)
    leniency: Leniency = field(default_factory=lambda: follow_anchors(()))

    def look(self, bucket: int) -> None:
        first = bucket - WINDOW_BUCKETS + 1
        recent = {name: [cell for cell in cells[-1500:] if cell.bucket >= first] for name, cells in self.cells.items()}
        for rule, change in find_trend_changes(recent, self.since, self.judge_since):
            if change is not None and is_alarm(rule, change):
                self.said.append(describe_trend_change(rule, change, bucket))
                self.since[rule.name] = change.bucket

    def look_at_anchors(self) -> None:
        self.leniency = follow_anchors(self.readings)
        alarms = self.leniency.alarms
        known = [each for each in self.said if each.series == "leniency"]
        for alarm in alarms[len(known) :]:
            self.said.append(alarm)
            self.judge_since = alarm.since_group // GROUPS_PER_BUCKET


def follow(course: Course, seed: int) -> Watch:
    draws, watch = random.Random(seed), Watch()
    level: dict[str, tuple[float, float]] = {}
    anchors = [[draws.gauss(course.policy.quality(0), 1.0) for _ in range(GROUP_SIZE)] for _ in range(ANCHORS)]
    sums: defaultdict[tuple[TrendName, str], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for group in range(course.groups):
        stratum = draw_stratum(course.policy.strata(group), draws)
        easy, long = level.setdefault(stratum, (draws.gauss(0, 0.5), draws.gauss(0, 0.2)))
        for name, value in draw_group(course, group, easy, long, draws):
            count, total = sums[name, stratum]
            sums[name, stratum] = count + 1, total + value
        while admits_anchor(watch, group):
            watch.readings.append(read_anchor(course.judge, anchors, len(watch.readings), group, draws))
            watch.look_at_anchors()
        if (group + 1) % GROUPS_PER_BUCKET == 0:
            bucket = group // GROUPS_PER_BUCKET
            for (name, where), (count, total) in sums.items():
                whole = count * math.log(total / count) if name in LOGARITHMIC else total
                watch.cells[name].append(Cell(bucket, where, count, whole))
            sums.clear()
            watch.look(bucket)
    return watch


def admits_anchor(watch: Watch, group: int) -> bool:
    """As the service decides, where every reading costs the same."""
    made = len(watch.readings)
    tokens = HealthTokens(
        run=round(READINGS_PER_GROUP * TOKENS * (group + 1)),
        groups=group + 1,
        anchor=made * TOKENS,
        anchor_readings=made or 1,
    )
    expected = tokens if made else tokens.model_copy(update={"anchor_readings": 0, "groups": tokens.run // TOKENS})
    return HealthBudget(HealthOptions().share, expected, False).admits_anchor(hurried=is_hurried(watch.leniency, 0))


def draw_stratum(strata: Sequence[tuple[str, float]], draws: random.Random) -> str:
    names, weights = zip(*strata, strict=True)
    chosen: str = draws.choices(names, weights)[0]
    return chosen


def draw_group(
    course: Course, group: int, easy: float, long: float, draws: random.Random
) -> Iterator[tuple[TrendName, float]]:
    mean = course.policy.quality(group) + easy + draws.gauss(0, 0.25)
    qualities = [draws.gauss(mean, 1.0) for _ in range(GROUP_SIZE)]
    noisy = [quality + draws.gauss(0, 0.4) for quality in qualities]
    read = [course.judge.read(quality, group) for quality in noisy]
    task = 5.5 + long + draws.gauss(0, 0.04) + math.log(course.policy.length(group))
    yield "length", math.fsum(math.exp(draws.gauss(task, LENGTH_SPREAD)) for _ in read) / GROUP_SIZE
    yield "absolute", math.fsum(read) / GROUP_SIZE
    yield "saturated", share(value > 0.95 for value in read)
    yield "flagged", share(draws.random() < 0.3 / (1 + math.exp(quality)) for quality in qualities)
    yield "gated", share(draws.random() < 0.1 / (1 + math.exp(quality)) for quality in qualities)
    yield "capped", share(draws.random() < 0.2 / (1 + math.exp(quality)) for quality in qualities)
    repeats = course.policy.repeats(group)
    yield "duplicates", share(draws.random() < repeats for _ in read)
    yield "escalated", 4.0 if draws.random() < 0.25 else 2.0
    yield "low_signal", float(draws.random() < 0.1 + repeats / 2)
    other = [1 / (1 + math.exp(-0.9 * (quality + draws.gauss(0, 0.4)))) for quality in qualities]
    if group % 5 == 0:
        distance = [mine - theirs for mine, theirs in zip(read, other, strict=True)]
        yield "calibration", math.fsum(distance) / GROUP_SIZE
    if group % 50 == 0:
        yield "shadow_distance", math.fsum(read) / GROUP_SIZE - math.fsum(other) / GROUP_SIZE


def share(values: Iterator[bool]) -> float:
    return sum(values) / GROUP_SIZE


def read_anchor(
    judge: Judge, anchors: Sequence[Sequence[float]], number: int, group: int, draws: random.Random
) -> AnchorReading:
    place, call = number % len(anchors), draws.gauss(0, CALL_NOISE)
    values = [judge.read(quality + call + draws.gauss(0, TEXT_NOISE), group) for quality in anchors[place]]
    return AnchorReading(f"anchor {place}", group + 1, tuple(values))


def build_month() -> Course:
    return Course(
        Policy(
            quality=lambda group: learn(group, 1500) - (2.0 if group >= COLLAPSES else 0.0),
            length=lambda group: 1.1 ** ((group - PADS) // 50 + 1) if group >= PADS else 1.0,
            repeats=lambda group: 0.01 if group < COLLAPSES else 0.35,
        ),
        Judge(lambda group: 0.3 if group >= JUDGE_CHANGES else 0.0),
        1000,
    )


def learn(group: int, pace: float) -> float:
    """From -2 to 2 standard deviations."""
    return -2 + 4 * (1 - math.exp(-group / pace))


def build_quiet_run(number: int) -> Course:
    """A policy that learns, slowly or fast, and writes 30 % more; every second with another mixture from the middle on,
    every third with characters that come later."""
    pace = (800, 1500, 3000)[number % 3]

    def choose_strata(group: int) -> Sequence[tuple[str, float]]:
        later = number % 2 == 0 and group >= 2500
        strata = [(f"npc {place}", 6.0 if later and place == 0 else 0.3 if later else 1.0) for place in range(6)]
        return strata + ([("new 1", 1.5), ("new 2", 1.5)] if number % 3 == 0 and group >= 1700 else [])

    grows = 1 + 0.3 / 5000
    return Course(
        Policy(
            quality=lambda group: learn(group, pace),
            length=(lambda group: 1 + 0.3 * (1 - math.exp(-group / 1500))) if number % 4 < 2 else lambda g: grows**g,
            strata=choose_strata,
        ),
        Judge(),
        5000,
    )


EVENTS: Final[Mapping[str, tuple[int, tuple[str, ...]]]] = {
    "the judge is .3 sd milder": (JUDGE_CHANGES, ("leniency",)),
    "the policy collapses": (COLLAPSES, ("absolute", "duplicates", "low_signal")),
    "replies are padded": (PADS, ("length",)),
}


@dataclass(frozen=True)
class Delays:
    """Groups from each event to the first fitting alarm; None if none came. `early` counts other alarms."""

    by_event: Mapping[str, int | None]
    early: int


def measure_delays(course: Course, seed: int) -> Delays:
    said = follow(course, seed).said
    found: dict[str, int | None] = {}
    for event, (at, series) in EVENTS.items():
        fits = [each.noticed_group - at for each in said if each.series in series and each.noticed_group > at]
        found[event] = min(fits, default=None)
    return Delays(found, sum(each.noticed_group <= JUDGE_CHANGES for each in said))


def test_each_change_of_a_month_is_noticed_within_a_hundred_groups() -> None:
    delays = measure_delays(build_month(), seed=1)
    late = {event: delay for event, delay in delays.by_event.items() if delay is None or delay > WITHIN}
    assert (set(delays.by_event), late, delays.early) == (set(EVENTS), {}, 0)


@pytest.mark.slow
def test_so_it_is_in_twenty_months() -> None:
    months = [measure_delays(build_month(), seed) for seed in range(1000, 1020)]
    late = [
        month.by_event for month in months if not all(0 < (delay or 0) <= WITHIN for delay in month.by_event.values())
    ]
    assert (late, sum(month.early for month in months)) == ([], 0)


@pytest.mark.parametrize("number", [0])
def test_a_run_that_learns_and_changes_its_mixture_is_quiet(number: int) -> None:
    assert follow(build_quiet_run(number), 20_000 + number).said == []


@pytest.mark.slow
def test_twenty_quiet_runs_give_at_most_one_alarm() -> None:
    assert sum(len(follow(build_quiet_run(number), 10_000 + number).said) for number in range(20)) <= 1


def test_a_steady_trend_and_another_mixture_are_no_change_and_a_step_is_one() -> None:
    noise = (0.01, -0.02, 0.015, -0.005)

    def make(step: float) -> list[Cell]:
        cells = []
        for bucket in range(40):
            level = 0.01 * bucket + noise[bucket % 4] + (step if bucket >= 35 else 0.0)
            easy, hard = (2, 8) if bucket >= 20 else (8, 2)
            cells.append(Cell(bucket, "easy", easy, easy * (level + 0.5)))
            cells.append(Cell(bucket, "hard", hard, hard * level))
        return cells

    quiet, loud = find_change(make(0.0), floor=1e-4), find_change(make(0.3), floor=1e-4)
    assert quiet is None or abs(quiet.z) < 4
    assert loud is not None
    assert (loud.bucket, loud.z > 10, abs(loud.effect - 0.3) < 0.05) == (35, True, True)


@pytest.mark.parametrize(("name", "is_cut"), [("gated", True), ("calibration", False)])
def test_the_interval_of_a_share_does_not_go_below_0(name: TrendName, is_cut: bool) -> None:
    rule = next(each for each in TRENDS if each.name == name)
    figure = summarise_trend(rule, [Cell(bucket, "toy", 8, 0.0) for bucket in range(4)], None, False, 3)
    assert figure.interval is not None
    assert (figure.interval[0] == 0.0, figure.interval[1] > 0.0) == (is_cut, True)


def test_too_little_before_a_change_says_nothing() -> None:
    cells = [Cell(bucket, "one", 10, 10.0 * (bucket >= 5)) for bucket in range(10)]
    assert (find_change(cells, floor=1e-4), find_change([], floor=1e-4)) == (None, None)


def read_anchors(shift: float) -> list[AnchorReading]:
    texts = (0.2, 0.5, 0.8)
    before = [AnchorReading(f"anchor {n % 2}", n, texts) for n in range(12)]
    return before + [AnchorReading(f"anchor {n % 2}", n, tuple(v + shift for v in texts)) for n in range(12, 15)]


@pytest.mark.parametrize(("shift", "alarms"), [(0.0, 0), (0.02, 0), (0.15, 1), (-0.15, 1)])
def test_a_judge_that_reads_its_anchors_otherwise_is_noticed(shift: float, alarms: int) -> None:
    assert len(follow_anchors(read_anchors(shift)).alarms) == alarms


def test_rollouts_without_a_value_are_left_out_of_an_anchor() -> None:
    found = follow_anchors([AnchorReading("a", 1, (0.5, None, 0.7)), AnchorReading("a", 2, (0.6, 0.9, None))])
    assert [round(shift * found.spread, 9) for shift in found.shifts] == [0.1]


def test_buckets_of_a_run_are_of_its_own_groups() -> None:
    state = advance_state(HealthState(), [(0, 4), (1, 4), (2, 4), (5, 10), (6, 3)])
    assert state == HealthState(marks=(Mark(), Mark(first=3, groups=12), Mark(first=6, groups=22)), groups=25)
    assert [state.newest, state.place_bucket(2), state.place_bucket(5), state.find_bucket(22)] == [1, 0, 1, 2]


def test_old_buckets_keep_their_number() -> None:
    state = HealthState()
    for bucket in range(100):
        state = advance_state(state, [(bucket, 10)])
    assert (state.newest, state.first_bucket, state.count_groups_before(99)) == (99, 39, 990)
