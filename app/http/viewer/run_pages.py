"""Pages of runs: which there are and how they fare, and one with its curves and what was noticed about it.

Curves are drawn from rollups and read no groups.
"""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import accumulate, chain
from typing import Annotated, Final, Literal, get_args

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.domain.access import KeyBounds
from app.domain.budgets import BudgetForecast
from app.domain.errors import GatewayError
from app.domain.groups import GroupFilter
from app.domain.rollups import GroupSpread, MeasureMap, Rollup, RollupFilter, RollupKey, Series, add_up_rollups
from app.domain.runs import Alarm, Run, RunProgress
from app.domain.values import Frozen, Name, Proportion, compute_t_95, utc_now
from app.http.viewer.rendering import (
    FilterRoute,
    Renderer,
    RunMark,
    ViewerParts,
    Word,
    clean_word,
    explain_environment,
    pick_choice,
)
from app.http.viewer.sentences import (
    Sparkline,
    StepMean,
    TrendPoint,
    average_steps,
    draw_sparkline,
    find_lasting,
    join_words,
    list_attention,
    tell_run,
    tell_runs,
    tell_trend,
)
from app.http.web.api_keys import CallerBounds, needs
from app.ports.environment import Clock
from app.service.access import list_within
from app.service.runs import RunRegistry, RunReport
from app.store.views import GroupViews
from app.toolkit.charts import TONES, ChartForm, ChartMark, Curve, CurveChart, CurvePoint, draw_curves
from app.toolkit.texts import escape_invisible

# The pages.

_PAGE_SIZE: Final = 25
_ARRIVALS: Final = 40
"""Newest groups by whose times a run's state is told."""
_SAMPLED_STEPS: Final = 16
"""Of a run in a list."""
_MOST_RUNS: Final = 5
"""Runs whose curves lie over each other."""
MOST_CHOICES: Final = 200

_NAME: Final = TypeAdapter[str](Name)

_Words = Annotated[list[str], Query(max_length=_MOST_RUNS)]


@dataclass(frozen=True)
class RunPages:
    """Data for the pages."""

    runs: RunRegistry
    views: GroupViews
    clock: Clock = utc_now
    list_judge_models: Callable[[], Mapping[str, str]] = dict
    """By the names of the current judges."""
    parts: ViewerParts = field(default_factory=ViewerParts)
    environments: Sequence[str] = ()


@dataclass(frozen=True)
class RunTotals:
    """What a run's training groups add up to, in one environment or in all."""

    environment: str
    groups: int
    scored: int
    unscored: int
    replies: int
    reward: float | None
    absolute: float | None
    calibrated: float | None
    low_signal: float | None
    gated: float | None


@dataclass(frozen=True)
class RunRow:
    """A run, as a whole or in one environment, which `totals` name."""

    run: Run
    progress: RunProgress
    totals: RunTotals
    environments: tuple[str, ...]
    budget: BudgetForecast | None
    """What judging it may still cost."""
    alarms: tuple[Alarm, ...] = ()
    """Those that stand."""
    curve: tuple[StepMean, ...] = ()
    """Mean absolute rewards of some steps, or rewards where there are none."""

    @property
    def sparkline(self) -> Sparkline | None:
        return draw_sparkline(self.curve)

    @property
    def attention(self) -> list[str]:
        return list_attention(self.progress, self.alarms, self.totals.unscored, self.totals.replies, self.budget)


class RunListing(Frozen):
    """The list of runs as data."""

    runs: tuple[RunRow, ...]
    next_after: str | None
    uncounted: int = 0
    """Stored groups that no figure includes yet."""


