"""Charts as coordinates in SVG units, for the templates in `chart_templates`: one set for the viewer and for reports.

They need no script and no inline style: classes take their colours from the palette, and `charts.css` has the rest.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.domain.values import Estimated
from app.toolkit.texts import (
    finalize,
    format_number,
    format_p_value,
    format_percent,
    format_signed,
    format_time,
    scale_heat,
)

_TEMPLATES: Final = Path(__file__).with_name("chart_templates")
CHART_STYLE: Final = Path(__file__).with_name("charts.css").read_text(encoding="utf-8")
TONES: Final = 8
"""How many curves of one chart can be told apart, by colour and by dashes."""

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """A linear scale from `low` to `high` over `width` units."""

    low: float
    high: float
    width: int = 240

    def at(self, value: float) -> float:
        """The position of a value, clamped to the scale."""
        return round(self.width * self.place(value), 1)

    def place(self, value: float) -> float:
        """From 0 to 1, clamped to the scale."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Round values with their labels, of two decimals or as many as they have."""
        step = find_round_step(self.high - self.low)
        digits = next((some for some in range(2, 9) if math.isclose(round(step, some), step)), 9)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [number * step for number in range(first, last + 1)]
        return tuple((self.at(value), f"{value:.{digits}f}".replace("-", "−")) for value in values)


UNIT: Final = Scale(0.0, 1.0)


def find_round_step(span: float, most: int = 4) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that divides `span` into at most `most` parts."""
    if not span > 0:
        return 1.0
    decimal: float = 10.0 ** math.floor(math.log10(span / most))
    return next((step * decimal for step in _STEPS if step * decimal * most >= span * (1 - 1e-9)), 10 * decimal)


@dataclass(frozen=True)
class CurvePoint:
    """`value` is null where nothing was measured: the curve is broken there. `low` and `high` bound its band."""

    x: float
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[CurvePoint]
    tone: int = 0


@dataclass(frozen=True)
class ChartMark:
    """A line at `x`, or a stretch up to `until`. `sign` stands at its head, since colours alone do not tell."""

    x: float
    label: str
    sign: str = ""
    kind: Literal["change", "alarm"] = "change"
    until: float | None = None


@dataclass(frozen=True)
class DrawnCurve:
    """`lines` and `bands` are lists of points as SVG writes them, one for each unbroken piece."""

    name: str
    tone: int
    lines: tuple[str, ...]
    bands: tuple[str, ...]
    dots: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class DrawnMark:
    x: float
    width: float
    kind: str
    sign: str
    label: str


@dataclass(frozen=True)
class HoverColumn:
    """What is told where somebody points: the values of all curves there."""

    x: float
    width: float
    label: str


@dataclass(frozen=True)
class CurveChart:
    """The plot lies between `left` and `right`, `top` and `bottom`."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    curves: tuple[DrawnCurve, ...]
    marks: tuple[DrawnMark, ...]
    hovers: tuple[HoverColumn, ...]
    summary: str
    """For those who do not see it."""
    is_zero: bool
    """Whether every value is 0."""


@dataclass(frozen=True)
class ChartForm:
    """How a chart is drawn. `floor` and `ceiling` are values beyond which the vertical scale never goes; it begins at
    `floor` where `from_floor` says so."""

    floor: float = -math.inf
    ceiling: float = math.inf
    from_floor: bool = False
    least_span: float = 0.0
    """The vertical scale reaches over at least so much: what never moves is no landscape of noise."""
    width: int = 380
    height: int = 190
    along: str = "step"
    """What the horizontal scale counts."""
    format_value: Callable[[float], str] = format_number
    x_ticks: Sequence[tuple[float, str]] | None = None
    dots_up_to: int = 40
    """A curve of more points is a line alone."""


_LEFT, _TOP, _BELOW, _RIGHT = 44, 16, 22, 10


