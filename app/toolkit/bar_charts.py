"""Histograms, and the rewards of a group as bars. `app.toolkit.charts` has everything else about charts."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.toolkit.display import format_number, scale_heat


@dataclass(frozen=True)
class HistogramColumn:
    x: int
    y: float
    height: float
    heat: int
    label: str
    count: int


@dataclass(frozen=True)
class HistogramChart:
    width: int
    height: int
    column: int
    each: tuple[HistogramColumn, ...]


_TALL, _COLUMN = 120, 26


def build_histogram(histogram: Sequence[int]) -> HistogramChart:
    """The columns of a histogram: one per tenth, and one for exactly 1."""
    most = max((*histogram, 1))
    found = []
    for place, count in enumerate(histogram):
        height = round(_TALL * count / most, 1)
        label = "1" if place == 10 else f"{place / 10:.1f}"
        x = place * (_COLUMN + 5)
        found.append(HistogramColumn(x, round(_TALL - height, 1), height, place, label, count))
    return HistogramChart(len(found) * (_COLUMN + 5), _TALL, _COLUMN, tuple(found))


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
