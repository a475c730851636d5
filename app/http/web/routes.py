"""Routes: who may reach which, and a quick way to those that trainers call all the time.

Every route has one row in one table: the scope that a key needs, and where the bounds of a key are checked. A route
that has no row stops the start of the service, so that none is open because somebody forgot it.

Direct routes are found without a search, and answered without what FastAPI does for others. A single group is scored in
less time than FastAPI needs to find its route, to solve dependencies that it has not, and to answer through two stacks
of contexts. Whatever is unusual about a request goes the usual way.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, cast, get_args, get_origin
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

# Who may reach which route.
#
# Names that a caller gives are answered 403 with the bound, whether they exist or not; ids of others are 404, as if
# they were not there.

BoundKind = Literal["shared", "handler", "run", "group", "rollout", "world", "closed"]
"""Where the bounds of a key are checked. `shared`: nowhere, since everybody gets the same. `handler`: by the route.
`closed`: bound keys are refused. Others: the part of the path that is named so must be within the bounds."""


class RouteAccess(NamedTuple):
    scope: AccessScope
    bound: BoundKind


_ROUTES: Final[Mapping[AccessScope, str]] = {
    "read": """
        GET /                                            handler
        GET /characters                                  shared
        GET /docs                                        shared
        GET /docs/assets                                 shared
        GET /docs/start.js                               shared
        GET /envs                                        shared
        GET /envs/*                                      shared
        GET /export                                      handler
        GET /export/summary                              handler
        GET /favicon.svg                                 shared
        GET /groups                                      handler
        GET /groups/*                                    group
        GET /judges                                      handler
        GET /judges/*/agreement                          handler
        GET /openapi.json                                shared
        GET /runs                                        handler
        GET /runs/*                                      run
        GET /runs/*/health                               run
        GET /stats                                       handler
        GET /tasks/*                                     handler
        GET /view/assets/*/*                             shared
        GET /view/atropos                                handler
        GET /view/characters                             handler
        GET /view/characters/*                           handler
        GET /view/compare                                handler
        GET /view/export                                 handler
        GET /view/groups                                 handler
        GET /view/groups/*                               group
        GET /view/judges                                 handler
        GET /view/runs                                   handler
        GET /view/runs/*                                 run
        GET /view/stats                                  handler
        GET /view/worlds                                 handler
        GET /view/worlds/*                               world
        GET /view/worlds/*/why                           world
        GET /worlds                                      handler
        GET /worlds/*                                    world
        GET /worlds/*/events                             world
        GET /worlds/*/lorebooks                          world
        GET /worlds/*/lorebooks/*                        world
    """,
    "train": """
        GET,POST /envs/*/next-batch                      handler
        GET /quotas                                      shared
        POST /envs/*/score                               handler
        POST /envs/*/step                                handler
        POST /groups/*/rescore                           group
        POST /groups/*/rescore/estimate                  group
        POST /next-batch                                 handler
        POST /score                                      handler
        PUT /runs/*                                      run
        POST /runs/*/release                             run
    """,
    "label": """
        DELETE /labels/*                                 handler
        GET /view/label                                  handler
        POST /groups/*/labels                            group
        POST /labels/next                                handler
        POST /labels/skip                                handler
        POST /rollouts/*/labels                          rollout
        POST /view/label                                 handler
    """,
    "play": """
        DELETE /play/v1/turns                            handler
        DELETE /play/v1/turns/*                          handler
        GET /play/v1/models                              handler
        GET /play/v1/turns/*                             handler
        GET /view/talk                                   handler
        POST /play/v1/chat/completions                   handler
        POST /play/v1/turns/*/better                     handler
        POST /view/talk/*                                handler
        DELETE,PUT /worlds/*                             world
        DELETE,PUT /worlds/*/events/*                    world
        POST /worlds/*/context                           world
        POST /worlds/*/events                            world
    """,
    "author": """
        DELETE,PUT /characters/*                         closed
        DELETE,PUT /characters/*/scenes                  closed
        DELETE,PUT /worlds/*/lorebooks/*                 world
        GET /characters/*/revisions                      closed
        GET /characters/*/revisions/*                    closed
        GET /characters/*/scenes/revisions               closed
        GET /characters/*/scenes/revisions/*             closed
        GET /characters/*/scenes/text                    closed
        GET /characters/*/text                           closed
        GET /view/author                                 closed
        GET /view/worlds/*/write                         world
        GET /worlds/*/events/*/earlier                   world
        GET /worlds/*/events/*/earlier/*                 world
        GET /worlds/*/lorebooks/*/earlier                world
        GET /worlds/*/lorebooks/*/earlier/*              world
        GET,POST /characters/archive                     closed
        GET,POST /view/characters/*/edit                 closed
        GET,POST /view/characters/*/scenes/edit          closed
        GET,POST /view/worlds/*/events/*/edit            world
        GET,POST /view/worlds/*/lorebooks/*/edit         world
        POST /characters/*/check                         closed
        POST /characters/*/scenes/check                  closed
        POST /characters/import                          closed
        POST /play/v1/turns/*/judge                      closed
        POST /play/v1/turns/*/keep                       closed
        POST /view/talk/author/*                         closed
        POST /worlds/*/events/*/earlier/*/restore        world
        POST /worlds/*/lorebooks/*/earlier/*/restore     world
        POST /characters/reload                          closed
        POST /envs/*/try                                 closed
        POST /labels/import                              closed
    """,
    "metrics": """
        GET /metrics                                     closed
    """,
    "admin": """
        GET /admin/audit                                 closed
        GET,POST /admin/keys                             closed
        POST /admin/keys/*/revoke                        closed
        POST /admin/keys/*/rotate                        closed
        PUT /admin/keys/*/quotas                         closed
    """,
}


def _read_table() -> dict[str, RouteAccess]:
    """A row such as `GET,PUT /runs/*  run` is of two routes."""
    table: dict[str, RouteAccess] = {}
    for scope, lines in _ROUTES.items():
        for line in lines.strip().splitlines():
            methods, path, bound = line.split()
            if bound not in get_args(BoundKind):  # a misspelt one would check nothing
                raise LookupError(f"{bound} is no place where bounds are checked: {line.strip()}")
            access = RouteAccess(scope, cast(BoundKind, bound))
            table |= {f"{method} {path}": access for method in methods.split(",")}
    return table


ROUTE_ACCESS: Final[Mapping[str, RouteAccess]] = MappingProxyType(_read_table())
"""By method and path, whose parameters and environments are `*`."""

OPEN: Final = frozenset({"GET /livez", "GET /readyz", "GET /sign-in", "POST /sign-in", "POST /sign-out"})
"""Routes for everybody, with a key or without."""

_TRAINERS: Final = "/compat/"
"""Below it everything is for trainers' own clients."""
_ATROPOS: Final = "/compat/atropos"
_DEFAULT_QUEUE: Final = "default"
"""Of an Atropos path that names none."""

_RequireGroup = Callable[[KeyBounds, str], Awaitable[None]]
_Handle = Callable[[Scope, Receive, Send], Awaitable[None]]

_NO_ADMIN: Final = (
    "Without a key nobody is an admin here, though all else is open: whoever made keys now would have them for ever. "
    "Make the first one with `atropos-envs keys create`."
)
_PARAMETER: Final = re.compile(r"\{[^}]*\}")
_ENVIRONMENT: Final = re.compile(r"^/envs/[^/]+(?=/|$)")
_OWN_ROUTES: Final = re.compile(r"^/envs/(?P<name>[^/{]+)/")
"""Each environment has routes of its own."""


def find_scope(method: str, path: str) -> AccessScope | None:
    """Of a route by its template; None for one that is open. LookupError for one without a row."""
    if path.startswith(_TRAINERS):
        return "train"
    row = _name_row(method, path)
    if row in OPEN:
        return None
    if row not in ROUTE_ACCESS:
        raise LookupError(f"no scope is set for {method} {path}: add it to app/http/web/routes.py")
    return ROUTE_ACCESS[row].scope


def find_bound_kind(method: str, path: str) -> BoundKind | None:
    """None for a route that is closed to bound keys."""
    if path.startswith(_TRAINERS):
        return "run" if path.startswith(_ATROPOS) else "handler"
    access = ROUTE_ACCESS.get(_name_row(method, path))
    return None if access is None or access.bound == "closed" else access.bound


def _name_row(method: str, path: str) -> str:
    return f"{method} {_ENVIRONMENT.sub('/envs/*', _PARAMETER.sub('*', path))}"


def describe_scope(method: str, path: str) -> str:
    """For the documentation of a route; empty for one that is open or unknown."""
    try:
        scope = find_scope(method.upper(), path)
    except LookupError:
        return ""
    return "" if scope is None else f"A key needs the scope `{scope}`."


def list_methods(route: BaseRoute) -> list[str]:
    """Web sockets and mounted files count as GET; HEAD is guarded as GET."""
    return sorted((getattr(route, "methods", None) or {"GET"}) - {"HEAD"})


def guard_routes(routes: Iterable[BaseRoute], require_group: _RequireGroup) -> None:
    """Each route checks the caller's scope and bounds before anything else. `require_group` raises NotFound for a group
    of others. LookupError."""
    for route in routes:
        path = str(getattr(route, "path", ""))
        gates = {
            method: _RouteGate(scope, path, find_bound_kind(method, path), require_group)
            for method in list_methods(route)
            if (scope := find_scope(method, path)) is not None
        }
        if gates:
            # The routes are of several classes, of other packages too: what they share is this method.
            route.handle = partial(_handle_behind, gates, route.handle)  # type: ignore[method-assign]


@dataclass(frozen=True)
class _RouteGate:
    """What a caller of one method of a route needs."""

    needed: AccessScope
    path: str
    kind: BoundKind | None
    require_group: _RequireGroup

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
        # The environment is in the template of its own routes, and a parameter in those of trainers.
        own = _OWN_ROUTES.match(self.path)
        environment = own["name"] if own is not None else values.get("env") if self.kind != "shared" else None
        if environment is not None:
            bounds.require_environment(environment)
        if self.kind == "run":
            bounds.require_run(values.get("run", _DEFAULT_QUEUE))
        elif self.kind == "world":
            bounds.require_world(values["world"])
        elif self.kind in {"group", "rollout"}:
            # A rollout's id is its group's, a hyphen and its number.
            group_id = values.get("group_id") or values.get("rollout_id", "").rpartition("-")[0]
            await self.require_group(bounds, group_id)


async def _handle_behind(
    gates: Mapping[str, _RouteGate], handle: _Handle, scope: Scope, receive: Receive, send: Send
) -> None:
    method = str(scope.get("method", "GET"))
    gate = gates.get("GET" if method == "HEAD" else method)
    try:
        if gate is not None:
            await gate.check(find_caller(scope), scope.get("path_params", {}))
    except RequestRefused as refused:
        if scope["type"] == "websocket":
            # A close frame has room for 123 bytes of reason.
            await send({"type": "websocket.close", "code": 1008, "reason": refused.detail[:120]})
        else:
            await build_problem_response(scope, refused.status, refused.detail)(scope, receive, send)
        return
    await handle(scope, receive, send)


# The quick way to direct routes.


@dataclass(frozen=True)
class DirectInputs:
    """What an endpoint takes: the names of its arguments."""

    reader: BodyReader
    body: str
    request: str | None
    query: str | None = None
    options: type[BaseModel] | None = None
    """The model of the query."""

    def read_query(self, query_string: bytes) -> Mapping[str, BaseModel] | None:
        """None for one that FastAPI has to look at."""
        if self.query is None or self.options is None:
            return None if query_string else {}
        options = _parse_query(self.options, query_string) if len(query_string) <= _LONGEST_QUERY else None
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
            # FastAPI names the missing fields. The body was received already, so it gets an empty one.
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
        except ClientDisconnect as gone:  # as FastAPI answers it on the usual way
            raise HTTPException(400, "There was an error parsing the body") from gone
        arguments = {inputs.body: await request.json(), **query, **request.scope["path_params"]}
        if inputs.request is not None:
            arguments[inputs.request] = request
        response: Response | BaseModel = await self.endpoint(**arguments)
        return response

    def _list_inputs(self, dependant: Dependant) -> DirectInputs | None:
        """None for an endpoint that needs what FastAPI does."""
        reader = self.create_reader()
        if reader is None or dependant.dependencies or dependant.cookie_params or len(dependant.body_params) != 1:
            return None
        if any(part.field_info.annotation is not str or part.field_info.metadata for part in dependant.path_params):
            return None
        body = dependant.body_params[0].name
        if not dependant.query_params:
            return DirectInputs(reader, body, dependant.request_param_name)
        options = dependant.query_params[0].field_info.annotation
        if len(dependant.query_params) > 1 or not (isinstance(options, type) and issubclass(options, BaseModel)):
            return None
        return DirectInputs(reader, body, dependant.request_param_name, dependant.query_params[0].name, options)


class _NothingSent(Exception):
    pass


_PLAIN_TYPES: Final = frozenset({b"application/json", b"application/json; charset=utf-8"})
_ENDPOINT_HEADERS: Final = frozenset({b"idempotency-key"})
"""Headers that endpoints take, which FastAPI reads."""
_LONGEST_QUERY: Final = 1000
"""Bytes of a query that is kept with what it says: a trainer sends the same one with every sample."""


def _is_plain(scope: Scope) -> bool:
    """Whether it is a POST of JSON, with nothing in its headers that FastAPI would have to check."""
    if scope["method"] != "POST":
        return False
    is_json = False
    for name, value in scope["headers"]:
        if name in _ENDPOINT_HEADERS:
            return False
        is_json = is_json or (name == b"content-type" and value.lower() in _PLAIN_TYPES)
    return is_json


@lru_cache(maxsize=512)
def _parse_query(options: type[BaseModel], query_string: bytes) -> BaseModel | None:
    """None for a query with something wrong."""
    values: dict[str, str | list[str]] = {}
    for name, texts in parse_qs(query_string.decode("latin-1"), keep_blank_values=True).items():
        field = options.model_fields.get(name)
        is_list = field is not None and get_origin(field.annotation) in {tuple, list}
        if field is None or field.alias is not None or (len(texts) > 1 and not is_list):
            return None
        values[name] = texts if is_list else texts[0]
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


class _RouteIndex:
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
    """Call it once all routes are there, and guarded: the index holds what it finds then."""
    router.middleware_stack = _RouteIndex(router.routes, router.middleware_stack)