def create_run_pages_router(pages: RunPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view/runs", include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute
    )

    @router.get("")
    @needs("read", "handler")
    async def runs(
        request: Request, bounds: CallerBounds, after: Word = "", environment: Word = "", by: Word = ""
    ) -> Response:
        listed = pages.runs.list_runs
        page = await list_within(listed, _name_run, bounds.allows_run, _PAGE_SIZE, parse_run_name(after))
        only, is_split = clean_word(environment), by == "environment"
        rows = await load_rows(pages, [run.name for run in page], bounds, only, is_split=is_split)
        following = page[-1].name if len(page) == _PAGE_SIZE else None
        uncounted = await pages.views.count_uncounted()
        data = RunListing(runs=tuple(rows), next_after=following, uncounted=uncounted)
        shown = {
            "rows": rows,
            "after": after,
            "next": following,
            "environment": only,
            "environments": pages.environments,
            "is_split": is_split,
            "uncounted": uncounted,
            "no_environment": explain_environment(only, pages.environments),
            "says": tell_runs([(row.run.name, row.progress.state, row.attention) for row in rows], only or ""),
        }
        return renderer.render(request, "runs.html", shown, data)

    @router.get("/{run}")
    @needs("read", "run")
    async def one_run(
        request: Request,
        run: str,
        bounds: CallerBounds,
        with_: Annotated[_Words, Query(alias="with")] = [],  # noqa: B006  # never changed
        environment: Word = "",
        by: Word = "",
        chart: Word = "",
    ) -> Response:
        name = parse_run_name(run)
        report = None if name is None else await _find_report(pages, name)
        if report is None:
            return renderer.render_missing(request, "run", run, "/view/runs", "Show every run.")
        others = await _find_others(pages, report.run.name, with_, bounds)
        choice = read_choice(others, environment, by, chart)
        sections = [await show(report.run.name) for show in pages.parts.show_run]
        totals = await _load_totals(pages, report.run.name, bounds)
        progress = await _load_progress(pages, report, bounds)
        curves = await _build_curves(
            pages, report.run, choice, [mark for one in sections for mark in one.marks], bounds
        )
        whole = totals[0]
        attention = list_attention(progress, report.alarms, whole.unscored, whole.replies, report.judging.budget)
        shown: dict[str, object] = {
            "run": report.run,
            "report": report,
            "progress": progress,
            "totals": totals,
            "sections": sections,
            "curves": curves,
            "choice": choice,
            "choices": [name for name in await list_run_names(pages, bounds, MOST_CHOICES) if name != report.run.name],
            "breakdowns": _BREAKDOWNS,
            "says": tell_run(curves.trend, attention),
        }
        # Of all environments together, then of each; curves and legend are in the same order.
        data: dict[str, object] = {"report": report, "progress": progress, "totals": totals}
        for section in sections:
            shown |= section.values
            data |= section.data
        data |= {"curves": curves.measured, "legend": curves.legend}
        return renderer.render(request, "run.html", shown, data)

    return router


def parse_run_name(text: str) -> str | None:
    try:
        return _NAME.validate_python(text)
    except ValidationError:
        return None


def _name_run(run: Run) -> str:
    return run.name


async def _find_report(pages: RunPages, name: str) -> RunReport | None:
    try:
        report = await pages.runs.get_report(name)
    except GatewayError as error:
        if error.status == 404:
            return None
        raise
    return report.model_copy(update={"alarms": await pages.runs.list_open_alarms(name)})


async def _find_others(pages: RunPages, name: str, texts: Sequence[str], bounds: KeyBounds) -> tuple[str, ...]:
    """Those that exist and may be seen, each once."""
    named = [parsed for text in texts if (parsed := parse_run_name(text.strip())) is not None and parsed != name]
    allowed = [other for other in dict.fromkeys(named) if bounds.allows_run(other)]
    reports = await asyncio.gather(*(_find_report(pages, other) for other in allowed[: _MOST_RUNS - 1]))
    return tuple(report.run.name for report in reports if report is not None)


async def list_run_names(pages: RunPages, bounds: KeyBounds, most: int) -> list[str]:
    """Of the runs that the caller may see, in alphabetical order."""
    return [run.name for run in await list_within(pages.runs.list_runs, _name_run, bounds.allows_run, most, None)]


async def load_rows(
    pages: RunPages, names: Sequence[str], bounds: KeyBounds, environment: str | None = None, *, is_split: bool = False
) -> list[RunRow]:
    """Of those runs that are there, in one environment or in all; `is_split` gives a row for each environment."""
    found = await asyncio.gather(*(_load_row(pages, name, bounds) for name in names))
    where = replace(RollupFilter("step", environment).within(bounds), runs=tuple(names))
    sampled: defaultdict[tuple[str, str], list[Rollup]] = defaultdict(list)
    for rollup in await pages.views.sample_steps(where, _SAMPLED_STEPS) if names else ():
        for key in ((rollup.key.run or "", rollup.key.environment), (rollup.key.run or "", "")):
            sampled[key].append(rollup)
    rows = [row for parts in found for row in _pick_rows(parts, environment, is_split=is_split)]
    return [replace(row, curve=average_steps(sampled[row.run.name, row.totals.environment])) for row in rows]


