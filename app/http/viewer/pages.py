"""Pages for people: the newest groups, one group side by side, statistics."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.domain.access import KeyBounds
from app.domain.groups import GroupDetail, GroupFilter, GroupSummary, StatisticsBreakdown
from app.domain.rewards import compute_statistics
from app.domain.run_costs import RunCost
from app.domain.scores import Outcome
from app.domain.trajectories import TrajectoryRunStatus
from app.http.viewer.assets import load_assets
from app.http.viewer.calls import build_tools
from app.http.viewer.cards import OFFLINE_JUDGE, build_cards, build_lines
from app.http.viewer.rendering import Renderer
from app.http.viewer.retrieved_passages import build_retrieved
from app.http.viewer.run_pages import RunPages, create_run_pages_router
from app.http.viewer.scorings import build_columns
from app.http.viewer.world_pages import WorldPages, create_world_pages_router
from app.http.web.api_keys import CallerBounds
from app.http.web.lazy_routes import LazyRoute
from app.ports.views import GroupViews
from app.service.judge_listing import JudgeEntry
from app.service.request_models import GroupId
from app.toolkit.charts import build_bar_chart
from app.toolkit.display import as_json, cut_excerpt, escape_invisible

PAGE_SIZE = 50
_NEAR = 200
"""Maximum distance, in sequence numbers, of a newer neighbour."""

_FOLDER = Path(__file__).parent
_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_BREAKDOWNS: tuple[StatisticsBreakdown, ...] = get_args(StatisticsBreakdown)
_GROUP_ID = TypeAdapter(GroupId)

Word = Annotated[str, Query(max_length=100)]
Sequence53 = Annotated[int | None, Query(ge=0, lt=2**53)]


async def _list_no_queues() -> Sequence[TrajectoryRunStatus]:
    return ()


def create_viewer_router(
    views: GroupViews,
    environments: Sequence[str] = (),
    judges: Callable[[], Sequence[JudgeEntry]] = tuple,
    queues: Callable[[], Awaitable[Sequence[TrajectoryRunStatus]]] = _list_no_queues,
    worlds: WorldPages | None = None,
    find_cost: Callable[[str], Awaitable[RunCost | None]] | None = None,
    sign_in: Callable[[Renderer], APIRouter] | None = None,
    runs: RunPages | None = None,
) -> APIRouter:
    """Pages at `/` and under `/view`. `environments` are the choices of a filter; without them it is a text field.
    `judges` lists the current judges, `queues` the Atropos queues. Without `worlds` and `runs` there are
    no pages for them.
    `find_cost` says what judging a run has cost, `sign_in` adds the page for keys."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)
    assets = load_assets(_FOLDER / "static")
    renderer = Renderer(_FOLDER / "templates", assets.version)
    router.routes.extend(assets.router.routes)
    if worlds is not None:
        router.routes.extend(create_world_pages_router(worlds, renderer).routes)
    if runs is not None:
        router.routes.extend(create_run_pages_router(runs, renderer).routes)
    if sign_in is not None:
        router.routes.extend(sign_in(renderer).routes)

    @router.get("/")
    async def newest(
        request: Request,
        bounds: CallerBounds,
        environment: Word = "",
        run: Word = "",
        outcome: Word = "",
        before: Sequence53 = None,
    ) -> Response:
        where = _build_filter(environment, run, outcome, before, bounds)
        page = await views.list_groups(where)
        shown = {
            "rows": [(summary, build_bar_chart(summary.rewards), escape_invisible(summary.title)) for summary in page],
            "where": where,
            "filtered": bool(where.environment or where.run or where.outcome),
            "outcomes": _OUTCOMES,
            "environments": environments,
            "older": page[-1].sequence if len(page) == where.limit else None,
        }
        return renderer.render(request, "groups.html", shown, {"groups": page, "next_before": shown["older"]})

    @router.get("/view/groups/{group_id}")
    async def group(
        request: Request,
        group_id: str,
        bounds: CallerBounds,
        environment: Word = "",
        run: Word = "",
        outcome: Word = "",
        at: Sequence53 = None,
    ) -> Response:
        detail = await views.get_group(group_id) if _is_group_id(group_id) else None
        if detail is None:
            return renderer.render_missing(request, "group", group_id, "/", "Show the newest groups.")
        where = _build_filter(environment, run, outcome, None, bounds)
        newer, older = (None, None) if at is None else await _find_neighbours(views, where, at)
        values = {**_build_group_values(detail), "where": where, "newer": newer, "older": older}
        return renderer.render(request, "group.html", values, {"group": detail, "newer": newer, "older": older})

    @router.get("/view/stats")
    async def statistics(
        request: Request, bounds: CallerBounds, environment: Word = "", run: Word = "", by: Word = ""
    ) -> Response:
        where = _build_filter(environment, run, "", None, bounds)
        breakdown = next((known for known in _BREAKDOWNS if known == by), None)
        rows = await views.get_statistics(where.environment, where.run, by=breakdown)
        allowed = [row for row in rows if bounds.allows_group(row.run, row.environment)]
        named = [(row, escape_invisible(row.label or row.judge or row.dataset or "")) for row in allowed]
        shown = {"rows": named, "where": where, "environments": environments, "by": breakdown}
        asked = where.run if where.run and bounds.allows_run(where.run) else None
        cost = await find_cost(asked) if find_cost is not None and asked is not None else None
        more = {"cost": cost, "uncounted": await views.count_uncounted()}
        return renderer.render(request, "statistics.html", shown | more, {"rows": allowed, **more})

    @router.get("/view/judges")
    async def judge_list(request: Request, bounds: CallerBounds) -> Response:
        listed = judges() if bounds.is_open else [replace(judge, report=None) for judge in judges()]
        shown = {"judges": listed, "offline": OFFLINE_JUDGE}
        return renderer.render(request, "judges.html", shown, {"judges": listed})

    @router.get("/view/atropos")
    async def atropos(request: Request, bounds: CallerBounds) -> Response:
        shown = [queue for queue in await queues() if bounds.allows_run(queue.standing.run)]
        return renderer.render(request, "queues.html", {"queues": shown}, {"queues": shown})

    return router


