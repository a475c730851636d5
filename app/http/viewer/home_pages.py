"""The first page: whether all is well, what trains, and what to do next."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse

from app.domain.access import KeyBounds
from app.domain.groups import GroupFilter, GroupSummary
from app.domain.programs import Isolation
from app.http.viewer.cards import OFFLINE_JUDGE
from app.http.viewer.rendering import Renderer
from app.http.viewer.run_pages import RunPages, RunRow, list_run_names, load_row
from app.http.web.api_keys import CallerBounds
from app.http.web.lazy_routes import LazyRoute
from app.ports.views import GroupViews
from app.service.judge_listing import JudgeEntry, show_judges
from app.service.overview import EnvironmentEntry, ServiceState, ServiceWarning, list_warnings

NEWEST: Final = 100
"""Groups by which runs are found that train."""
SHOWN_GROUPS: Final = 6
SHOWN_RUNS: Final = 8
LEAST_BUDGET_SHARE: Final = 0.1
"""Of a run's budget."""


def _know_no_isolation() -> Isolation | None:
    return None


@dataclass(frozen=True)
class HomePages:
    """Data for the page. `free_bytes` is None where the data lies on a server."""

    views: GroupViews
    judges: Callable[[], Sequence[JudgeEntry]] = tuple
    environments: Callable[[], Sequence[EnvironmentEntry]] = tuple
    isolation: Callable[[], Isolation | None] = _know_no_isolation
    free_bytes: Callable[[], float] | None = None
    runs: RunPages | None = None


def create_home_router(pages: HomePages, renderer: Renderer, names: Sequence[str]) -> APIRouter:
    """`names` are those of the environments."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)

    @router.get("/")
    async def home(request: Request, bounds: CallerBounds) -> Response:
        if request.query_params.keys() - {"format"}:  # the list of groups was here, with its filters
            root = str(request.scope.get("root_path", "")).rstrip("/")
            return RedirectResponse(f"{root}/view/groups?{request.url.query}")
        within = GroupFilter(environments=bounds.environments, runs=bounds.runs, limit=NEWEST)
        newest = (await pages.views.find_groups(within)).groups
        rows = await _load_runs(pages.runs, newest, bounds)
        environments = [one for one in pages.environments() if bounds.allows_environment(one.name)]
        judges = show_judges(pages.judges(), bounds)
        told = [*warn_of_runs(rows), *(await _warn_of_service(pages, environments, judges) if bounds.is_open else ())]
        groups = newest[:SHOWN_GROUPS]
        data = {
            "warnings": told,
            "runs": rows,
            "groups": groups,
            "judges": judges,
            "environments": environments,
        }
        shown = {
            "example": "npc_arena" if "npc_arena" in names or not names else names[0],
            "offline": OFFLINE_JUDGE,
            "sees_all": bounds.is_open,
        }
        return renderer.render(request, "home.html", data | shown, data)

    return router


async def _load_runs(pages: RunPages | None, newest: Sequence[GroupSummary], bounds: KeyBounds) -> list[RunRow]:
    """Those with the newest groups, then others by name. A group may name a run that is not there."""
    if pages is None:
        return []
    recent = list(dict.fromkeys(one.run for one in newest if one.run is not None))[:SHOWN_RUNS]
    listed = await list_run_names(pages, bounds, SHOWN_RUNS)
    wanted = list(dict.fromkeys([*recent, *listed]))[:SHOWN_RUNS]
    rows = await asyncio.gather(*(load_row(pages, name, bounds) for name in wanted))
    return [row for row in rows if row is not None]


def warn_of_runs(rows: Sequence[RunRow]) -> Iterator[ServiceWarning]:
    for row in rows:
        path, budget = f"/view/runs/{row.run.name}", row.budget
        if row.run.held:
            yield ServiceWarning("run", row.run.name, "An alarm holds it: it is handed no tasks.", path)
        if budget is not None and budget.left_usd <= LEAST_BUDGET_SHARE * budget.usd:
            yield ServiceWarning(
                "budget",
                row.run.name,
                f"${budget.left_usd:.2f} of ${budget.usd:.2f} are left. Groups that no longer fit get no score.",
                path,
            )


async def _warn_of_service(
    pages: HomePages, environments: Sequence[EnvironmentEntry], judges: Sequence[JudgeEntry]
) -> list[ServiceWarning]:
    free = None if pages.free_bytes is None else await asyncio.to_thread(pages.free_bytes)
    return [*list_warnings(ServiceState(environments, judges, OFFLINE_JUDGE, pages.isolation(), free))]
