"""Run health: what is stored of a run, what a look at it says, and how the leniency of its judges is followed.

A run's groups fall into buckets of its own, since the store's buckets are of all runs. Figures of full buckets are
followed (`series`). Beside them some of the first groups are frozen as anchors and read again by the same judges: the
texts are the same, so a shift of their scores is the judges'.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, Protocol, Self

from pydantic import ConfigDict, Field

from app.domain.judging import JudgeVersion
from app.domain.low_rewards import Finding
from app.domain.rollups import GROUPS_PER_BUCKET
from app.domain.runs import Alarm, HealthOptions, Hold, TrendName
from app.domain.values import FiniteNumber, Frozen, compute_mean_interval, is_absent
from app.features.health.series import WINDOW_BUCKETS, HealthFigure, Noticed, describe_series

ReadingKind = Literal["anchor", "shadow"]


class Mark(Frozen):
    """Where a bucket of a run's own groups begins: in the store's buckets, and after how many groups of the run."""

    first: int = 0
    groups: int = 0


class HealthState(Frozen):
    """`marks` are of the newest buckets; the last one is still filling. `first_bucket` is the number of the first."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    marks: tuple[Mark, ...] = (Mark(),)
    first_bucket: int = 0
    groups: int = 0
    """Groups of the run that are in buckets, the one that is filling included."""
    since: dict[TrendName, int] = {}
    """The bucket from which on a series is followed after its last alarm."""
    judge_since: int = 0
    """The same for all series of judges, after an alarm about leniency."""
    anchors_after: int = 0
    """The reading that brought the last alarm about leniency."""
    versions_seen: int = -1
    """Versions of its judges that were known at the last look."""
    hurried_readings: int = Field(default=0, alias="rush")
    """Anchor readings still to be made ahead of schedule, since a judge has changed. Stored as `rush`."""
    failures: int = 0
    """Anchor readings in a row that failed, and how many groups the run had at the last of them."""
    failed_at: int = 0
    is_beginning_judged: bool = False
    """Whether the run had the groups by which its beginning is judged."""
    players_alarmed_at: int = -1
    """How many groups the run had at the last alarm about its players; -1 without one."""

    @property
    def newest(self) -> int:
        """The newest full bucket; -1 before there is one."""
        return self.first_bucket + len(self.marks) - 2

    def find_bucket(self, at_group: int) -> int:
        return self.first_bucket + bisect_right([mark.groups for mark in self.marks], at_group) - 1

    def place_bucket(self, store_bucket: int) -> int:
        return self.first_bucket + bisect_right([mark.first for mark in self.marks], store_bucket) - 1

    def count_groups_before(self, bucket: int) -> int:
        index = min(max(0, bucket - self.first_bucket), len(self.marks) - 1)
        return self.marks[index].groups


_MARKS_KEPT: Final = WINDOW_BUCKETS + 2


def advance_state(state: HealthState, totals: Sequence[tuple[int, int]]) -> HealthState:
    """With the groups that the run has in later buckets of the store, in order. `totals` begin where the last mark
    does, and none of them will grow."""
    marks, filled = list(state.marks), 0
    for store_bucket, groups in totals:
        filled += groups
        if filled >= GROUPS_PER_BUCKET:
            marks.append(Mark(first=store_bucket + 1, groups=marks[-1].groups + filled))
            filled = 0
    dropped = max(0, len(marks) - _MARKS_KEPT)
    return state.model_copy(
        update={
            "marks": tuple(marks[dropped:]),
            "first_bucket": state.first_bucket + dropped,
            "groups": marks[-1].groups + filled,
        }
    )


class HealthReading(Frozen):
    """One reading for run health. It never enters a reward, and is no scoring of its group."""

    reading_id: str
    run: str
    environment: str
    label: str | None
    group_id: str
    kind: ReadingKind
    judges: tuple[str, ...]
    at_group: int
    """How many groups the run had then."""
    values: tuple[FiniteNumber | None, ...]
    """The absolute of each rollout; null where a gate or a failure left none."""
    distance: FiniteNumber | None = None
    """Of the shadow judge: mean absolute of the group's own score minus its own."""
    tokens: int = 0
    failed: str = ""
    sequence: int = 0
    """Set by the store."""


