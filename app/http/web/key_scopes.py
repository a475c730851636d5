"""Which scope a key needs for which route. A route without an entry keeps the service from starting."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, Literal

from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.domain.access import AccessScope, Caller, KeyBounds
from app.domain.errors import Forbidden, RequestRefused
from app.http.web.api_keys import find_caller
from app.http.web.problems import build_problem_response

Handle = Callable[[Scope, Receive, Send], Awaitable[None]]
RequireGroup = Callable[[KeyBounds, str], Awaitable[None]]


def _list_places(lines: str) -> list[str]:
    """`GET,PUT /runs/*` is two."""
    told = [line.split() for line in lines.strip().splitlines()]
    return [f"{method} {path}" for methods, path in told for method in methods.split(",")]


_SHARED: Final[Mapping[AccessScope, str]] = {
    "read": """
        GET /
        GET /characters
        GET /docs
        GET /docs/assets
        GET /docs/start.js
        GET /envs
        GET /envs/*
        GET /export
        GET /export/summary
        GET /favicon.svg
        GET /groups
        GET /groups/*
        GET /judges
        GET /judges/*/agreement
        GET /openapi.json
        GET /runs
        GET /runs/*
        GET /runs/*/health
        GET /stats
        GET /tasks/*
        GET /view/assets/*/*
        GET /view/atropos
        GET /view/characters
        GET /view/characters/*
        GET /view/compare
        GET /view/export
        GET /view/groups
        GET /view/groups/*
        GET /view/judges
        GET /view/runs
        GET /view/runs/*
        GET /view/stats
        GET /view/worlds
        GET /view/worlds/*
        GET /view/worlds/*/why
        GET /worlds
        GET /worlds/*
        GET /worlds/*/events
        GET /worlds/*/lorebooks
        GET /worlds/*/lorebooks/*
    """,
    "train": """
        GET,POST /envs/*/next-batch
        GET /quotas
        POST /envs/*/score
        POST /envs/*/step
        POST /groups/*/rescore
        POST /groups/*/rescore/estimate
        POST /next-batch
        POST /score
        PUT /runs/*
        POST /runs/*/release
    """,
    "label": """
        DELETE /labels/*
        GET /view/label
        POST /groups/*/labels
        POST /labels/next
        POST /labels/skip
        POST /rollouts/*/labels
        POST /view/label
    """,
    "play": """
        DELETE /play/v1/turns
        DELETE /play/v1/turns/*
        GET /play/v1/models
        GET /play/v1/turns/*
        GET /view/talk
        POST /play/v1/chat/completions
        POST /play/v1/turns/*/better
        POST /view/talk/*
        DELETE,PUT /worlds/*
        DELETE,PUT /worlds/*/events/*
        POST /worlds/*/context
        POST /worlds/*/events
    """,
    "author": """
        DELETE,PUT /characters/*
        DELETE,PUT /characters/*/scenes
        DELETE,PUT /worlds/*/lorebooks/*
        GET /characters/*/revisions
        GET /characters/*/revisions/*
        GET /characters/*/scenes/revisions
        GET /characters/*/scenes/revisions/*
        GET /characters/*/scenes/text
        GET /characters/*/text
        GET /view/author
        GET /view/worlds/*/write
        GET,POST /characters/archive
        GET,POST /view/characters/*/edit
        GET,POST /view/characters/*/scenes/edit
        GET,POST /view/worlds/*/events/*/edit
        GET,POST /view/worlds/*/lorebooks/*/edit
        POST /characters/*/check
        POST /characters/*/scenes/check
        POST /characters/import
        POST /play/v1/turns/*/judge
        POST /play/v1/turns/*/keep
        POST /view/talk/author/*
        POST /characters/reload
        POST /envs/*/try
        POST /labels/import
    """,
    "metrics": "GET /metrics",
    "admin": """
        GET /admin/audit
        GET,POST /admin/keys
        POST /admin/keys/*/revoke
        POST /admin/keys/*/rotate
        PUT /admin/keys/*/quotas
    """,
}
SCOPES: Final[Mapping[str, AccessScope]] = MappingProxyType(
    {place: scope for scope, lines in _SHARED.items() for place in _list_places(lines)}
)
"""By method and path, whose parameters and environments are `*`."""
BoundKind = Literal["shared", "handler", "run", "group", "rollout", "world"]
_BOUND: Final[Mapping[BoundKind, str]] = {
    "shared": """
        GET /characters
        GET /docs
        GET /docs/assets
        GET /docs/start.js
        GET /envs
        GET /envs/*
        GET /favicon.svg
        GET /openapi.json
        GET /quotas
        GET /view/assets/*/*
    """,
    "handler": """
        DELETE /play/v1/turns
        DELETE /play/v1/turns/*
        GET /play/v1/models
        GET /play/v1/turns/*
        GET /view/talk
        POST /play/v1/chat/completions
        POST /play/v1/turns/*/better
        POST /view/talk/*
        DELETE /labels/*
        GET /
        GET,POST /envs/*/next-batch
        GET /export
        GET /export/summary
        GET /groups
        GET /judges
        GET /judges/*/agreement
        GET /runs
        GET /stats
        GET /tasks/*
        GET /view/atropos
        GET /view/characters
        GET /view/characters/*
        GET /view/compare
        GET /view/export
        GET /view/groups
        GET /view/judges
        GET /view/label
        GET /view/runs
        GET /view/stats
        GET /view/worlds
        GET /worlds
        POST /envs/*/score
        POST /envs/*/step
        POST /labels/next
        POST /labels/skip
        POST /next-batch
        POST /score
        POST /view/label
    """,
    "run": """
        GET /runs/*
        GET /runs/*/health
        GET /view/runs/*
        POST /runs/*/release
        PUT /runs/*
    """,
    "group": """
        GET /groups/*
        GET /view/groups/*
        POST /groups/*/labels
        POST /groups/*/rescore
        POST /groups/*/rescore/estimate
    """,
    "rollout": "POST /rollouts/*/labels",
    "world": """
        DELETE,PUT /worlds/*
        DELETE,PUT /worlds/*/events/*
        DELETE,PUT /worlds/*/lorebooks/*
        GET /view/worlds/*
        GET,POST /view/worlds/*/events/*/edit
        GET,POST /view/worlds/*/lorebooks/*/edit
        GET /view/worlds/*/why
        GET /view/worlds/*/write
        GET /worlds/*
        GET /worlds/*/events
        GET /worlds/*/lorebooks
        GET /worlds/*/lorebooks/*
        POST /worlds/*/context
        POST /worlds/*/events
    """,
}
BOUND_BY: Final[Mapping[str, BoundKind]] = MappingProxyType(
    {place: kind for kind, lines in _BOUND.items() for place in _list_places(lines)}
)
"""Where a bound key is checked: in the path, or by the route's own handler. A route that is not here is closed to bound
keys."""
OPEN: Final = frozenset({"GET /livez", "GET /readyz", "GET /sign-in", "POST /sign-in", "POST /sign-out"})
TRAINERS: Final = "/compat/"
"""Below it everything is for trainers' own clients."""
ATROPOS: Final = "/compat/atropos"
DEFAULT_QUEUE: Final = "default"
"""Of an Atropos path that names none."""

_NO_ADMIN: Final = (
    "Without a key nobody is an admin here, though all else is open: whoever made keys now would have them for ever. "
    "Make the first one with `atropos-envs keys create`."
)
_PARAMETER: Final = re.compile(r"\{[^}]*\}")
_ENVIRONMENT: Final = re.compile(r"^/envs/[^/]+(?=/|$)")
_OWN_ROUTES: Final = re.compile(r"^/envs/(?P<name>[^/{]+)/")
"""Each environment has routes of its own."""


def find_scope(method: str, path: str) -> AccessScope | None:
    """Of a route by its template; None for one that is open. LookupError for one that nobody has placed."""
    if path.startswith(TRAINERS):
        return "train"
    place = _find_place(method, path)
    if place in OPEN:
        return None
    if place not in SCOPES:
        raise LookupError(f"no scope is set for {method} {path}: add it to app/http/web/key_scopes.py")
    return SCOPES[place]


def find_bound_kind(method: str, path: str) -> BoundKind | None:
    """None for a route that is closed to bound keys."""
    if path.startswith(TRAINERS):
        return "run" if path.startswith(ATROPOS) else "handler"
    return BOUND_BY.get(_find_place(method, path))


def _find_place(method: str, path: str) -> str:
    return f"{method} {_ENVIRONMENT.sub('/envs/*', _PARAMETER.sub('*', path))}"


def describe_scope(method: str, path: str) -> str:
    """For the documentation of a route; empty for one that is open or unknown."""
    try:
        scope = find_scope(method.upper(), path)
    except LookupError:
        return ""
    return "" if scope is None else f"A key needs the scope `{scope}`."


def list_methods(route: BaseRoute) -> list[str]:
    """Web sockets and mounted files count as GET."""
    return sorted((getattr(route, "methods", None) or {"GET"}) - {"HEAD"})


def guard_routes(routes: Iterable[BaseRoute], require_group: RequireGroup) -> None:
    """Each route checks the caller's scope and bounds before anything else. `require_group` raises NotFound for a group
    of others. LookupError."""
    for route in routes:
        path = str(getattr(route, "path", ""))
        gates = {
            method: RouteGate(scope, path, find_bound_kind(method, path), require_group)
            for method in list_methods(route)
            if (scope := find_scope(method, path)) is not None
        }
        if gates:
            # The routes are of several classes, of other packages too: what they share is this method.
            route.handle = partial(_handle_behind, gates, route.handle)  # type: ignore[method-assign]


@dataclass(frozen=True)
class RouteGate:
    """What a caller of one method of a route needs."""

    needed: AccessScope
    path: str
    kind: BoundKind | None
    require_group: RequireGroup

    async def check(self, caller: Caller | None, values: Mapping[str, str]) -> None:
        """Forbidden; NotFound for what is of others."""
        if caller is None:
            if self.needed == "admin":
                raise Forbidden(_NO_ADMIN)
            return
        if not caller.has(self.needed):
            raise Forbidden(f"The key {caller.name!r} lacks the scope `{self.needed}`, which this needs.")
        if not caller.bounds.is_open:
            await self._check_bounds(caller, values)

    async def _check_bounds(self, caller: Caller, values: Mapping[str, str]) -> None:
        bounds = caller.bounds
        if self.kind is None:
            raise Forbidden(f"The key {caller.name!r} is bound to parts of the service, and this is of all of it.")
        own = _OWN_ROUTES.match(self.path)
        environment = own["name"] if own is not None else values.get("env") if self.kind != "shared" else None
        if environment is not None:
            bounds.require_environment(environment)
        if self.kind == "run":
            bounds.require_run(values.get("run", DEFAULT_QUEUE))
        elif self.kind == "world":
            bounds.require_world(values["world"])
        elif self.kind in {"group", "rollout"}:
            named = values.get("group_id") or values.get("rollout_id", "").rpartition("-")[0]
            await self.require_group(bounds, named)


async def _handle_behind(
    gates: Mapping[str, RouteGate], handle: Handle, scope: Scope, receive: Receive, send: Send
) -> None:
    method = str(scope.get("method", "GET"))
    gate = gates.get("GET" if method == "HEAD" else method)
    try:
        if gate is not None:
            await gate.check(find_caller(scope), scope.get("path_params", {}))
    except RequestRefused as refused:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refused.detail[:120]})
        else:
            await build_problem_response(scope, refused.status, refused.detail)(scope, receive, send)
        return
    await handle(scope, receive, send)