def draw_curves(curves: Sequence[Curve], form: ChartForm, marks: Sequence[ChartMark] = ()) -> CurveChart | None:
    """None where no curve has a value."""
    measured = [point for curve in curves for point in curve.points if point.value is not None]
    if not measured:
        return None
    plot = _Plot.fit(measured, [point.x for curve in curves for point in curve.points], form)
    drawn = tuple(_draw_curve(curve, plot, form) for curve in curves)
    return CurveChart(
        width=form.width,
        height=form.height,
        left=_LEFT,
        right=form.width - _RIGHT,
        top=_TOP,
        bottom=form.height - _BELOW,
        x_ticks=tuple((plot.place_x(x), label) for x, label in form.x_ticks or plot.list_x_ticks()),
        y_ticks=tuple((plot.place_y(y), form.format_value(y)) for y in plot.list_y_ticks()),
        curves=drawn,
        marks=tuple(plot.draw_mark(mark) for mark in marks),
        hovers=tuple(_list_hovers(curves, plot, form)),
        summary="; ".join(_summarise(curve, form) for curve in curves),
        is_zero=not any(point.value for point in measured),
    )


@dataclass(frozen=True)
class _Plot:
    across: Scale
    up: Scale
    step: float

    @classmethod
    def fit(cls, points: Sequence[CurvePoint], positions: Sequence[float], form: ChartForm) -> "_Plot":
        ends = [end for point in points for end in (point.value, point.low, point.high) if end is not None]
        # Bands end at the bounds. Values beyond them, such as others' rewards, are shown all the same.
        values = [point.value for point in points if point.value is not None]
        floor, ceiling = min(form.floor, *values), max(form.ceiling, *values)
        low, high = max(min(ends), floor), min(max(ends), ceiling)
        if form.from_floor:
            low = floor
        if high - low < max(1e-9, form.least_span):
            pad = form.least_span - (high - low) or abs(high) * 0.1 or 0.1
            low, high = max(floor, low - (0.0 if form.from_floor else pad / 2)), min(ceiling, high + pad)
        step = find_round_step(high - low)
        up = Scale(
            math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, form.height - _BELOW - _TOP
        )
        first, last = min(positions), max(positions)
        pad = 0.5 if first == last else 0.0
        return cls(Scale(first - pad, last + pad, form.width - _LEFT - _RIGHT), up, step)

    def place_x(self, x: float) -> float:
        return round(_LEFT + self.across.at(x), 1)

    def place_y(self, y: float) -> float:
        return round(_TOP + self.up.width - self.up.at(y), 1)

    def list_y_ticks(self) -> Iterator[float]:
        for number in range(round((self.up.high - self.up.low) / self.step) + 1):
            yield self.up.low + number * self.step

    def list_x_ticks(self) -> Iterator[tuple[float, str]]:
        """Whole numbers alone."""
        step = max(1.0, find_round_step(self.across.high - self.across.low, 5))
        step = step if step.is_integer() else 2 * step
        value = math.ceil(self.across.low / step) * step
        while value <= self.across.high:
            yield value, f"{value:,.0f}"
            value += step

    def draw_mark(self, mark: ChartMark) -> DrawnMark:
        x = self.place_x(mark.x)
        width = 0.0 if mark.until is None else round(max(2.0, self.place_x(mark.until) - x), 1)
        return DrawnMark(x, width, mark.kind, mark.sign, mark.label)


def _draw_curve(curve: Curve, plot: _Plot, form: ChartForm) -> DrawnCurve:
    pieces = list(_split_at_gaps(curve.points))
    lines = tuple(
        format_points((plot.place_x(x), plot.place_y(y)) for x, y, _, _ in piece) for piece in pieces if len(piece) > 1
    )
    bands = tuple(
        format_points(
            [
                *((plot.place_x(x), plot.place_y(high)) for x, _, _, high in piece),
                *((plot.place_x(x), plot.place_y(low)) for x, _, low, _ in reversed(piece)),
            ]
        )
        for piece in pieces
        if len(piece) > 1 and any(low < high for _, _, low, high in piece)
    )
    dotted = len(curve.points) <= form.dots_up_to
    dots = tuple(
        (plot.place_x(x), plot.place_y(y)) for piece in pieces if dotted or len(piece) == 1 for x, y, _, _ in piece
    )
    return DrawnCurve(curve.name, curve.tone, lines, bands, dots)


def _split_at_gaps(points: Sequence[CurvePoint]) -> Iterator[list[tuple[float, float, float, float]]]:
    piece: list[tuple[float, float, float, float]] = []
    for point in points:
        if point.value is None:
            if piece:
                yield piece
            piece = []
        else:
            low = point.value if point.low is None else point.low
            piece.append((point.x, point.value, low, point.value if point.high is None else point.high))
    if piece:
        yield piece