class HealthTokens(Frozen):
    """What judges read and wrote."""

    run: int = 0
    """For the run's own groups."""
    groups: int = 0
    """How many these were."""
    anchor: int = 0
    anchor_readings: int = 0
    shadow: int = 0
    shadow_readings: int = 0

    @property
    def spent(self) -> int:
        return self.anchor + self.shadow

    def expect(self, kind: ReadingKind) -> float:
        """Tokens of the next such reading: as the mean of those so far, at first as a group's."""
        count = self.anchor_readings if kind == "anchor" else self.shadow_readings
        if count:
            return (self.anchor if kind == "anchor" else self.shadow) / count
        return self.run / self.groups if self.groups else 0.0


class HealthSpending(Frozen):
    """Judge tokens of anchors and the shadow judge, which are part of the judges' spend and of the run's cost."""

    anchors: int
    anchor_readings: int
    shadow: int
    shadow_readings: int
    tokens: int
    run_tokens: int
    """Of the run's own groups."""
    share: FiniteNumber | None
    most_share: FiniteNumber


class PlayerUse(Frozen):
    """What the models that play players took in the newest groups of a run with such players."""

    groups: int
    answers: int
    discarded: int
    """Answers that were none of a player's, or that never came."""
    calls: int
    seconds: FiniteNumber
    """What all answers took together. Episodes of a group are played beside one another, so a group waits less."""

    @property
    def share(self) -> float:
        return self.discarded / self.answers

    @property
    def is_alarming(self) -> bool:
        return self.answers >= FEWEST_ANSWERS and self.share > MOST_DISCARDED

    @property
    def sentence(self) -> str:
        return (
            f"Models that play players made {self.calls / self.groups:.1f} calls and took "
            f"{self.seconds / self.groups:.1f} s for a group, in the newest {self.groups:,} groups with such players; "
            f"{self.share:.1%} of {self.answers:,} answers were discarded or failed."
        )


FEWEST_ANSWERS: Final = 100
"""Fewer answers of players are no reason for an alarm."""
MOST_DISCARDED: Final = 0.05
"""Share of discarded answers above which there is one."""
GROUPS_OF_PLAYERS: Final = 200
"""Newest groups of a run that its players are judged by. After an alarm as many new ones come before another."""


class RunHealth(Frozen):
    """An audit of a run. It says what changed and since when; it changes no reward."""

    run: str
    groups: int
    """Groups that the figures include."""
    options: HealthOptions
    held: Hold | None
    alarms: tuple[Alarm, ...]
    """Newest first, at most a hundred."""
    findings: tuple[Finding, ...] = ()
    """Why the rewards of its newest groups are low, commonest cause first; at most three."""
    players: Annotated[PlayerUse | None, Field(exclude_if=is_absent)] = None
    """None where no model plays players."""
    figures: tuple[HealthFigure, ...]
    anchors: int
    """Frozen groups that are read again."""
    judges: tuple[JudgeVersion, ...]
    """Versions of the run's judges, oldest first."""
    spent: HealthSpending
    can_see: Annotated[tuple[str, ...], Field(description="What this audit can see.")]
    cannot_see: Annotated[tuple[str, ...], Field(description="What this audit cannot see.")]


class AlarmSink(Protocol):
    """Somebody outside who is told of alarms."""

    async def send(self, run: str, alarm: Alarm) -> bool:
        """Whether it was taken. Never raises."""


# Leniency: whether judges read the same anchors higher or lower than before.


@dataclass(frozen=True)
class AnchorReading:
    """One reading of an anchor by its judges, `values` by rollout. The first of each anchor is what others are compared
    with."""

    anchor: str
    at_group: int
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class _LeniencyState:
    """Two one-sided cumulative sums over repeated readings, with what they are scaled by."""

    up: float = 0.0
    down: float = 0.0
    count: int = 0
    squares: float = 0.0
    """Sum of halved squares of successive differences."""
    last: float = 0.0
    up_since: int = 0
    down_since: int = 0


