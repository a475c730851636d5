"""Histograms, and the rewards of a group as bars. `app.toolkit.charts` has everything else about charts."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.toolkit.display import format_number, scale_heat


@dataclass(frozen=True)
class HistogramColumn:
    """`label` names the bin below it, `told` says it in words."""

    x: int
    y: float
    height: float
    heat: int
    label: str
    count: int
    told: str


@dataclass(frozen=True)
class HistogramChart:
    width: int
    height: int
    column: int
    each: tuple[HistogramColumn, ...]


@dataclass(frozen=True)
class HistogramBin:
    label: str
    told: str
    heat: int


_TALL, _COLUMN, _BETWEEN = 120, 42, 6
_REWARD_BINS: Final = (
    *(
        HistogramBin(f"{n / 10:.1f}–{(n + 1) / 10:.1f}", f"from {n / 10:.1f} to below {(n + 1) / 10:.1f}", n)
        for n in range(10)
    ),
    HistogramBin("1", "exactly 1", 10),
)
_DIFFERENCE_ENDS: Final = (-0.5, -0.2, -0.05, 0.05, 0.2, 0.5)
_DIFFERENCE_BINS: Final = (
    HistogramBin("≤ −.5", "worse by half a point or more", 0),
    HistogramBin("−.5 to −.2", "worse by .2 to .5", 2),
    HistogramBin("−.2 to −.05", "worse by .05 to .2", 4),
    HistogramBin("± .05", "alike, within .05", 5),
    HistogramBin(".05 to .2", "better by .05 to .2", 6),
    HistogramBin(".2 to .5", "better by .2 to .5", 8),
    HistogramBin("≥ .5", "better by half a point or more", 10),
)


def build_reward_histogram(counts: Sequence[int]) -> HistogramChart:
    """Counts by tenths of the reward, and one for exactly 1."""
    return _build_histogram(_REWARD_BINS, counts, _COLUMN)


def build_difference_histogram(differences: Sequence[float]) -> HistogramChart:
    """Differences of rewards, from -1 to 1, in bins that are narrower around 0."""
    counts = [0] * len(_DIFFERENCE_BINS)
    for difference in differences:
        counts[bisect_right(_DIFFERENCE_ENDS, difference)] += 1
    return _build_histogram(_DIFFERENCE_BINS, counts, 68)


def _build_histogram(bins: Sequence[HistogramBin], counts: Sequence[int], column: int) -> HistogramChart:
    most, total = max((*counts, 1)), max(1, sum(counts))
    found = []
    for place, (of, count) in enumerate(zip(bins, counts, strict=True)):
        height = round(_TALL * count / most, 1)
        told = f"{of.told}: {count:,} of {total:,} ({100 * count / total:.0f} %)"
        x = place * (column + _BETWEEN)
        found.append(HistogramColumn(x, round(_TALL - height, 1), height, of.heat, of.label, count, told))
    return HistogramChart(len(found) * (column + _BETWEEN), _TALL, column, tuple(found))


MAX_BARS = 64
_BAR_WIDTH, _GAP, _HEIGHT = 7, 2, 26


@dataclass(frozen=True)
class Bar:
    """A bar in SVG units. `heat` is None without a reward: the bar is a hollow stub."""

    x: int
    y: float
    height: float
    heat: int | None
    label: str


@dataclass(frozen=True)
class BarChart:
    width: int
    height: int
    bar_width: int
    bars: tuple[Bar, ...]
    left_out: int


def build_bar_chart(rewards: Sequence[float | None]) -> BarChart:
    """The rewards of a group, in its order."""
    shown = rewards[:MAX_BARS]
    bars = tuple(_build_bar(place, reward) for place, reward in enumerate(shown))
    width = max(1, len(bars) * (_BAR_WIDTH + _GAP) - _GAP)
    return BarChart(width, _HEIGHT, _BAR_WIDTH, bars, len(rewards) - len(shown))


def _build_bar(place: int, reward: float | None) -> Bar:
    height = 7.0 if reward is None else round(max(1.5, min(1.0, reward) * _HEIGHT), 2)
    label = "no score" if reward is None else format_number(reward)
    return Bar(
        x=place * (_BAR_WIDTH + _GAP),
        y=round(_HEIGHT - height, 2),
        height=height,
        heat=None if reward is None else scale_heat(reward),
        label=label,
    )