def _list_hovers(curves: Sequence[Curve], plot: _Plot, form: ChartForm) -> Iterator[HoverColumn]:
    lines: dict[float, list[str]] = {}
    for curve in curves:
        for point in curve.points:
            if point.value is not None:
                lines.setdefault(point.x, []).append(_describe(curve.name if len(curves) > 1 else "", point, form))
    positions = sorted(lines)
    for number, x in enumerate(positions):
        at = plot.place_x(x)
        before = plot.place_x(positions[number - 1]) if number else at - 8.0
        after = plot.place_x(positions[number + 1]) if number + 1 < len(positions) else at + 8.0
        begin, end = (before + at) / 2, (at + after) / 2
        yield HoverColumn(round(begin, 1), round(end - begin, 1), "\n".join([f"{form.along} {x:,.6g}", *lines[x]]))


def _describe(name: str, point: CurvePoint, form: ChartForm) -> str:
    write = form.format_value
    band = "" if point.low is None or point.high is None else f" ({write(point.low)} to {write(point.high)})"
    return f"{name + ': ' if name else ''}{write(point.value or 0.0)}{band}"


def _summarise(curve: Curve, form: ChartForm) -> str:
    measured = [(point.x, point.value) for point in curve.points if point.value is not None]
    if not measured:
        return f"{curve.name}: no value"
    (first, begin), (last, end) = measured[0], measured[-1]
    return f"{curve.name}: from {form.format_value(begin)} at {first:,.6g} to {form.format_value(end)} at {last:,.6g}"


def format_points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


# Histograms, and the rewards of a group as bars


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
    columns = []
    for number, (of, count) in enumerate(zip(bins, counts, strict=True)):
        height = round(_TALL * count / most, 1)
        told = f"{of.told}: {count:,} of {total:,} ({100 * count / total:.0f} %)"
        x = number * (column + _BETWEEN)
        columns.append(HistogramColumn(x, round(_TALL - height, 1), height, of.heat, of.label, count, told))
    return HistogramChart(len(columns) * (column + _BETWEEN), _TALL, column, tuple(columns))


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
    scale = fit_rewards(shown)
    bars = tuple(_build_bar(number, reward, scale) for number, reward in enumerate(shown))
    width = max(1, len(bars) * (_BAR_WIDTH + _GAP) - _GAP)
    return BarChart(width, _HEIGHT, _BAR_WIDTH, bars, len(rewards) - len(shown))


def fit_rewards(rewards: Iterable[float | None]) -> Scale:
    """From 0 to 1, and further where others' rewards lie beyond."""
    known = [reward for reward in rewards if reward is not None]
    return Scale(min([0.0, *known]), max([1.0, *known]), _HEIGHT)


def _build_bar(number: int, reward: float | None, scale: Scale) -> Bar:
    height = 7.0 if reward is None else max(1.5, scale.place(reward) * _HEIGHT)
    label = "no score" if reward is None else format_number(reward)
    return Bar(
        x=number * (_BAR_WIDTH + _GAP),
        y=round(_HEIGHT - height, 2),
        height=round(height, 2),
        heat=None if reward is None else scale_heat(scale.place(reward)),
        label=label,
    )


# Intervals with their means, drawn on one scale


def fit_around_zero(estimates: Iterable[Estimated]) -> Scale:
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


def build_whisker(estimate: Estimated, scale: Scale) -> Whisker | None:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    write = format_number if scale.low >= 0 else partial(format_signed, digits=3)
    return Whisker(
        low=scale.at(estimate.low),
        at=scale.at(estimate.value),
        high=scale.at(estimate.high),
        heat=scale_heat(estimate.value) if scale.low >= 0 else None,
        label=f"{write(estimate.value)}, 95 % between {write(estimate.low)} and {write(estimate.high)}",
    )


# Pages that hold charts


def open_page_templates(folders: Sequence[Path]) -> Environment:
    """Templates of these folders, the first that has one, with the charts' beside them and how pages write figures."""
    templates = Environment(
        loader=FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    templates.filters.update(
        heat=scale_heat,
        moment=format_time,
        number=format_number,
        p_value=format_p_value,
        percent=format_percent,
        signed=format_signed,
        whisker=build_whisker,
    )
    return templates
