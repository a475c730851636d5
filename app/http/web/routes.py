"""Routes that trainers call all the time: found without a search, and answered without what FastAPI does for others.

A single group is scored in less time than FastAPI needs to find its route, to solve dependencies that it has not, and
to answer through two stacks of contexts. Whatever is unusual about a request goes the usual way.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final, Literal, get_origin
from urllib.parse import parse_qs

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRouter
from pydantic import BaseModel, ValidationError
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.access import AccessScope, Caller, KeyBounds
from app.domain.errors import Forbidden, RequestRefused
from app.http.web.api_keys import find_caller
from app.http.web.bodies import BodyReader, JsonRequest, JsonRoute
from app.http.web.problems import build_problem_response


@dataclass(frozen=True)
class DirectInputs:
    """What an endpoint takes: the names of its arguments."""

    reader: BodyReader
    body: str
    request: str | None
    query: str | None = None
    options: type[BaseModel] | None = None
    """The model of the query."""

    def read_query(self, given: bytes) -> Mapping[str, BaseModel] | None:
        """None for one that FastAPI has to look at."""
        if self.query is None or self.options is None:
            return None if given else {}
        options = _parse_query(self.options, given) if len(given) <= LONGEST_QUERY else None
        return None if options is None else {self.query: options}


class DirectRoute(JsonRoute):
    """`POST` with a JSON body. The endpoint takes its model, the Request if it likes, parts of the path as texts, and
    the query as one frozen model; whatever else it takes has a default, and comes from headers that are not plain. An
    endpoint that needs more is answered as others are."""

    def get_route_handler(self) -> Callable[..., Any]:
        self._inputs = self._list_inputs(self.dependant)
        return super().get_route_handler()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.build()
        inputs = self._inputs if _is_plain(scope) else None
        query = None if inputs is None else inputs.read_query(scope["query_string"])
        if inputs is None or query is None:
            await super().handle(scope, receive, send)
            return
        request = JsonRequest(scope, receive)
        request.reader = inputs.reader
        try:
            answer = await self.answer(request, inputs, query)
        except _NothingSent:
            await super().handle(scope, _receive_nothing, send)
            return
        if isinstance(answer, Response):
            await answer(scope, receive, send)
        else:
            await _send_model(answer, send)

    async def answer(
        self, request: JsonRequest, inputs: DirectInputs, query: Mapping[str, BaseModel]
    ) -> Response | BaseModel:
        """What the endpoint says."""
        try:
            if not await request.body():
                raise _NothingSent
        except ClientDisconnect as gone:
            raise HTTPException(400, "There was an error parsing the body") from gone
        given = {inputs.body: await request.json(), **query, **request.scope["path_params"]}
        if inputs.request is not None:
            given[inputs.request] = request
        said: Response | BaseModel = await self.endpoint(**given)
        return said

    def _list_inputs(self, taken: Dependant) -> DirectInputs | None:
        """None for an endpoint that needs what FastAPI does."""
        reader = self.create_reader()
        if reader is None or taken.dependencies or taken.cookie_params or len(taken.body_params) != 1:
            return None
        if any(part.field_info.annotation is not str or part.field_info.metadata for part in taken.path_params):
            return None
        body = taken.body_params[0].name
        if not taken.query_params:
            return DirectInputs(reader, body, taken.request_param_name)
        options = taken.query_params[0].field_info.annotation
        if len(taken.query_params) > 1 or not (isinstance(options, type) and issubclass(options, BaseModel)):
            return None
        return DirectInputs(reader, body, taken.request_param_name, taken.query_params[0].name, options)


class _NothingSent(Exception):
    pass


_PLAIN_TYPES: Final = frozenset({b"application/json", b"application/json; charset=utf-8"})
_UNUSUAL: Final = frozenset({b"idempotency-key"})
"""Headers that endpoints take."""
LONGEST_QUERY: Final = 1000
"""Bytes of a query that is kept with what it says: a trainer sends the same one with every sample."""


def _is_plain(scope: Scope) -> bool:
    """Whether it is a POST of JSON, with nothing in its headers that FastAPI would have to check."""
    if scope["method"] != "POST":
        return False
    is_json = False
    for name, value in scope["headers"]:
        if name in _UNUSUAL:
            return False
        is_json = is_json or (name == b"content-type" and value.lower() in _PLAIN_TYPES)
    return is_json


@lru_cache(maxsize=512)
def _parse_query(options: type[BaseModel], given: bytes) -> BaseModel | None:
    """None for a query with something wrong."""
    values: dict[str, str | list[str]] = {}
    for name, said in parse_qs(given.decode("latin-1"), keep_blank_values=True).items():
        field = options.model_fields.get(name)
        is_list = field is not None and get_origin(field.annotation) in {tuple, list}
        if field is None or field.alias is not None or (len(said) > 1 and not is_list):
            return None
        values[name] = said if is_list else said[0]
    try:
        return options.model_validate(values)
    except ValidationError:
        return None


async def _receive_nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send_model(answer: BaseModel, send: Send) -> None:
    content = answer.__pydantic_serializer__.to_json(answer, by_alias=True)
    headers = [(b"content-length", str(len(content)).encode()), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class RouteIndex:
    """Finds direct routes by their path, or by how it begins. `app` tries all routes one after the other."""

    def __init__(self, routes: Iterable[BaseRoute], app: ASGIApp) -> None:
        self._by_path: dict[str, DirectRoute] = {}
        self._by_beginning: dict[str, list[DirectRoute]] = {}
        for route in routes:
            if isinstance(route, DirectRoute):
                beginning, parameter, _ = route.path.partition("{")
                if parameter:
                    self._by_beginning.setdefault(beginning, []).append(route)
                else:
                    self._by_path[route.path] = route
        self._beginnings = tuple(self._by_beginning)
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, parts = self._find_route(scope) if scope["type"] == "http" else (None, {})
        if route is None:
            await self._app(scope, receive, send)
            return
        scope.update({"endpoint": route.endpoint, "path_params": parts, "route": route})
        await route.handle(scope, receive, send)

    def _find_route(self, scope: Scope) -> tuple[DirectRoute | None, dict[str, str]]:
        """With the parts of the path that it names."""
        path, method = get_route_path(scope), scope["method"]
        route = self._by_path.get(path)
        if route is not None:
            return (route, {}) if method in (route.methods or ()) else (None, {})
        if path.startswith(self._beginnings):
            for beginning, routes in self._by_beginning.items():
                for route in routes if path.startswith(beginning) else ():
                    match = route.path_regex.match(path)
                    if match is not None and method in (route.methods or ()):
                        return route, match.groupdict()
        return None, {}


def index_direct_routes(router: APIRouter) -> None:
    """Once all routes are there, and guarded."""
    router.middleware_stack = RouteIndex(router.routes, router.middleware_stack)


# Which scope each route needs, and where the bounds of a key are held: tables of all routes.


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
        GET /worlds/*/events/*/revisions
        GET /worlds/*/events/*/revisions/*
        GET /worlds/*/lorebooks/*/revisions
        GET /worlds/*/lorebooks/*/revisions/*
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
        GET /worlds/*/events/*/revisions
        GET /worlds/*/events/*/revisions/*
        GET /worlds/*/lorebooks
        GET /worlds/*/lorebooks/*
        GET /worlds/*/lorebooks/*/revisions
        GET /worlds/*/lorebooks/*/revisions/*
        POST /worlds/*/context
        POST /worlds/*/events
    """,
}
BOUND_BY: Final[Mapping[str, BoundKind]] = MappingProxyType(
    {place: kind for kind, lines in _BOUND.items() for place in _list_places(lines)}
)
"""Where a bound key is checked: in the path, or by the route's own handler. A route that is not here is closed to bound
keys."""


# Whether a key may ask a route, by its scopes and bounds.

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
        raise LookupError(f"no scope is set for {method} {path}: add it to app/http/web/routes.py")
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
