"""Coordinates of a report's charts, in SVG units."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from app.evaluation.report import PassAt
from app.evaluation.resampling import MeanEstimate
from app.toolkit.display import format_number, format_signed, scale_heat

_TALL: Final = 120
_WIDE: Final = 340
_LEFT: Final = 34
_COLUMN: Final = 26


@dataclass(frozen=True)
class Scale:
    """A linear scale from `low` to `high` over `width` units."""

    low: float
    high: float
    width: int = 240

    def at(self, value: float) -> float:
        """The position of a value, clamped to the scale."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.width * min(1.0, max(0.0, share)), 1)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """The quarters of the scale with their labels."""
        digits = 2 if self.high >= 0.1 else 3
        values = [self.low + quarter * (self.high - self.low) / 4 for quarter in range(5)]
        return tuple((self.at(value), f"{value:.{digits}f}".replace("-", "−")) for value in values)


UNIT: Final = Scale(0.0, 1.0)


def fit_around_zero(estimates: Iterable[MeanEstimate]) -> Scale:
    """A symmetric scale that fits the widest interval, rounded up to few digits."""
    ends = [abs(end) for each in estimates for end in (each.low, each.high) if end is not None]
    widest = max(ends, default=1.0) or 1.0
    decimal = 10.0 ** math.floor(math.log10(widest))
    reach = next((step * decimal for step in (1, 2, 3, 4, 6, 8) if step * decimal >= widest), 10 * decimal)
    return Scale(-min(1.0, reach), min(1.0, reach))


@dataclass(frozen=True)
class Whisker:
    """An interval with its mean. `heat` is None for differences, which have a sign instead."""

    low: float
    at: float
    high: float
    heat: int | None
    label: str


def build_whisker(estimate: MeanEstimate, scale: Scale) -> Whisker | None:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    said = format_number if scale.low >= 0 else partial(format_signed, digits=3)
    return Whisker(
        low=scale.at(estimate.low),
        at=scale.at(estimate.value),
        high=scale.at(estimate.high),
        heat=scale_heat(estimate.value) if scale.low >= 0 else None,
        label=f"{said(estimate.value)}, 95 % between {said(estimate.low)} and {said(estimate.high)}",
    )


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


@dataclass(frozen=True)
class CurveDot:
    x: float
    y: float
    low: float
    high: float
    k: int
    label: str


@dataclass(frozen=True)
class PassAtCurve:
    """`line` and `band` are lists of points as SVG writes them."""

    width: int
    height: int
    left: int
    dots: tuple[CurveDot, ...]
    line: str
    band: str
    ticks: tuple[tuple[float, str], ...]


def draw_pass_at_curve(passes: Sequence[PassAt]) -> PassAtCurve | None:
    """pass@k over k on a logarithmic scale; None for a single k."""
    measured = [(each.k, build_whisker(each.rate, Scale(1.0, 0.0, _TALL))) for each in passes]
    known = [(k, found) for k, found in measured if found is not None]
    if len(known) < 2:
        return None
    along = Scale(0.0, math.log2(known[-1][0]), _WIDE - 2 * _LEFT)
    dots = tuple(
        CurveDot(_LEFT + along.at(math.log2(k)), found.at, found.low, found.high, k, f"pass@{k}: {found.label}")
        for k, found in known
    )
    return PassAtCurve(
        width=_WIDE,
        height=_TALL,
        left=_LEFT,
        dots=dots,
        line=_format_points((dot.x, dot.y) for dot in dots),
        band=_format_points([*((dot.x, dot.high) for dot in dots), *((dot.x, dot.low) for dot in reversed(dots))]),
        ticks=tuple((round(_TALL * (1 - share), 1), f"{share:.2f}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
    )


def _format_points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