_SUSPICION: Final = 2.0
"""From this sum on the next anchors are read at once, as far as the budget allows."""


@dataclass(frozen=True)
class Leniency:
    """The judges' level on the anchors, beside their first readings, in standard deviations of the anchors' scores."""

    state: _LeniencyState
    spread: float
    alarms: tuple[Noticed, ...]
    shifts: tuple[float, ...]
    """Of each repeated reading since the last alarm."""

    @property
    def is_suspicious(self) -> bool:
        return max(self.state.up, self.state.down) >= _SUSPICION


@dataclass
class _Earlier:
    """Readings of one anchor so far: how many, and of each rollout how many values and their sum."""

    readings: int
    counts: list[int]
    totals: list[float]

    @classmethod
    def of(cls, rollouts: int) -> Self:
        return cls(0, [0] * rollouts, [0.0] * rollouts)

    def compare(self, values: Sequence[float | None]) -> float | None:
        """The mean difference from the means of earlier readings, over rollouts that have both."""
        pairs = zip(values, self.counts, self.totals, strict=True)
        differences = [value - total / count for value, count, total in pairs if value is not None and count]
        return math.fsum(differences) / len(differences) if differences else None

    def add(self, values: Sequence[float | None]) -> None:
        self.readings += 1
        for rollout, value in enumerate(values):
            if value is not None:
                self.counts[rollout] += 1
                self.totals[rollout] += value


_LEAST_LENIENCY: Final = 0.2
"""A smaller shift over the last readings, in standard deviations, is not worth an alarm."""
_RECENT: Final = 16
"""Readings over which the present level is shown."""
_LATEST: Final = 4
"""Readings over which the shift is told."""
_LEAST_SPREAD: Final = 0.03
"""A judge that gives all anchors the same is not alarmed by its first hundredth."""
_LENIENCY_LIMIT: Final = 7.0
"""Of the cumulative sums; by simulation of quiet runs."""
_LEAST_READINGS: Final = 8
"""Repeated readings before the first alarm."""


def follow_anchors(readings: Iterable[AnchorReading]) -> Leniency:
    """All readings of one run in order. After an alarm an anchor's later readings are compared with those since."""
    ordered = list(readings)
    spread = _pool_spread(ordered)
    earlier: dict[str, _Earlier] = {}
    state, alarms, shifts = _LeniencyState(), list[Noticed](), list[float]()
    for reading in ordered:
        before = earlier.setdefault(reading.anchor, _Earlier.of(len(reading.values)))
        shift = before.compare(reading.values)
        before.add(reading.values)
        if shift is None:
            continue
        shifts.append(shift / spread)
        state = _follow_leniency(state, shift / spread, before.readings - 1, reading.at_group)
        if (
            state.count >= _LEAST_READINGS
            and max(state.up, state.down) >= _LENIENCY_LIMIT
            and abs(_compute_shift(shifts)) >= _LEAST_LENIENCY
        ):
            alarms.append(_describe_leniency(state, reading.at_group, shifts, spread))
            earlier, state, shifts = {}, _restart(state), []
    return Leniency(state, spread, tuple(alarms), tuple(shifts))


def _pool_spread(readings: Sequence[AnchorReading]) -> float:
    """The standard deviation of the scores within anchors, over the first reading of each."""
    first: dict[str, AnchorReading] = {}
    for reading in readings:
        first.setdefault(reading.anchor, reading)
    squares, freedom = 0.0, 0
    for reading in first.values():
        values = [value for value in reading.values if value is not None]
        if len(values) > 1:
            mean = math.fsum(values) / len(values)
            squares += math.fsum((value - mean) ** 2 for value in values)
            freedom += len(values) - 1
    return max(_LEAST_SPREAD, math.sqrt(squares / freedom)) if freedom else _LEAST_SPREAD