def _pick_rows(parts: Sequence[RunRow], environment: str | None, *, is_split: bool) -> Sequence[RunRow]:
    """`parts` are a run as a whole and in each environment."""
    if environment is not None:
        return [part for part in parts if part.totals.environment == environment]
    return (parts[1:] or parts) if is_split else parts[:1]


async def _load_row(pages: RunPages, name: str, bounds: KeyBounds) -> tuple[RunRow, ...]:
    """As a whole, and in each environment; nothing when there is no such run."""
    report = await _find_report(pages, name)
    if report is None:
        return ()
    totals = await _load_totals(pages, name, bounds)
    environments = tuple(each.environment for each in totals[1:])
    progress = await _load_progress(pages, report, bounds)
    budget = report.judging.budget
    return tuple(RunRow(report.run, progress, each, environments, budget, report.alarms) for each in totals)


async def _load_progress(pages: RunPages, report: RunReport, bounds: KeyBounds) -> RunProgress:
    where = GroupFilter(run=report.run.name, limit=_ARRIVALS).within(bounds)
    arrivals: list[datetime] = [group.created_at for group in (await pages.views.find_outlines(where)).outlines]
    return pages.runs.tell_progress(report, arrivals)


async def _load_totals(pages: RunPages, run: str, bounds: KeyBounds) -> tuple[RunTotals, ...]:
    """Of all environments together, then of each."""
    rollups = await pages.views.list_rollups(RollupFilter("run", run=run).within(bounds))
    each = [_build_totals(rollup.key.environment, rollup) for rollup in rollups]
    first = RunTotals("", 0, 0, 0, 0, None, None, None, None, None)
    return (_build_totals("", add_up_rollups(rollups)) if rollups else first, *each)


def _build_totals(environment: str, rollup: Rollup) -> RunTotals:
    return RunTotals(
        environment=environment,
        groups=rollup.count("groups"),
        scored=rollup.count("scored"),
        unscored=rollup.count("unscored"),
        replies=rollup.count("rollouts"),
        reward=rollup.mean("reward"),
        absolute=rollup.mean("absolute"),
        calibrated=rollup.mean("calibrated"),
        low_signal=rollup.share("low_signal", "groups"),
        gated=rollup.share("gated"),
    )


# Curves over policy steps.

MOST_POINTS: Final = 100
"""Steps of a longer run are taken together, so that a curve has at most so many points."""
_MOST_CRITERIA: Final = 12
_COUNTED: Final = "criterion of all:"
"""No measure begins so: those of criteria have their place before the name."""


def _format_unit(value: float) -> str:
    """Two decimals, or three where there are so many: a round step may be .025."""
    return f"{value:.3f}".removesuffix("0")


def _format_share(value: float) -> str:
    return f"{100 * value:.3g} %"


def _format_count(value: float) -> str:
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"


def _format_dollars(value: float) -> str:
    return f"${value:.3g}"


_UNIT_FORM: Final = ChartForm(floor=0.0, ceiling=1.0, least_span=0.1, format_value=_format_unit)
_FREE_FORM: Final = ChartForm(least_span=0.1, format_value=_format_unit)
_SHARE_FORM: Final = ChartForm(floor=0.0, ceiling=1.0, from_floor=True, least_span=0.01, format_value=_format_share)
_COUNT_FORM: Final = ChartForm(floor=0.0, from_floor=True, least_span=1.0, format_value=_format_count)
_DOLLAR_FORM: Final = ChartForm(floor=0.0, from_floor=True, format_value=_format_dollars)


@dataclass(frozen=True)
class CurveRule:
    """`kind` says how a value comes of a rollup: the mean of `measure`, or the share of `of` that it counts."""

    name: str
    title: str
    kind: Literal["mean", "share"]
    measure: str
    of: str = "scored"
    form: ChartForm = _UNIT_FORM
    folded: bool = False
    is_criterion: bool = False


