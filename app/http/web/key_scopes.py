"""Whether a key may ask a route, by its scopes and bounds."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.domain.access import AccessScope, Caller, KeyBounds
from app.domain.errors import Forbidden, RequestRefused
from app.http.web.api_keys import find_caller
from app.http.web.problems import build_problem_response
from app.http.web.route_scopes import BOUND_BY, SCOPES, BoundKind

Handle = Callable[[Scope, Receive, Send], Awaitable[None]]
RequireGroup = Callable[[KeyBounds, str], Awaitable[None]]

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
        raise LookupError(f"no scope is set for {method} {path}: add it to app/http/web/route_scopes.py")
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
