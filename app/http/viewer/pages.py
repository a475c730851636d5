"""Pages for people: statistics, judges, queues; and what the other pages are put together from."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import get_args

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from app.domain.groups import StatisticsBreakdown
from app.domain.run_costs import RunCost
from app.domain.trajectories import TrajectoryRunStatus
from app.http.viewer.assets import load_assets
from app.http.viewer.cards import OFFLINE_JUDGE
from app.http.viewer.finding_pages import create_finding_router
from app.http.viewer.forms import FilterRoute
from app.http.viewer.group_filters import FilterWords, Word, build_filter
from app.http.viewer.group_pages import FindRubric, ListLabels, create_group_page_router, find_no_rubric, list_no_labels
from app.http.viewer.home_pages import HomePages, create_home_router
from app.http.viewer.rendering import Renderer
from app.http.web.api_keys import CallerBounds
from app.ports.views import GroupViews
from app.service.judge_listing import JudgeEntry, show_judges

_FOLDER = Path(__file__).parent
_BREAKDOWNS: tuple[StatisticsBreakdown, ...] = get_args(StatisticsBreakdown)


ViewerSection = Callable[[Renderer], APIRouter]


async def _list_no_queues() -> Sequence[TrajectoryRunStatus]:
    return ()


def create_viewer_router(
    views: GroupViews,
    environments: Sequence[str] = (),
    judges: Callable[[], Sequence[JudgeEntry]] = tuple,
    queues: Callable[[], Awaitable[Sequence[TrajectoryRunStatus]]] = _list_no_queues,
    find_cost: Callable[[str], Awaitable[RunCost | None]] | None = None,
    find_rubric: FindRubric = find_no_rubric,
    list_labels: ListLabels = list_no_labels,
    home: HomePages | None = None,
    sections: Sequence[ViewerSection] = (),
) -> APIRouter:
    """Pages at `/` and under `/view`. `environments` are the choices of a filter; without them it is a text field.
    `judges` lists the current judges, `queues` the Atropos queues. `find_cost` says what judging a run has cost,
    `find_rubric` finds what a group was judged by, `list_labels` what people said of it, `home` is what the first page
    shows, `sections` add pages."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute)
    assets = load_assets(_FOLDER / "static")
    renderer = Renderer(_FOLDER / "templates", assets.version)
    router.routes.extend(assets.router.routes)
    router.routes.extend(create_home_router(home or HomePages(views, judges), renderer, environments).routes)
    router.routes.extend(create_finding_router(views, renderer, environments).routes)
    router.routes.extend(create_group_page_router(views, renderer, find_rubric, list_labels).routes)
    for create_section in sections:
        router.routes.extend(create_section(renderer).routes)

    @router.get("/view/stats")
    async def statistics(
        request: Request, bounds: CallerBounds, environment: Word = "", run: Word = "", by: Word = ""
    ) -> Response:
        where = build_filter(FilterWords(environment, run), None, bounds)
        breakdown = next((known for known in _BREAKDOWNS if known == by), None)
        rows = await views.get_statistics(where.environment, where.run, by=breakdown)
        allowed = [row for row in rows if bounds.allows_group(row.run, row.environment)]
        shown = {"rows": allowed, "where": where, "environments": environments, "by": breakdown}
        asked = where.run if where.run and bounds.allows_run(where.run) else None
        cost = await find_cost(asked) if find_cost is not None and asked is not None else None
        more = {"cost": cost, "uncounted": await views.count_uncounted()}
        return renderer.render(request, "statistics.html", shown | more, {"rows": allowed, **more})

    @router.get("/view/judges")
    async def judge_list(request: Request, bounds: CallerBounds) -> Response:
        listed = show_judges(judges(), bounds)
        shown = {"judges": listed, "offline": OFFLINE_JUDGE}
        return renderer.render(request, "judges.html", shown, {"judges": listed})

    @router.get("/view/atropos")
    async def atropos(request: Request, bounds: CallerBounds) -> Response:
        shown = [queue for queue in await queues() if bounds.allows_run(queue.state.run)]
        return renderer.render(request, "queues.html", {"queues": shown}, {"queues": shown})

    return router