_RULES: Final = (
    CurveRule("calibrated", "Calibrated", "mean", "calibrated", form=_FREE_FORM),
    CurveRule("reward", "Reward", "mean", "reward"),
    CurveRule("absolute", "Absolute reward", "mean", "absolute"),
    CurveRule("unscored", "Without a score", "share", "unscored", "rollouts", _SHARE_FORM),
    CurveRule("gated", "Set to 0 by a gate", "share", "gated", form=_SHARE_FORM),
    CurveRule("low_signal", "Groups of low signal", "share", "low_signal", "groups", _SHARE_FORM),
    CurveRule("length", "Length in characters", "mean", "length", form=_COUNT_FORM),
    CurveRule("lag", "Lag in steps", "mean", "lag", form=_COUNT_FORM),
    CurveRule("judge_usd", "Judging cost of a group", "mean", "judge_usd", form=_DOLLAR_FORM),
    CurveRule("judge_calls", "Calls to judge models of a group", "mean", "judge_calls", form=_COUNT_FORM),
    CurveRule("readings", "Readings of a group", "mean", "readings", "", _COUNT_FORM, folded=True),
    CurveRule("spread", "Standard deviation within a group", "mean", "spread", folded=True),
    CurveRule("capped", "Capped by a defect", "share", "capped", "scored", _SHARE_FORM, folded=True),
    CurveRule("saturated", "Rewards above .95", "share", "saturated", "scored", _SHARE_FORM, True),
    CurveRule("duplicates", "Repeats within a group", "share", "duplicates", "rollouts", _SHARE_FORM, True),
    CurveRule("gap", "Absolute minus calibrated", "mean", "calibration_gap", "", _FREE_FORM, True),
    CurveRule("tokens", "Tokens of a completion", "mean", "tokens", form=_COUNT_FORM, folded=True),
)


@dataclass(frozen=True)
class SeriesSource:
    """The rollups of one curve, whose name is not escaped."""

    name: str
    rollups: Sequence[Rollup]


@dataclass(frozen=True)
class StepPoint:
    """`count` is what `value` is the mean of; `last` is the last step that it includes. `low` and `high` are null where
    no step has two groups, since one says nothing of its chance."""

    step: int
    last: int
    value: float
    low: float | None
    high: float | None
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


@dataclass(frozen=True)
class _Bin:
    """Steps `first` to `last`: what they add up to in each environment, and in all of them."""

    first: int
    last: int
    each: Sequence[Rollup]

    @cached_property
    def rollup(self) -> Rollup:
        return add_up_rollups(self.each)


_Steps = Sequence[_Bin]


