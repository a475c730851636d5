"""Pages of runs: which there are and how they fare, and one with its curves, alarms and changes of pins."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.domain.access import KeyBounds
from app.domain.errors import GatewayError
from app.domain.groups import GroupFilter
from app.domain.health_records import RunHealth
from app.domain.rollups import Rollup, RollupFilter, merge_measures
from app.domain.run_costs import BudgetForecast
from app.domain.run_progress import RunProgress, tell_progress
from app.domain.runs import Run
from app.domain.values import Frozen, Name, utc_now
from app.http.viewer.forms import FilterRoute
from app.http.viewer.group_filters import Word
from app.http.viewer.rendering import Renderer
from app.http.viewer.run_curves import (
    ChartView,
    MeasuredCurves,
    SeriesSource,
    draw,
    measure_curves,
)
from app.http.viewer.run_marks import count_up_groups, list_changes, number_alarms, place_alarms
from app.http.viewer.run_series import (
    BREAKDOWNS,
    CurveChoice,
    LegendEntry,
    find_scenes,
    list_entries,
    load_rollups,
    load_series,
    read_choice,
    split_series,
)
from app.http.web.api_keys import CallerBounds
from app.ports.runtime import Clock
from app.ports.views import GroupViews
from app.service.key_bounds import list_within
from app.service.run_health import RunHealthService
from app.service.run_registry import RunRegistry, RunReport
from app.toolkit.charts import TONES

PAGE_SIZE: Final = 25
ARRIVALS: Final = 40
"""Newest groups by whose times a run's state is told."""
MOST_RUNS: Final = 5
"""Runs whose curves lie over each other."""
MOST_CHOICES: Final = 200

_NAME: Final = TypeAdapter[str](Name)

Words = Annotated[list[str], Query(max_length=MOST_RUNS)]
SceneWords = Annotated[list[Word], Query(max_length=TONES)]


@dataclass(frozen=True)
class RunPages:
    """Data for the pages."""

    runs: RunRegistry
    health: RunHealthService
    views: GroupViews
    clock: Clock = utc_now
    list_judge_models: Callable[[], Mapping[str, str]] = dict
    """By the names of the current judges."""


@dataclass(frozen=True)
class RunTotals:
    """What a run's training groups add up to, in one environment or in all."""

    environment: str
    groups: int
    scored: int
    unscored: int
    reward: float | None
    absolute: float | None
    calibrated: float | None
    low_signal: float | None
    gated: float | None


@dataclass(frozen=True)
class RunRow:
    run: Run
    progress: RunProgress
    totals: RunTotals
    environments: tuple[str, ...]
    budget: BudgetForecast | None
    """What judging it may still cost."""


class RunListing(Frozen):
    """The list of runs as data."""

    runs: tuple[RunRow, ...]
    next_after: str | None


class ShownRun(Frozen):
    """The page of a run as data."""

    report: RunReport
    progress: RunProgress
    totals: tuple[RunTotals, ...]
    """Of all environments together, then of each."""
    health: RunHealth
    curves: tuple[MeasuredCurves, ...]
    legend: tuple[LegendEntry, ...]
    """Of the curves, in their order."""


@dataclass(frozen=True)
class RunCurves:
    """`left_out` are series for which there is no room, `stepless` groups without a policy step, `scenes` those that
    may be chosen."""

    legend: tuple[LegendEntry, ...]
    measured: tuple[MeasuredCurves, ...]
    charts: tuple[ChartView, ...]
    criteria: tuple[ChartView, ...]
    """Of several environments at once, which mean less."""
    left_out: int
    stepless: int
    scenes: tuple[str, ...]


def create_run_pages_router(pages: RunPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix="/view/runs", include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute
    )

    @router.get("")
    async def runs(request: Request, bounds: CallerBounds, after: Word = "") -> Response:
        listed = pages.runs.list_runs
        page = await list_within(listed, _name_run, bounds.allows_run, PAGE_SIZE, parse_run_name(after))
        rows = [row for row in await asyncio.gather(*(load_row(pages, run.name, bounds) for run in page)) if row]
        following = page[-1].name if len(page) == PAGE_SIZE else None
        data = RunListing(runs=tuple(rows), next_after=following)
        return renderer.render(request, "runs.html", {"rows": rows, "after": after, "next": following}, data)

    @router.get("/{run}")
    async def one_run(
        request: Request,
        run: str,
        bounds: CallerBounds,
        with_: Annotated[Words, Query(alias="with")] = [],  # noqa: B006  # never changed
        environment: Word = "",
        by: Word = "",
        chart: Word = "",
        label: Word = "",
        scene: SceneWords = [],  # noqa: B006  # never changed
    ) -> Response:
        name = parse_run_name(run)
        report = None if name is None else await _find_report(pages, name)
        if report is None:
            return renderer.render_missing(request, "run", run, "/view/runs", "Show every run.")
        others = await _find_others(pages, report.run.name, with_, bounds)
        choice = read_choice(others, environment, by, chart, label, scene)
        health = await pages.health.get_health(report.run.name)
        seen = await _load_totals(pages, report.run.name, bounds)
        progress = await _load_progress(pages, report, bounds)
        curves = await _build_curves(pages, report.run, choice, health, bounds)
        shown = {
            "run": report.run,
            "report": report,
            "progress": progress,
            "totals": seen,
            "health": health,
            "curves": curves,
            "choice": choice,
            "choices": [name for name in await list_run_names(pages, bounds, MOST_CHOICES) if name != report.run.name],
            "signs": number_alarms(health.alarms),
            "breakdowns": BREAKDOWNS,
        }
        data = ShownRun(
            report=report,
            progress=progress,
            totals=seen,
            health=health,
            curves=curves.measured,
            legend=curves.legend,
        )
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
        return await pages.runs.get_report(name)
    except GatewayError as error:
        if error.status == 404:
            return None
        raise


