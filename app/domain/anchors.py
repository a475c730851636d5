"""Anchors: groups of a run that its judges read again. What changes between readings of the same texts is the judge."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from app.domain.intervals import compute_mean_interval
from app.domain.run_health import HealthFigure, Noticed

LEAST_LENIENCY: Final = 0.2
"""A smaller shift over the last readings, in standard deviations, is not worth an alarm."""
RECENT: Final = 16
"""Readings over which the present level is shown."""
LATEST: Final = 4
"""Readings over which the shift is told."""
LEAST_SPREAD: Final = 0.03
"""A judge that gives all anchors the same is not alarmed by its first hundredth."""


@dataclass(frozen=True)
class AnchorReading:
    """One reading of an anchor by its judges, `values` by rollout. The first of each anchor is what others are compared
    with."""

    anchor: str
    at_group: int
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class LeniencyState:
    """Two one-sided cumulative sums over repeated readings, with what they are scaled by."""

    up: float = 0.0
    down: float = 0.0
    count: int = 0
    squares: float = 0.0
    """Sum of halved squares of successive differences."""
    last: float = 0.0
    up_since: int = 0
    down_since: int = 0


LENIENCY_SHIFT: Final = 0.3
"""The change of a judge's level to be found, in standard deviations of the anchors' scores."""
LENIENCY_LIMIT: Final = 7.0
"""Of the cumulative sums; by simulation of quiet runs."""
_PRIOR_NOISE: Final = 0.15
"""Expected noise of one repeated reading, in the same unit, which counts as `_PRIOR_COUNT` readings."""
_PRIOR_COUNT: Final = 4.0
SUSPICION: Final = 2.0
"""From this sum on the next anchors are read at once, as far as the budget allows."""
_DOUBT: Final = 6.0
"""Readings that the estimate of the noise is worth less, since it is one."""
LEAST_READINGS: Final = 8
"""Repeated readings before the first alarm."""
_MOST_PER_READING: Final = 4.0
"""So that no single odd reading is an alarm."""


def follow_leniency(state: LeniencyState, difference: float, earlier: int, at: int) -> LeniencyState:
    """One more anchor reading: its mean `difference` from the mean of `earlier` readings of the same anchor, in
    standard deviations of the anchors' scores. The cumulative sum of log likelihood ratios of Page (Biometrika 41,
    1954) for a shift of LENIENCY_SHIFT, self-starting as Hawkins' (J. R. Stat. Soc. D 36, 1987); the noise is estimated
    from successive differences (von Neumann, Ann. Math. Stat. 12, 1941), which a shift hardly touches."""
    scaled = difference / math.sqrt(1 + 1 / max(1, earlier))
    variance = (_PRIOR_COUNT * _PRIOR_NOISE**2 + state.squares) / (_PRIOR_COUNT + max(0, state.count - 1))
    variance *= 1 + _DOUBT / (_PRIOR_COUNT + state.count)
    shift = LENIENCY_SHIFT / math.sqrt(1 + 1 / max(1, earlier))
    up = max(0.0, state.up + _compute_gain(scaled, shift, variance))
    down = max(0.0, state.down + _compute_gain(-scaled, shift, variance))
    return LeniencyState(
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


def restart(state: LeniencyState) -> LeniencyState:
    """After an alarm: the noise is still known, the sums begin again."""
    return replace(state, up=0.0, down=0.0, up_since=0, down_since=0)


@dataclass(frozen=True)
class Leniency:
    """The judges' level on the anchors, beside their first readings, in standard deviations of the anchors' scores."""

    state: LeniencyState
    spread: float
    alarms: tuple[Noticed, ...]
    shifts: tuple[float, ...]
    """Of each repeated reading since the last alarm."""

    @property
    def is_suspicious(self) -> bool:
        return max(self.state.up, self.state.down) >= SUSPICION


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
        known = zip(values, self.counts, self.totals, strict=True)
        differences = [value - total / count for value, count, total in known if value is not None and count]
        return math.fsum(differences) / len(differences) if differences else None

    def add(self, values: Sequence[float | None]) -> None:
        self.readings += 1
        for place, value in enumerate(values):
            if value is not None:
                self.counts[place] += 1
                self.totals[place] += value


def follow_anchors(readings: Iterable[AnchorReading]) -> Leniency:
    """All readings of one run in order. After an alarm an anchor's later readings are compared with those since."""
    ordered = list(readings)
    spread = _pool_spread(ordered)
    earlier: dict[str, _Earlier] = {}
    state, alarms, shifts = LeniencyState(), list[Noticed](), list[float]()
    for reading in ordered:
        before = earlier.setdefault(reading.anchor, _Earlier.of(len(reading.values)))
        shift = before.compare(reading.values)
        before.add(reading.values)
        if shift is None:
            continue
        shifts.append(shift / spread)
        state = follow_leniency(state, shift / spread, before.readings - 1, reading.at_group)
        if (
            state.count >= LEAST_READINGS
            and max(state.up, state.down) >= LENIENCY_LIMIT
            and abs(_compute_shift(shifts)) >= LEAST_LENIENCY
        ):
            alarms.append(_describe_leniency(state, reading.at_group, shifts, spread))
            earlier, state, shifts = {}, restart(state), []
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
    return max(LEAST_SPREAD, math.sqrt(squares / freedom)) if freedom else LEAST_SPREAD


def describe_anchors(leniency: Leniency, alarmed: bool) -> HealthFigure:
    """The mean shift of the latest readings, in standard deviations of the anchors' scores."""
    latest, state = leniency.shifts[-RECENT:], leniency.state
    return HealthFigure(
        series="leniency",
        meaning="anchors read again minus before, in standard deviations of their scores",
        value=math.fsum(latest) / len(latest) if latest else None,
        interval=compute_mean_interval(latest),
        groups=len(latest),
        statistic=max(state.up, state.down) if leniency.shifts else None,
        limit=LENIENCY_LIMIT,
        effect=_compute_shift(leniency.shifts) if leniency.shifts else None,
        least_effect=LEAST_LENIENCY,
        alarmed=alarmed,
    )


def _compute_shift(shifts: Sequence[float]) -> float:
    return math.fsum(shifts[-LATEST:]) / len(shifts[-LATEST:])


def _describe_leniency(state: LeniencyState, at: int, shifts: Sequence[float], spread: float) -> Noticed:
    milder = state.up >= state.down
    shift = _compute_shift(shifts)
    return Noticed(
        series="leniency",
        since_group=state.up_since if milder else state.down_since,
        noticed_group=at,
        effect=shift,
        statistic=max(state.up, state.down),
        limit=LENIENCY_LIMIT,
        evidence=f"the judges read the same anchors {'higher' if milder else 'lower'} by {abs(shift):.2f} standard "
        f"deviations ({shift * spread:+.3f}) over the last {len(shifts[-LATEST:])} readings",
    )
