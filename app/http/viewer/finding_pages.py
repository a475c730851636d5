"""The listing of groups: the newest, or what a filter finds, in the order of a column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from app.domain.groups import GroupFilter
from app.http.viewer.forms import FilterRoute
from app.http.viewer.group_filters import (
    ORDERS,
    OUTCOMES,
    PURPOSES,
    REASONS,
    FilterQuery,
    build_filter,
    list_unread,
)
from app.http.viewer.rendering import Renderer
from app.http.web.api_keys import CallerBounds
from app.ports.views import GroupViews
from app.toolkit.bar_charts import build_bar_chart

_COLUMNS: Final = (
    ("Time (UTC)", "time", ""),
    ("Environment", "environment", ""),
    ("Task", "task", "wide"),
    ("Run", "run", ""),
    ("Step", "step", "figure"),
    ("Mean", "mean", "figure"),
    ("Std", "std", "figure"),
    ("Rewards", "size", ""),
    ("Outcome", "outcome", ""),
)
_USUAL: Final = frozenset(("environment", "run", "outcome", "label", "text", "sort"))
"""What needs no unfolding."""


@dataclass(frozen=True)
class ColumnHead:
    """`sort` is what pressing it asks for, `state` what `aria-sort` says."""

    title: str
    kind: str
    sort: str
    state: str


def create_finding_router(views: GroupViews, renderer: Renderer, environments: Sequence[str]) -> APIRouter:
    """`environments` are choices; without them it is a text field."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute)

    @router.get("/view/groups")
    async def find(
        request: Request,
        bounds: CallerBounds,
        wanted: FilterQuery,
        before: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
        skip: Annotated[int, Query(ge=0, le=100_000)] = 0,
    ) -> Response:
        where = build_filter(wanted, before, bounds, skip)
        found = await views.find_groups(where)
        narrowed = wanted.list_given().keys() - {"sort"}
        shown = {
            "rows": [(one, build_bar_chart(one.rewards)) for one in found.groups],
            "found": found,
            "where": where,
            "words": wanted,
            "heads": build_heads(where),
            "unread": list_unread(wanted, where),
            "filtered": bool(narrowed),
            "unfolded": bool(narrowed - _USUAL),
            "more": _find_more(where, len(found.groups), found.matched),
            "outcomes": OUTCOMES,
            "purposes": PURPOSES,
            "reasons": REASONS,
            "orders": ORDERS,
            "environments": environments,
        }
        return renderer.render(request, "groups.html", shown, found)

    return router


def _find_more(where: GroupFilter, shown: int, matched: int) -> int | None:
    """How many to skip for the next page of what is sorted; None where all of it was shown, or nothing is sorted."""
    following = where.skip + shown
    return following if where.order is not None and following < matched else None


def build_heads(where: GroupFilter) -> tuple[ColumnHead, ...]:
    """Pressing a head sorts by it, the largest first; again the smallest first; again the newest first."""
    return tuple(ColumnHead(title, kind, *_tell_sort(where, name)) for title, name, kind in _COLUMNS)


def _tell_sort(where: GroupFilter, name: str) -> tuple[str, str]:
    if where.order != name:
        return f"-{name}", ""
    return (name, "descending") if where.descending else ("", "ascending")
