"""The viewer: the first page, signing in, the listing of groups, statistics, and the router of all pages."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypedDict

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse

from app.domain.access import KeyBounds
from app.domain.errors import Conflict
from app.domain.groups import GroupFilter, GroupSummary
from app.domain.tasks import Isolation
from app.domain.values import utc_now
from app.http.viewer.group_pages import (
    OFFLINE_JUDGE,
    FindRubric,
    create_group_page_router,
    find_no_rubric,
)
from app.http.viewer.judge_pages import (
    FindMeasurements,
    JudgePages,
    create_judge_pages_router,
    find_no_measurements,
)
from app.http.viewer.rendering import (
    OUTCOMES,
    PURPOSES,
    REASONS,
    FilterQuery,
    FilterRoute,
    MenuEntry,
    Renderer,
    ViewerParts,
    Word,
    add_root,
    build_filter,
    explain_environment,
    explain_unread,
    load_assets,
    pick_field,
    read_fields,
    redirect,
    wants_json,
)
from app.http.viewer.run_pages import RunPages, RunRow, list_run_names, load_rows, parse_run_name
from app.http.viewer.sentences import HELD, LEAST_BUDGET_SHARE, SPENT, end_sentence, tell_home
from app.http.web.api_keys import (
    CallerBounds,
    KeyRing,
    is_behind_tls,
    name_cookie,
    needs,
    open_to_all,
)
from app.http.web.routes import LazyRoute
from app.ports.environment import Clock
from app.service.access import KeyAdmin
from app.service.gateway import EnvironmentEntry, JudgeEntry, ServiceState, ServiceWarning, list_warnings, show_judges
from app.store.views import GroupViews
from app.toolkit.charts import build_bar_chart

# The first page: whether all is well, what trains, and what to do next.

_NEWEST: Final = 100
"""Groups by which runs are found that train."""
_SHOWN_GROUPS: Final = 6
_SHOWN_RUNS: Final = 8


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


def _create_home_router(pages: HomePages, renderer: Renderer, names: Sequence[str]) -> APIRouter:
    """`names` are those of the environments."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)

    @router.get("/")
    @needs("read", "handler")
    async def home(request: Request, bounds: CallerBounds) -> Response:
        if request.query_params.keys() - {"format"}:  # the list of groups was here, with its filters
            return RedirectResponse(add_root(request, f"/view/groups?{request.url.query}"))
        within = GroupFilter(limit=_NEWEST).within(bounds)
        newest = (await pages.views.find_groups(within)).groups
        rows = await _load_runs(pages.runs, newest, bounds)
        environments = [one for one in pages.environments() if bounds.allows_environment(one.name)]
        judges = show_judges(pages.judges(), bounds)
        warnings = [
            *warn_of_runs(rows),
            *(await _warn_of_service(pages, environments, judges) if bounds.is_open else ()),
        ]
        groups = newest[:_SHOWN_GROUPS]
        data: dict[str, object] = {
            "warnings": warnings,
            "runs": rows,
            "groups": groups,
            "judges": judges,
            "environments": environments,
        }
        shown: dict[str, object] = {
            "example": "npc_arena" if "npc_arena" in names or not names else names[0],
            "offline": OFFLINE_JUDGE,
            "says": tell_home(
                [(row.run.name, row.progress.state, row.attention) for row in rows],
                len(warnings),
                is_empty=not groups,
                sees_all=bounds.is_open,
            ),
        }
        return renderer.render(request, "home.html", data | shown, data)

    return router


async def _load_runs(pages: RunPages | None, newest: Sequence[GroupSummary], bounds: KeyBounds) -> list[RunRow]:
    """Those with the newest groups, then others by name. A group may name a run that is not there."""
    if pages is None:
        return []
    recent = list(dict.fromkeys(one.run for one in newest if one.run is not None))[:_SHOWN_RUNS]
    listed = await list_run_names(pages, bounds, _SHOWN_RUNS)
    names = list(dict.fromkeys([*recent, *listed]))[:_SHOWN_RUNS]
    return await load_rows(pages, names, bounds)


def warn_of_runs(rows: Sequence[RunRow]) -> Iterator[ServiceWarning]:
    """Of all that needs attention on the pages of these runs."""
    for row in rows:
        path, budget = f"/view/runs/{row.run.name}", row.budget
        if row.progress.state == "held":
            yield ServiceWarning("run", row.run.name, "An alarm holds it: it is handed no tasks.", path)
        if budget is not None and budget.left_usd <= LEAST_BUDGET_SHARE * budget.usd:
            yield ServiceWarning(
                "budget",
                row.run.name,
                f"${budget.left_usd:.2f} of ${budget.usd:.2f} are left. Groups that no longer fit get no score.",
                path,
            )
        for words in row.attention:
            if words not in {HELD, SPENT}:
                yield ServiceWarning("run", row.run.name, end_sentence(words), path)


async def _warn_of_service(
    pages: HomePages, environments: Sequence[EnvironmentEntry], judges: Sequence[JudgeEntry]
) -> list[ServiceWarning]:
    free = None if pages.free_bytes is None else await asyncio.to_thread(pages.free_bytes)
    return [*list_warnings(ServiceState(environments, judges, OFFLINE_JUDGE, pages.isolation(), free))]


# Signing in: people give their key once for a browser.

_MAX_FORM: Final = 10_000
_Next = Annotated[str, Query(max_length=4_000)]


