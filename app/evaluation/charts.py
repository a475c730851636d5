"""Charts of a report: estimates with their intervals, and pass@k. What draws them is `app.toolkit.charts`."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from app.evaluation.report import PassAt
from app.evaluation.resampling import MeanEstimate
from app.toolkit.charts import ChartForm, Curve, CurveChart, CurvePoint, Scale, draw_curves
from app.toolkit.display import format_number, format_signed, scale_heat


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


def draw_pass_at_curve(passes: Sequence[PassAt]) -> CurveChart | None:
    """pass@k over k on a logarithmic scale; None for a single k."""
    known = [(each.k, each.rate) for each in passes if each.rate.value is not None]
    if len(known) < 2:
        return None
    points = [CurvePoint(math.log2(k), rate.value, rate.low, rate.high) for k, rate in known]
    form = ChartForm(
        floor=0.0,
        ceiling=1.0,
        from_floor=True,
        along="log2 k =",
        format_value=partial(format_number, digits=2),
        x_ticks=[(math.log2(k), str(k)) for k, _ in known],
    )
    return draw_curves([Curve("pass@k", points)], form)