def measure_curves(
    sources: Sequence[SeriesSource], rules: Sequence[CurveRule] = _RULES
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


def _bin_steps(rollups: Sequence[Rollup]) -> Iterator[_Bin]:
    """Of what has a policy step. Criteria stand under their bare names."""
    merged: defaultdict[int, list[Rollup]] = defaultdict(list)
    for rollup in rollups:
        if rollup.key.step is not None:
            merged[rollup.key.step].append(Rollup(rollup.key, rollup.measures | _name_criteria(rollup)))
    steps = sorted(merged)
    width = max(1, -(-len(steps) // MOST_POINTS))
    for first in range(0, len(steps), width):
        some = steps[first : first + width]
        apart: defaultdict[str, list[Rollup]] = defaultdict(list)
        for rollup in chain.from_iterable(merged[step] for step in some):
            apart[rollup.key.environment].append(rollup)
        yield _Bin(some[0], some[-1], [add_up_rollups(parts) for parts in apart.values()])


def _name_criteria(rollup: Rollup) -> MeasureMap:
    return {_COUNTED + name: value for name, value in rollup.add_up_criteria().measures.items()}


def _list_criterion_rules(binned: Sequence[_Steps]) -> Iterator[CurveRule]:
    """The criteria with the most values, in the order in which they are first met."""
    counts: Counter[str] = Counter()
    for rollup in (some.rollup for some in chain.from_iterable(binned)):
        counts.update({name: rollup.count(name) for name in rollup.measures if name.startswith(_COUNTED)})
    most = {name for name, _ in counts.most_common(_MOST_CRITERIA)}
    for name in counts:
        if name in most:
            bare = escape_invisible(name.removeprefix(_COUNTED)).replace("_", " ")
            yield CurveRule(f"criterion:{name.removeprefix(_COUNTED)}", bare, "mean", name, is_criterion=True)


def _measure(rule: CurveRule, steps: _Steps) -> Iterator[StepPoint]:
    return _measure_shares(rule, steps) if rule.kind == "share" else _measure_means(rule, steps)


def _measure_shares(rule: CurveRule, steps: _Steps) -> Iterator[StepPoint]:
    """With Wilson's interval of 95 %. A measure that is nowhere above 0 is a curve all the same, of zeros."""
    for some in steps:
        share = Proportion(some.rollup.count(rule.measure), some.rollup.count(rule.of))
        if share.value is not None and share.interval is not None:
            low, high = share.interval
            band = min(low, share.value), max(high, share.value)
            yield StepPoint(some.first, some.last, share.value, *band, share.trials)


_BORROWED: Final = 8
"""Degrees of freedom that a step borrows from the whole curve, since few groups say little of their own spread."""


def _measure_means(rule: CurveRule, steps: _Steps) -> Iterator[StepPoint]:
    """With bands from the groups of each step: how far groups of one environment lie apart there. What a policy learns
    from step to step is in none of them."""
    usual = _pool_spreads(rule.measure, steps)
    for some in steps:
        value, count = some.rollup.mean(rule.measure), some.rollup.count(rule.measure)
        if value is not None and count > 0:
            reach = _compute_reach(rule.measure, some, usual)
            low, high = (None, None) if reach is None else (value - reach, value + reach)
            yield StepPoint(some.first, some.last, value, low, high, count)


def _pool_spreads(measure: str, steps: _Steps) -> Mapping[str, GroupSpread]:
    """By environment, whose means within each step differ only by chance."""
    pooled: dict[str, GroupSpread] = {}
    for rollup in chain.from_iterable(some.each for some in steps):
        before, more = pooled.get(rollup.key.environment, GroupSpread()), rollup.spread(measure)
        pooled[rollup.key.environment] = GroupSpread(before.squares + more.squares, before.freedom + more.freedom)
    return pooled


def _compute_reach(measure: str, some: _Bin, usual: Mapping[str, GroupSpread]) -> float | None:
    """Half of the 95 % band. None where an environment never has two groups in a step."""
    variance, freedom, total = 0.0, 0, 0
    for rollup in some.each:
        count, own, curve = rollup.count(measure), rollup.spread(measure), usual[rollup.key.environment]
        if not count:
            continue
        if not curve.freedom:
            return None
        borrowed = min(_BORROWED, curve.freedom)
        squares = own.squares + borrowed * curve.squares / curve.freedom
        variance += count * squares / (own.freedom + borrowed)
        freedom += own.freedom + borrowed
        total += count
    return compute_t_95(freedom) * math.sqrt(variance) / total


# What curves are broken down by: the series that are read, and the groups behind each curve.

Breakdown = Literal["environment", "label", "dataset", "judge"]
_SERIES: Final[Mapping[Breakdown | None, Series]] = {
    None: "step",
    "environment": "step",
    "label": "label",
    "dataset": "dataset",
    "judge": "judge",
}
_BREAKDOWNS: Final[tuple[Breakdown, ...]] = get_args(Breakdown)
_FILTERED: Final = frozenset(("environment", "label", "judge"))
"""By what lists of groups are filtered too."""


@dataclass(frozen=True)
class LegendEntry:
    """`words` filter the list of its groups. Steps are null where none of the groups has one."""

    name: str
    words: Mapping[str, str]
    groups: int
    first_step: int | None
    last_step: int | None


@dataclass(frozen=True)
class CurveChoice:
    """What somebody asks to see. `by` is None for one curve."""

    others: tuple[str, ...]
    environment: str | None
    by: Breakdown | None
    chart: str


@dataclass(frozen=True)
class LoadedSeries:
    """Rollups of a run by what it is broken down by."""

    run: str
    rollups: Sequence[Rollup]


def read_choice(others: tuple[str, ...], environment: str, by: str, chart: str) -> CurveChoice:
    return CurveChoice(others, clean_word(environment), pick_choice(_BREAKDOWNS, by), chart)


async def _load_series(views: GroupViews, run: str, choice: CurveChoice, bounds: KeyBounds) -> LoadedSeries:
    series = RollupFilter(_SERIES[choice.by], choice.environment, run)
    return LoadedSeries(run, await views.list_rollups(series.within(bounds)))


def _split_series(loaded: LoadedSeries, choice: CurveChoice) -> list[SeriesSource]:
    run = loaded.run
    if choice.by is None:
        return [SeriesSource(run, loaded.rollups)]
    split: dict[str, list[Rollup]] = {}
    for rollup in loaded.rollups:
        name = rollup.key.environment if choice.by == "environment" else rollup.key.label or ""
        split.setdefault(name, []).append(rollup)
    return [SeriesSource(f"{run}: {name}" if choice.others else name, some) for name, some in sorted(split.items())]


def _list_entries(
    sources: Sequence[SeriesSource], by: Breakdown | None, environment: str | None
) -> Iterator[LegendEntry]:
    """In the order of the curves. `environment` is that of all of them, where they have one."""
    for source in sources:
        key = source.rollups[0].key if source.rollups else RollupKey("step", "", None, "train")
        steps = [rollup.key.step for rollup in source.rollups if rollup.key.step is not None]
        yield LegendEntry(
            name=source.name,
            words=_write_filter(key, by, environment),
            groups=sum(rollup.count("groups") for rollup in source.rollups),
            first_step=min(steps, default=None),
            last_step=max(steps, default=None),
        )


def _write_filter(key: RollupKey, by: Breakdown | None, environment: str | None) -> dict[str, str]:
    """Nothing for what no list is filtered by."""
    name_of_curve = key.environment if by == "environment" else key.label
    if by is not None and (by not in _FILTERED or not name_of_curve):
        return {}
    words = {"environment": environment, "run": key.run, "purpose": key.purpose, by or "": name_of_curve}
    return {name: value for name, value in words.items() if name and value}


# Marks: what features noticed, and where the scoring of a run changed.


def _count_up_groups(rollups: Sequence[Rollup]) -> list[tuple[int, int]]:
    """Each step with how many groups the run had after it, as if steps followed each other."""
    counts: dict[int, int] = {}
    for rollup in rollups:
        if rollup.key.step is not None:
            counts[rollup.key.step] = counts.get(rollup.key.step, 0) + rollup.count("groups")
    steps = sorted(counts)
    return list(zip(steps, accumulate(counts[step] for step in steps), strict=True))


def _find_step(steps: Sequence[tuple[int, int]], group: int) -> int | None:
    """The step in which the run had so many groups."""
    return next((step for step, total in steps if total >= group), steps[-1][0] if steps else None)


def _place_marks(
    rules: Sequence[CurveRule], marks: Sequence[RunMark], steps: Sequence[tuple[int, int]]
) -> Mapping[str, Sequence[ChartMark]]:
    """By the name of a curve. What none of them is about stands in the first one."""
    placed: dict[str, list[ChartMark]] = {}
    for mark in marks:
        begin, end = _find_step(steps, mark.since_group), _find_step(steps, mark.noticed_group)
        names = [rule.name for rule in rules if rule.name in mark.curves] or [rule.name for rule in rules[:1]]
        if begin is None or end is None or not names:
            continue
        placed.setdefault(names[0], []).append(ChartMark(begin, mark.label, mark.sign, "alarm", end))
    return placed


def list_changes(rollups: Sequence[Rollup]) -> Iterator[ChartMark]:
    """Where groups begin, and end, to be scored by another rule than the one that the run pinned."""
    flagged: dict[int, bool] = {}
    for rollup in rollups:
        if rollup.key.step is not None:
            changed = rollup.count("group_flag:scoring_changed") > 0
            flagged[rollup.key.step] = flagged.get(rollup.key.step, False) or changed
    before = False
    for step in sorted(flagged):
        if flagged[step] != before:
            what = "scored by another rule than the pinned one" if flagged[step] else "scored by the pinned rule again"
            yield ChartMark(step, f"From step {step}: {what}", "≠" if flagged[step] else "=")
        before = flagged[step]


# All curves of a page.


@dataclass(frozen=True)
class RunCurves:
    """`left_out` are series for which there is no room, `stepless` groups without a policy step."""

    legend: tuple[LegendEntry, ...]
    measured: tuple[MeasuredCurves, ...]
    charts: tuple[ChartView, ...]
    criteria: tuple[ChartView, ...]
    """Of several environments at once, which mean less."""
    left_out: int
    stepless: int
    trend: str
    """Whether the run learns, in words."""


_TREND_RULES: Final = tuple(rule for name in ("absolute", "reward") for rule in _RULES if rule.name == name)


def tell_learning(rollups: Sequence[Rollup], environment: str | None) -> str:
    """By the absolute reward, which does not depend on the group, or by the reward where there is none. `rollups` are
    of all environments of the run."""
    present = sorted({one.key.environment for one in rollups})
    if environment is not None and present and environment not in present:
        known = join_words([escape_invisible(name) for name in present])
        return f"this run has no environment {escape_invisible(environment)}, only {known}"
    steps = list(_bin_steps([one for one in rollups if environment in {None, one.key.environment}]))
    rule = next((rule for rule in _TREND_RULES if any(some.rollup.count(rule.measure) for some in steps)), None)
    return tell_trend(()) if rule is None else _tell_trend(rule, steps, environment)


def _tell_trend(rule: CurveRule, steps: _Steps, environment: str | None) -> str:
    lasting = find_lasting([some.each for some in steps], rule.measure)
    if not lasting:
        return "no verdict: the first and the last steps have different environments"
    present = {one.key.environment for one in chain.from_iterable(some.each for some in steps)}
    kept = [replace(some, each=[one for one in some.each if one.key.environment in lasting]) for some in steps]
    points = [
        TrendPoint(one.step, one.last, one.value, None if one.high is None else one.high - one.value, one.count)
        for one in _measure(rule, [some for some in kept if some.each])
    ]
    is_part = environment is not None or lasting < present
    where = f" in {join_words([escape_invisible(name) for name in sorted(lasting)])}" if is_part else ""
    return tell_trend(points, rule.title.lower() + where)


async def _build_curves(
    pages: RunPages, run: Run, choice: CurveChoice, marks: Sequence[RunMark], bounds: KeyBounds
) -> RunCurves:
    names = (run.name, *choice.others)
    series = await asyncio.gather(*(_load_series(pages.views, name, choice, bounds) for name in names))
    loaded = [one.rollups for one in series]
    sources = [source for one in series for source in _split_series(one, choice)]
    # There is a colour for so many; those with the most groups get one, in the order of their names.
    largest = sorted(sources, key=_count_groups, reverse=True)[:TONES]
    sources_shown = [source for source in sources if source in largest]
    own = await pages.views.list_rollups(RollupFilter("step", run=run.name).within(bounds))
    curves = list(measure_curves(sources_shown))
    placed = _place_marks([rule for rule, _ in curves], marks, _count_up_groups(own))
    curves = [each for each in curves if each[0].name == choice.chart] or curves
    environments = {rollup.key.environment for rollup in chain.from_iterable(loaded)}
    apart = len(environments) > 1 and choice.by != "environment" and len(curves) > 1
    changes = list(list_changes(own))
    alone = bool(choice.chart) and len(curves) == 1
    drawn = [draw(rule, measured, [*changes, *placed.get(rule.name, ())], alone=alone) for rule, measured in curves]
    return RunCurves(
        legend=tuple(_list_entries(sources_shown, choice.by, choice.environment)),
        measured=tuple(measured for _, measured in curves),
        charts=tuple(view for view in drawn if view is not None and not (apart and view.is_criterion)),
        criteria=tuple(view for view in drawn if view is not None and apart and view.is_criterion),
        left_out=len(sources) - len(largest),
        stepless=sum(rollup.count("groups") for rollup in own if rollup.key.step is None),
        trend=tell_learning(own, choice.environment),
    )


def _count_groups(source: SeriesSource) -> int:
    return sum(rollup.count("groups") for rollup in source.rollups)