_LENIENCY_SHIFT: Final = 0.3
"""The change of a judge's level to be found, in standard deviations of the anchors' scores."""
_PRIOR_NOISE: Final = 0.15
"""Expected noise of one repeated reading, in the same unit, which counts as `_PRIOR_COUNT` readings."""
_PRIOR_COUNT: Final = 4.0
_DOUBT: Final = 6.0
"""Readings that the estimate of the noise is worth less, since it is one."""
_MOST_PER_READING: Final = 4.0
"""So that no single odd reading is an alarm."""


def _follow_leniency(state: _LeniencyState, difference: float, earlier: int, at: int) -> _LeniencyState:
    """One more anchor reading: its mean `difference` from the mean of `earlier` readings of the same anchor, in
    standard deviations of the anchors' scores. The cumulative sum of log likelihood ratios of Page (Biometrika 41,
    1954) for a shift of _LENIENCY_SHIFT, self-starting as Hawkins' (J. R. Stat. Soc. D 36, 1987); the noise is
    estimated from successive differences (von Neumann, Ann. Math. Stat. 12, 1941), which a shift hardly touches."""
    scaled = difference / math.sqrt(1 + 1 / max(1, earlier))
    variance = (_PRIOR_COUNT * _PRIOR_NOISE**2 + state.squares) / (_PRIOR_COUNT + max(0, state.count - 1))
    variance *= 1 + _DOUBT / (_PRIOR_COUNT + state.count)
    shift = _LENIENCY_SHIFT / math.sqrt(1 + 1 / max(1, earlier))
    up = max(0.0, state.up + _compute_gain(scaled, shift, variance))
    down = max(0.0, state.down + _compute_gain(-scaled, shift, variance))
    return _LeniencyState(
        up=up,
        down=down,
        count=state.count + 1,
        squares=state.squares + ((scaled - state.last) ** 2 / 2 if state.count else 0.0),
        last=scaled,
        up_since=(state.up_since if state.up > 0 else at) if up > 0 else 0,
        down_since=(state.down_since if state.down > 0 else at) if down > 0 else 0,
    )


def _compute_gain(value: float, shift: float, variance: float) -> float:
    gain = shift / variance * (value - shift / 2)
    return max(-_MOST_PER_READING, min(_MOST_PER_READING, gain))


def _restart(state: _LeniencyState) -> _LeniencyState:
    """After an alarm: the noise is still known, the sums begin again."""
    return replace(state, up=0.0, down=0.0, up_since=0, down_since=0)


def describe_anchors(leniency: Leniency, alarmed: bool) -> HealthFigure:
    """The mean shift of the latest readings, in standard deviations of the anchors' scores."""
    latest, state = leniency.shifts[-_RECENT:], leniency.state
    return HealthFigure(
        series="leniency",
        meaning=describe_series("leniency"),
        value=math.fsum(latest) / len(latest) if latest else None,
        interval=compute_mean_interval(latest),
        groups=len(latest),
        statistic=max(state.up, state.down) if leniency.shifts else None,
        limit=_LENIENCY_LIMIT,
        effect=_compute_shift(leniency.shifts) if leniency.shifts else None,
        least_effect=_LEAST_LENIENCY,
        alarmed=alarmed,
    )


def _compute_shift(shifts: Sequence[float]) -> float:
    return math.fsum(shifts[-_LATEST:]) / len(shifts[-_LATEST:])


def _describe_leniency(state: _LeniencyState, at: int, shifts: Sequence[float], spread: float) -> Noticed:
    milder = state.up >= state.down
    shift = _compute_shift(shifts)
    return Noticed(
        series="leniency",
        since_group=state.up_since if milder else state.down_since,
        noticed_group=at,
        effect=shift,
        statistic=max(state.up, state.down),
        limit=_LENIENCY_LIMIT,
        evidence=f"judges score the same replies {'higher' if milder else 'lower'} by {abs(shift):.2f} standard "
        f"deviations ({shift * spread:+.3f}) over the last {len(shifts[-_LATEST:])} readings",
    )