def create_sign_in_router(ring: KeyRing, admin: KeyAdmin, renderer: Renderer, hours: float, per_key: int) -> APIRouter:
    """A browser stays signed in for `hours`, and `per_key` may be with one key."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)

    @router.get("/sign-in")
    @open_to_all
    async def ask_for_key(request: Request, next: _Next = "/") -> Response:  # noqa: A002  # the wire's word
        return renderer.render_page(request, "sign_in.html", {"next": choose_page(next), "problem": ""})

    @router.post("/sign-in")
    @open_to_all
    async def sign_in(request: Request) -> Response:
        form = await read_fields(request, _MAX_FORM)
        secret, target = pick_field(form, "key").strip(), choose_page(pick_field(form, "next"))
        await ring.refresh()  # the page is open, so nobody has asked for the keys before
        if ring.find_holder(secret) is None:
            shown = {"next": target, "problem": "This is no key of this service, or it is valid no more."}
            return renderer.render_page(request, "sign_in.html", shown, 403)
        try:
            value = await admin.begin_sign_in(secret, hours, per_key)
        except Conflict as error:
            shown = {"next": target, "problem": f"{error.detail}. Sign out in one of them first."}
            return renderer.render_page(request, "sign_in.html", shown, error.status)
        response = RedirectResponse(add_root(request, target), 303)
        response.set_cookie(name_cookie(request.scope), value, max_age=round(hours * 3600), **_limit_cookie(request))
        return response

    @router.post("/sign-out")
    @open_to_all
    async def sign_out(request: Request) -> Response:
        value = request.cookies.get(name_cookie(request.scope))
        # Cookies that nobody has, beside a key in the header, write nothing.
        if value is not None and await ring.find_sign_in(value) is not None:
            await admin.end_sign_in(value)
        response = RedirectResponse(add_root(request, "/sign-in"), 303)
        response.delete_cookie(name_cookie(request.scope), **_limit_cookie(request))
        return response

    return router


class _CookieLimits(TypedDict):
    path: str
    secure: bool
    httponly: bool
    samesite: Literal["strict"]


def _limit_cookie(request: Request) -> _CookieLimits:
    """For this service alone, and hidden from scripts. A link of another site comes without it."""
    secure = is_behind_tls(request.scope)
    # Browsers take a cookie whose name begins with `__Host-` for the whole host alone.
    path = "/" if secure else add_root(request, "") or "/"
    return {"path": path, "secure": secure, "httponly": True, "samesite": "strict"}


def choose_page(target: str) -> str:
    """A page of this service; the first one for an address that leads elsewhere."""
    local = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if local and "\\" not in target else "/"


# The listing of groups: the newest, or those of a filter.

_USUAL: Final = frozenset(("environment", "run", "outcome", "label", "text"))
"""What needs no unfolding."""


def _create_finding_router(
    views: GroupViews, renderer: Renderer, environments: Sequence[str], parts: ViewerParts
) -> APIRouter:
    """`environments` are choices; without them it is a text field."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute)

    @router.get("/view/groups")
    @needs("read", "handler")
    async def find(
        request: Request,
        bounds: CallerBounds,
        words: FilterQuery,
        before: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
    ) -> Response:
        where = build_filter(words, before, bounds)
        page = await views.find_groups(where)
        narrowed = words.list_given().keys()
        shown = {
            "rows": [(one, build_bar_chart(one.rewards)) for one in page.groups],
            "found": page,
            "where": where,
            "words": words,
            "unread": explain_unread(words),
            "no_environment": "" if page.groups else explain_environment(where.environment, environments),
            "filtered": bool(narrowed),
            "unfolded": bool(narrowed - _USUAL),
            "outcomes": OUTCOMES,
            "purposes": PURPOSES,
            "reasons": REASONS,
            "environments": environments,
            "links": parts.link_groups,
        }
        return renderer.render(request, "groups.html", shown, page)

    return router


# All pages.

_FOLDER: Final = Path(__file__).parent

_ViewerSection = Callable[[Renderer], APIRouter]


def create_viewer_router(
    views: GroupViews,
    environments: Sequence[str] = (),
    judges: Callable[[], Sequence[JudgeEntry]] = tuple,
    find_rubric: FindRubric = find_no_rubric,
    home: HomePages | None = None,
    sections: Sequence[_ViewerSection] = (),
    parts: ViewerParts = ViewerParts(),  # noqa: B008  # frozen
    menu: Sequence[MenuEntry] = (),
    templates: Sequence[Path] = (),
    clock: Clock = utc_now,
    find_measurements: FindMeasurements = find_no_measurements,
) -> APIRouter:
    """Pages at `/` and under `/view`. `environments` are the choices of a filter; without them it is a text field.
    `judges` lists the current judges, `find_measurements` what was measured of one. `find_rubric` finds what a group
    was judged by, `home` is what the first page shows, `sections` add pages. `parts`, `menu` and the folders
    `templates` are what features add; ages are told by `clock`."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute)
    assets = load_assets(_FOLDER / "static")
    renderer = Renderer([_FOLDER / "templates", *templates], assets.version, menu, clock)
    router.routes.extend(assets.router.routes)
    router.routes.extend(_create_home_router(home or HomePages(views, judges), renderer, environments).routes)
    router.routes.extend(_create_finding_router(views, renderer, environments, parts).routes)
    router.routes.extend(create_group_page_router(views, renderer, find_rubric, parts).routes)
    router.routes.extend(create_judge_pages_router(JudgePages(judges, find_measurements, parts), renderer).routes)
    for create_section in sections:
        router.routes.extend(create_section(renderer).routes)

    @router.get("/view/stats")
    @needs("read", "shared")
    async def statistics(request: Request, environment: Word = "", run: Word = "", by: Word = "") -> Response:
        """Statistics are on the pages of runs now."""
        format_ = "json" if wants_json(request) else ""
        name = parse_run_name(run.strip())
        path = "/view/runs" if name is None else f"/view/runs/{name}"
        split = by if name is not None else "environment"
        return redirect(request, path, environment=environment.strip(), by=split, format=format_)

    return router