async def _find_others(pages: RunPages, name: str, wanted: Sequence[str], bounds: KeyBounds) -> tuple[str, ...]:
    """Those that exist and may be seen, each once."""
    named = [parsed for text in wanted if (parsed := parse_run_name(text.strip())) is not None and parsed != name]
    allowed = [other for other in dict.fromkeys(named) if bounds.allows_run(other)]
    found = await asyncio.gather(*(_find_report(pages, other) for other in allowed[: MOST_RUNS - 1]))
    return tuple(report.run.name for report in found if report is not None)


async def list_run_names(pages: RunPages, bounds: KeyBounds, most: int) -> list[str]:
    """Of the runs that the caller may see, in alphabetical order."""
    return [run.name for run in await list_within(pages.runs.list_runs, _name_run, bounds.allows_run, most, None)]


async def load_row(pages: RunPages, name: str, bounds: KeyBounds) -> RunRow | None:
    """None when there is no such run."""
    report = await _find_report(pages, name)
    if report is None:
        return None
    totals = await _load_totals(pages, name, bounds)
    environments = tuple(each.environment for each in totals[1:])
    progress = await _load_progress(pages, report, bounds)
    return RunRow(report.run, progress, totals[0], environments, report.judging.budget)


async def _load_progress(pages: RunPages, report: RunReport, bounds: KeyBounds) -> RunProgress:
    where = GroupFilter(run=report.run.name, environments=bounds.environments, limit=ARRIVALS)
    arrivals: list[datetime] = [group.created_at for group in (await pages.views.find_outlines(where)).outlines]
    outstanding = sum(each.outstanding for each in report.activity)
    return tell_progress(arrivals, outstanding, report.run.held, pages.clock())


async def _load_totals(pages: RunPages, run: str, bounds: KeyBounds) -> tuple[RunTotals, ...]:
    """Of all environments together, then of each."""
    rollups = await load_rollups(pages.views, RollupFilter("run", run=run), bounds)
    whole = merge_measures([rollup.measures for rollup in rollups])
    each = [_build_totals(rollup.key.environment, rollup) for rollup in rollups]
    first = RunTotals("", 0, 0, 0, None, None, None, None, None)
    return (_build_totals("", Rollup(rollups[0].key, whole)) if rollups else first, *each)


def _build_totals(environment: str, rollup: Rollup) -> RunTotals:
    return RunTotals(
        environment=environment,
        groups=rollup.count("groups"),
        scored=rollup.count("scored"),
        unscored=rollup.count("unscored"),
        reward=rollup.mean("reward"),
        absolute=rollup.mean("absolute"),
        calibrated=rollup.mean("calibrated"),
        low_signal=rollup.share("low_signal", "groups"),
        gated=rollup.share("gated"),
    )


async def _build_curves(
    pages: RunPages, run: Run, choice: CurveChoice, health: RunHealth, bounds: KeyBounds
) -> RunCurves:
    names = (run.name, *choice.others)
    scenes = await find_scenes(pages.views, run.name, choice, bounds)
    shown = choice.scenes or scenes[: max(1, TONES // len(names))]
    series = await asyncio.gather(*(load_series(pages.views, name, choice, shown, bounds) for name in names))
    loaded = [one.rollups for one in series]
    sources = [source for one in series for source in split_series(one, choice)]
    kept = sorted(sources, key=_count_groups, reverse=True)[:TONES]
    own = await load_rollups(pages.views, RollupFilter("step", run=run.name), bounds)
    found = list(measure_curves([source for source in sources if source in kept]))
    alarms = place_alarms([rule for rule, _ in found], health.alarms, count_up_groups(own))
    found = [each for each in found if each[0].name == choice.chart] or found
    environments = {rollup.key.environment for rollup in chain.from_iterable(loaded)}
    apart = len(environments) > 1 and choice.by != "environment" and len(found) > 1
    changes = list(list_changes(own))
    alone = bool(choice.chart) and len(found) == 1
    drawn = [draw(rule, measured, [*changes, *alarms.get(rule.name, ())], alone=alone) for rule, measured in found]
    narrowed = {"environment": choice.environment, "label": choice.label}
    sampled = [(one.run, scene) for one in series for scene in one.sampled]
    return RunCurves(
        legend=tuple(list_entries([source for source in sources if source in kept], choice.by, narrowed, sampled)),
        measured=tuple(measured for _, measured in found),
        charts=tuple(view for view in drawn if view is not None and not (apart and view.is_criterion)),
        criteria=tuple(view for view in drawn if view is not None and apart and view.is_criterion),
        left_out=len(sources) - len(kept),
        stepless=sum(rollup.count("groups") for rollup in own if rollup.key.step is None),
        scenes=scenes,
    )


def _count_groups(source: SeriesSource) -> int:
    return sum(rollup.count("groups") for rollup in source.rollups)
