"""Who may reach which route.

Every route says where it is declared which scope a key needs, and where the bounds of a key are checked: `@needs` of
its endpoint, or `declare_access` of a router in which nothing differs. A route of which nothing is said stops the start
of the service, so that none is open because somebody forgot it.

Names that a caller gives are answered 403 with the bound, whether they exist or not; ids of others are 404, as if they
were not there.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.domain.access import AccessScope, Caller, KeyBounds
from app.domain.errors import Forbidden, RequestRefused
from app.http.web.api_keys import find_caller
from app.http.web.problems import build_problem_response

BoundKind = Literal["shared", "handler", "run", "group", "rollout", "world", "closed"]
"""Where the bounds of a key are checked. `shared`: nowhere, since everybody gets the same. `handler`: by the route.
`closed`: bound keys are refused. Others: the part of the path that is named so must be within the bounds."""


class RouteAccess(NamedTuple):
    scope: AccessScope | None
    """None: everybody may come, with a key or without."""
    bound: BoundKind


EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])

_ACCESS: Final = "route_access"
"""What endpoints, and routes that have none of their own, keep it under."""


def needs(scope: AccessScope, bound: BoundKind) -> Callable[[EndpointT], EndpointT]:
    """Says of an endpoint what a key needs to reach it."""

    def declare(endpoint: EndpointT) -> EndpointT:
        return _declare(endpoint, RouteAccess(scope, bound))

    return declare


def open_to_all(endpoint: EndpointT) -> EndpointT:
    """Says of an endpoint that everybody may come, with a key or without."""
    return _declare(endpoint, RouteAccess(None, "shared"))


def _declare(endpoint: EndpointT, access: RouteAccess) -> EndpointT:
    setattr(endpoint, _ACCESS, access)
    return endpoint


def declare_access(routes: Iterable[BaseRoute], scope: AccessScope, bound: BoundKind) -> None:
    """Says it of all these routes, but for those whose endpoint says something itself."""
    for route in routes:
        vars(route)[_ACCESS] = RouteAccess(scope, bound)


def find_access(route: BaseRoute) -> RouteAccess:
    """LookupError for a route of which nothing is said, or something that would check nothing."""
    access = _find_declared(route)
    where = f"{' '.join(list_methods(route))} {vars(route).get('path', '')}"
    if access is None:
        raise LookupError(f"no scope is set for {where}: say with @needs what a key needs to reach it")
    if access.bound not in get_args(BoundKind):
        raise LookupError(f"{access.bound} is no place where bounds are checked: {where}")
    return access


def _find_declared(route: BaseRoute) -> RouteAccess | None:
    kept = vars(route)  # the attributes that are there: asking for others builds a route that puts that off
    declared: RouteAccess | None = getattr(kept.get("endpoint"), _ACCESS, None) or kept.get(_ACCESS)
    return declared


def list_methods(route: BaseRoute) -> list[str]:
    """Web sockets and mounted files count as GET; HEAD is guarded as GET."""
    return sorted((vars(route).get("methods") or {"GET"}) - {"HEAD"})


def describe_scopes(routes: Iterable[BaseRoute]) -> dict[tuple[str, str], str]:
    """By path and method, in small letters, of the documentation."""
    shown = [(route, _find_declared(route)) for route in routes if vars(route).get("include_in_schema")]
    return {
        (vars(route)["path_format"], method.lower()): f"A key needs the scope `{access.scope}`."
        for route, access in shown
        if access is not None and access.scope is not None
        for method in list_methods(route)
    }


RequireGroup = Callable[[KeyBounds, str], Awaitable[None]]
_Handle = Callable[[Scope, Receive, Send], Awaitable[None]]

_NO_ADMIN: Final = (
    "Without a key nobody is an admin here, though all else is open: whoever made keys now would have them for ever. "
    "Make the first one with `atropos-envs keys create`."
)
_OWN_ROUTES: Final = re.compile(r"^/envs/(?P<name>[^/{]+)/")
"""Each environment has routes of its own."""
_DEFAULT_QUEUE: Final = "default"
"""Of an Atropos path that names none."""


def guard_routes(routes: Iterable[BaseRoute], require_group: RequireGroup) -> None:
    """Each route checks the caller's scope and bounds before anything else. `require_group` raises NotFound for a group
    of others. LookupError."""
    for route in routes:
        scope, bound = find_access(route)
        if scope is not None:
            path, methods = str(vars(route)["path"]), frozenset(list_methods(route))
            gate = _RouteGate(scope, bound, path, methods, require_group)
            # The routes are of several classes, of other packages too: what they share is this method.
            route.handle = partial(_handle_behind, gate, route.handle)  # type: ignore[method-assign]


@dataclass(frozen=True)
class _RouteGate:
    """What a caller of a route needs."""

    needed: AccessScope
    bound: BoundKind
    path: str
    methods: frozenset[str]
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
        if self.bound == "closed":
            raise Forbidden(f"The key {caller.name!r} is bound to parts of the service, and this is of all of it.")
        # The environment is in the template of its own routes, and a parameter in those of trainers.
        own = _OWN_ROUTES.match(self.path)
        environment = own["name"] if own is not None else values.get("env") if self.bound != "shared" else None
        if environment is not None:
            bounds.require_environment(environment)
        if self.bound == "run":
            bounds.require_run(values.get("run", _DEFAULT_QUEUE))
        elif self.bound == "world":
            bounds.require_world(values["world"])
        elif self.bound in {"group", "rollout"}:
            # A rollout's id is its group's, a hyphen and its number.
            group_id = values.get("group_id") or values.get("rollout_id", "").rpartition("-")[0]
            await self.require_group(bounds, group_id)


async def _handle_behind(gate: _RouteGate, handle: _Handle, scope: Scope, receive: Receive, send: Send) -> None:
    method = str(scope.get("method", "GET"))
    try:
        if ("GET" if method == "HEAD" else method) in gate.methods:
            await gate.check(find_caller(scope), scope.get("path_params", {}))
    except RequestRefused as refused:
        if scope["type"] == "websocket":
            # A close frame has room for 123 bytes of reason.
            await send({"type": "websocket.close", "code": 1008, "reason": refused.detail[:120]})
        else:
            await build_problem_response(scope, refused.status, refused.detail)(scope, receive, send)
        return
    await handle(scope, receive, send)