def _build_group_values(detail: GroupDetail) -> dict[str, object]:
    """The template values of `group.html`."""
    group, prompt = detail.group, detail.task.prompt
    scores = group.scores
    return {
        "group": group,
        "key": detail.task.key,
        "statistics": compute_statistics(scores),
        "chart": build_bar_chart([score.reward for score in scores]),
        "cards": build_cards(group),
        "prompt": build_lines(prompt.messages),
        "tools": build_tools(prompt.tools),
        "metadata": cut_excerpt(as_json(prompt.metadata), 4000),
        "retrieved": build_retrieved(detail.task.key.context),
        "scorings": build_columns(detail),
    }


def _build_filter(environment: str, run: str, outcome: str, before: int | None, bounds: KeyBounds) -> GroupFilter:
    """The filter of a form. Empty fields and unknown outcomes filter nothing."""
    chosen = next((known for known in _OUTCOMES if known == outcome), None)
    return GroupFilter(
        environment=_clean_word(environment),
        run=_clean_word(run),
        environments=bounds.environments,
        runs=bounds.runs,
        outcome=chosen,
        before=before,
        limit=PAGE_SIZE,
    )


def _clean_word(word: str) -> str | None:
    """Strips a filter word and replaces NUL, which PostgreSQL refuses in queries."""
    return word.strip().replace("\x00", "\N{REPLACEMENT CHARACTER}") or None


def _is_group_id(text: str) -> bool:
    try:
        _GROUP_ID.validate_python(text)
    except ValidationError:
        return False
    return True


async def _find_neighbours(
    views: GroupViews, where: GroupFilter, at: int
) -> tuple[GroupSummary | None, GroupSummary | None]:
    """The groups right after and right before sequence `at` in the same listing."""
    older = await views.list_groups(where.model_copy(update={"before": at, "limit": 1}))
    near = await views.list_groups(where.model_copy(update={"before": at + _NEAR + 1, "limit": _NEAR}))
    newer = [summary for summary in near if summary.sequence > at]
    return (newer[-1] if newer else None), (older[0] if older else None)
