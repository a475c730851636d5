"""Curves over policy steps, from the rollups of runs: nothing here reads groups."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Final, Literal

from app.domain.intervals import Z_95, Proportion
from app.domain.rollups import MeasureMap, Rollup, merge_measures
from app.domain.run_health import SeriesName
from app.toolkit.charts import TONES, ChartForm, ChartMark, Curve, CurveChart, CurvePoint, draw_curves
from app.toolkit.display import escape_invisible, format_number

MOST_POINTS: Final = 100
"""Steps of a longer run are taken together, so that a curve has at most so many points."""
MOST_CRITERIA: Final = 12
_COUNTED: Final = "criterion of all:"
"""No measure begins so: those of criteria have their place before the name."""


def format_share(value: float) -> str:
    return f"{100 * value:.3g} %"


def format_count(value: float) -> str:
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def format_dollars(value: float) -> str:
    return f"${value:.3g}"


_UNIT_FORM: Final = ChartForm(floor=0.0, ceiling=1.0, least_span=0.1, format_value=partial(format_number, digits=2))
_FREE_FORM: Final = ChartForm(least_span=0.1, format_value=partial(format_number, digits=2))
_SHARE_FORM: Final = ChartForm(floor=0.0, ceiling=1.0, from_floor=True, least_span=0.01, format_value=format_share)
_COUNT_FORM: Final = ChartForm(floor=0.0, from_floor=True, least_span=1.0, format_value=format_count)
_DOLLAR_FORM: Final = ChartForm(floor=0.0, from_floor=True, format_value=format_dollars)


@dataclass(frozen=True)
class CurveRule:
    """`kind` says how a value comes of a rollup: the mean of `measure`, or the share of `of` that it counts."""

    name: str
    title: str
    kind: Literal["mean", "share"]
    measure: str
    of: str = "scored"
    form: ChartForm = _UNIT_FORM
    alarms: tuple[SeriesName, ...] = ()
    """Alarms of run health that are drawn into it."""
    folded: bool = False
    is_criterion: bool = False


RULES: Final = (
    CurveRule("calibrated", "Calibrated", "mean", "calibrated", form=_FREE_FORM, alarms=("leniency",)),
    CurveRule("reward", "Reward", "mean", "reward", alarms=("flagged", "shadow_distance")),
    CurveRule("absolute", "Gate × absolute", "mean", "absolute", alarms=("absolute",)),
    CurveRule("unscored", "Without a score", "share", "unscored", "rollouts", _SHARE_FORM),
    CurveRule("gated", "Gated: reward 0", "share", "gated", form=_SHARE_FORM, alarms=("gated",)),
    CurveRule("low_signal", "Groups of low signal", "share", "low_signal", "groups", _SHARE_FORM, ("low_signal",)),
    CurveRule("length", "Length in characters", "mean", "length", form=_COUNT_FORM, alarms=("length",)),
    CurveRule("lag", "Lag in steps", "mean", "lag", form=_COUNT_FORM),
    CurveRule("judge_usd", "Judging cost of a group", "mean", "judge_usd", form=_DOLLAR_FORM),
    CurveRule("judge_calls", "Judge calls of a group", "mean", "judge_calls", form=_COUNT_FORM),
    CurveRule("readings", "Readings of a group", "mean", "readings", "", _COUNT_FORM, ("escalated",), folded=True),
    CurveRule("spread", "Standard deviation within a group", "mean", "spread", folded=True),
    CurveRule("capped", "Capped by a defect", "share", "capped", "scored", _SHARE_FORM, ("capped",), folded=True),
    CurveRule("saturated", "Rewards above .95", "share", "saturated", "scored", _SHARE_FORM, ("saturated",), True),
    CurveRule(
        "duplicates", "Repeats within a group", "share", "duplicates", "rollouts", _SHARE_FORM, ("duplicates",), True
    ),
    CurveRule("gap", "Absolute minus calibrated", "mean", "calibration_gap", "", _FREE_FORM, ("calibration",), True),
    CurveRule("tokens", "Tokens of a completion", "mean", "tokens", form=_COUNT_FORM, folded=True),
)


@dataclass(frozen=True)
class SeriesSource:
    """The rollups of one curve, whose name is not escaped."""

    name: str
    rollups: Sequence[Rollup]


@dataclass(frozen=True)
class StepPoint:
    """`count` is what `value` is the mean of; `last` is the last step that it includes."""

    step: int
    last: int
    value: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class StepCurve:
    name: str
    points: tuple[StepPoint, ...]


@dataclass(frozen=True)
class MeasuredCurves:
    """One measure over the steps, for every series, as data."""

    name: str
    title: str
    curves: tuple[StepCurve, ...]


@dataclass(frozen=True)
class ChartView:
    measured: MeasuredCurves
    chart: CurveChart
    wide: CurveChart | None
    folded: bool
    is_criterion: bool


Steps = Sequence[tuple[int, int, Rollup]]
"""First and last step, and what both and all between them add up to."""


def measure_curves(
    sources: Sequence[SeriesSource], rules: Sequence[CurveRule] = RULES
) -> Iterator[tuple[CurveRule, MeasuredCurves]]:
    """Those that have a value; criteria come after the first three."""
    binned = [(source.name, list(_bin_steps(source.rollups))) for source in sources]
    for rule in (*rules[:3], *_list_criterion_rules([steps for _, steps in binned]), *rules[3:]):
        curves = tuple(StepCurve(name, tuple(_measure(rule, steps))) for name, steps in binned)
        values = [point.value for curve in curves for point in curve.points]
        if any(values) if rule.folded else values:
            yield rule, MeasuredCurves(rule.name, rule.title, curves)


def draw(
    rule: CurveRule, measured: MeasuredCurves, marks: Sequence[ChartMark], *, alone: bool = False
) -> ChartView | None:
    """`alone` draws it once more, for a window that has the room."""
    curves = [
        Curve(
            escape_invisible(curve.name),
            [CurvePoint(point.step, point.value, point.low, point.high) for point in curve.points],
            tone % TONES,
        )
        for tone, curve in enumerate(measured.curves)
    ]
    chart = draw_curves(curves, rule.form, marks)
    wide = draw_curves(curves, replace(rule.form, width=980, height=400), marks) if alone else None
    return None if chart is None else ChartView(measured, chart, wide, rule.folded, rule.is_criterion)


def _bin_steps(rollups: Sequence[Rollup]) -> Iterator[tuple[int, int, Rollup]]:
    """Of what has a policy step. Criteria stand under their bare names."""
    merged: defaultdict[int, list[MeasureMap]] = defaultdict(list)
    for rollup in rollups:
        if rollup.key.step is not None:
            merged[rollup.key.step].append(rollup.measures | _name_criteria(rollup))
    steps = sorted(merged)
    width = max(1, -(-len(steps) // MOST_POINTS))
    for first in range(0, len(steps), width):
        some = steps[first : first + width]
        measures = merge_measures([each for step in some for each in merged[step]])
        yield some[0], some[-1], Rollup(rollups[0].key, measures)


def _name_criteria(rollup: Rollup) -> MeasureMap:
    return {_COUNTED + name: value for name, value in rollup.add_up_criteria().measures.items()}


def _list_criterion_rules(binned: Sequence[Steps]) -> Iterator[CurveRule]:
    """The criteria with the most values, in the order in which they are first met."""
    counts: Counter[str] = Counter()
    for _, _, rollup in chain.from_iterable(binned):
        counts.update({name: rollup.count(name) for name in rollup.measures if name.startswith(_COUNTED)})
    kept = {name for name, _ in counts.most_common(MOST_CRITERIA)}
    for name in counts:
        if name in kept:
            bare = escape_invisible(name.removeprefix(_COUNTED)).replace("_", " ")
            yield CurveRule(f"criterion:{name.removeprefix(_COUNTED)}", bare, "mean", name, is_criterion=True)


def _measure(rule: CurveRule, steps: Steps) -> Iterator[StepPoint]:
    return _measure_shares(rule, steps) if rule.kind == "share" else _measure_means(rule, steps)


def _measure_shares(rule: CurveRule, steps: Steps) -> Iterator[StepPoint]:
    """With Wilson's interval of 95 %. A measure that is nowhere above 0 is a curve all the same, of zeros."""
    for first, last, rollup in steps:
        share = Proportion(rollup.count(rule.measure), rollup.count(rule.of))
        if share.value is not None and share.interval is not None:
            low, high = share.interval
            yield StepPoint(first, last, share.value, min(low, share.value), max(high, share.value), share.trials)


def _measure_means(rule: CurveRule, steps: Steps) -> Iterator[StepPoint]:
    known = [
        (first, last, value, rollup.count(rule.measure))
        for first, last, rollup in steps
        if (value := rollup.mean(rule.measure)) is not None and rollup.count(rule.measure) > 0
    ]
    noise = estimate_noise([(value, count) for _, _, value, count in known])
    for first, last, value, count in known:
        reach = Z_95 * noise / math.sqrt(count)
        yield StepPoint(first, last, value, value - reach, value + reach, count)


def estimate_noise(values: Sequence[tuple[float, int]]) -> float:
    """The standard deviation of a single value, by how far neighbouring means differ: what changes slowly is no noise,
    and values of one step that are alike count for as much as they are worth (von Neumann et al., 1941). Rollups keep
    no squares. 0 below three means."""
    if len(values) < 3:
        return 0.0
    squares = [(one - other) ** 2 * count * more / (count + more) for (one, count), (other, more) in pairwise(values)]
    return math.sqrt(math.fsum(squares) / len(squares))
