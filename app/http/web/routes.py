"""Our kinds of routes, and all that this service changes inside of FastAPI and Starlette.

Routes are built when they are first needed, read bodies strictly and refuse unknown parameters. Direct routes, which
trainers call all the time, are found without a search, and answered without what FastAPI does for others. A single
group is scored in less time than FastAPI needs to find its route, to solve dependencies that it has not, and to answer
through two stacks of contexts. Whatever is unusual about a request goes the usual way.

None of this is documented by FastAPI, so that another version may break it without a word: `TESTED_VERSIONS` says with
which it was tried, and `tests/http/web/test_routes.py` that it answers there as FastAPI alone does. Everything else
uses what is documented: a route's class, its `get_route_handler`, and `FastAPI.openapi`.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any, ClassVar, Final, get_args, get_origin, get_type_hints
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIRouter
from pydantic import BaseModel, ValidationError
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute, compile_path, get_name
from starlette.types import Message, Receive, Scope, Send

from app.domain.values import MEBIBYTE, remember
from app.http.web.api_keys import RequireGroup, build_gate
from app.http.web.bodies import BodyReader, JsonRequest
from app.http.web.problems import MAX_ERRORS

TESTED_VERSIONS: Final[Mapping[str, str]] = {"fastapi": "0.165.0", "starlette": "1.10.0"}

# Routes that are built late, and read strictly.


_BUILDING: Final = RLock()
"""One route at a time: the document is written in a thread while requests come."""


class LazyRoute(APIRoute):
    """FastAPI reads the signature of each route and builds validators for it, a millisecond each, which was most of the
    time of a start. Here the path and the methods are known at once; the rest is built before the first request, or
    when the document is written."""

    reads_strictly: ClassVar[bool] = False
    """Whether its requests are a JsonRequest with the route's reader: no other route may take a body as a model."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path, self.endpoint = path, endpoint
        self.name = options.get("name") or get_name(endpoint)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._options: dict[str, Any] | None = options

    def build(self) -> None:
        """Does what other routes do when they are made. The second time it does nothing."""
        with _BUILDING:
            options, self._options = self._options, None
            if options is not None:
                answers = (more.get("model") for more in (options.get("responses") or {}).values())
                _complete_models((*get_type_hints(self.endpoint).values(), options.get("response_model"), *answers))
                super().__init__(self.path, self.endpoint, **options)

    def create_reader(self) -> BodyReader | None:
        """None for routes without a body, or with one that is no model."""
        model = None if self.body_field is None else self.body_field.field_info.annotation
        return BodyReader(model) if isinstance(model, type) and issubclass(model, BaseModel) else None

    def __getattr__(self, name: str) -> Any:
        """Only what is not there yet is looked up here."""
        with _BUILDING:  # another thread may be at it, or just have done it
            if self.__dict__.get("_options") is not None:
                self.build()
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)


def _complete_models(kinds: Iterable[Any]) -> None:
    """Of models that put off their validators FastAPI's fields would put off theirs, and warn of their aliases then."""
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind.model_config["defer_build"] = False
            kind.model_rebuild()
        _complete_models(get_args(kind))


class ApiRoute(LazyRoute):
    """Route class of every API router: refuses query parameters that the route does not know."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        handle = super().get_route_handler()
        parameters = frozenset(_list_query_parameters(self.dependant))

        async def refuse_unknown_parameters(request: Request) -> Response:
            if unknown := [name for name in request.query_params if name not in parameters]:
                raise build_unknown_refusal(unknown, parameters)
            return await handle(request)

        return refuse_unknown_parameters


def build_unknown_refusal(names: Sequence[str], known: Collection[str]) -> RequestValidationError:
    """Of query parameters, as FastAPI refuses others."""
    context = {"known": sorted(known)}
    return RequestValidationError(
        [{"type": "extra_forbidden", "loc": ("query", name), "ctx": context} for name in names[:MAX_ERRORS]]
    )


def list_known_parameters(request: Request) -> frozenset[str]:
    """Of the query of the route that the request has found; none without one."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    return frozenset() if dependant is None else frozenset(_list_query_parameters(dependant))


def _list_query_parameters(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from (one.alias or name for name, one in annotation.model_fields.items())
        else:
            yield field.alias
    for one in dependant.dependencies:
        yield from _list_query_parameters(one)


class JsonRoute(ApiRoute):
    """Route class for every router that accepts JSON: `APIRouter(route_class=JsonRoute)`."""

    reads_strictly = True

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        handle = super().get_route_handler()
        reader = self.create_reader()

        async def read_strictly(request: Request) -> Response:
            strict = JsonRequest(request.scope, request.receive)
            strict.reader = reader
            return await handle(strict)

        return read_strictly


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


@remember(2 * MEBIBYTE)
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
    """Finds routes by their path, or by how it begins: the framework compares a path with each of some 280 routes.
    Direct routes are handled at once. Of all others, in their order, the framework's own router gets those that may
    match."""

    def __init__(self, router: APIRouter) -> None:
        self._by_path: dict[str, DirectRoute] = {}
        self._by_beginning: dict[str, list[DirectRoute]] = {}
        for route in router.routes:
            if isinstance(route, DirectRoute):
                beginning, parameter, _ = route.path.partition("{")
                if parameter:
                    self._by_beginning.setdefault(beginning, []).append(route)
                else:
                    self._by_path[route.path] = route
        self._beginnings = tuple(self._by_beginning)
        self._app = router.middleware_stack
        self._router = router
        firsts = {_find_first_part(route) for route in router.routes} - {None}
        self._by_first_part = {
            first: _narrow(router, [route for route in router.routes if _find_first_part(route) in {None, first}])
            for first in firsts
        }
        paths = {path for route in router.routes if "{" not in (path := getattr(route, "path", "{"))}
        self._by_whole_path = {path: self._narrow_to(path) for path in paths}

    def _narrow_to(self, path: str) -> APIRouter:
        routes = [route for route in self._router.routes if not _is_of_others(route, path)]
        return _narrow(self._router, routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = get_route_path(scope)
        route, parts = self._find_route(path, scope["method"])
        if route is not None:
            scope.update({"endpoint": route.endpoint, "path_params": parts, "route": route})
            await route.handle(scope, receive, send)
            return
        narrowed = self._by_whole_path.get(path) or self._by_first_part.get(_split_first_part(path))
        scope["router"] = self._router  # links are made by all routes
        await (self._app if narrowed is None else narrowed.app)(scope, receive, send)

    def _find_route(self, path: str, method: str) -> tuple[DirectRoute | None, dict[str, str]]:
        """With the parts of the path that it names."""
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


def _narrow(router: APIRouter, routes: Sequence[BaseRoute]) -> APIRouter:
    """A router that is the same but for its routes."""
    narrowed = copy(router)
    narrowed.routes = [*routes]
    return narrowed


def _split_first_part(path: str) -> str:
    return path[1:].partition("/")[0]


def _find_first_part(route: BaseRoute) -> str | None:
    """None where a path may begin with anything."""
    first = _split_first_part(getattr(route, "path", "/{"))
    return None if "{" in first or not first else first


def _is_of_others(route: BaseRoute, path: str) -> bool:
    """Whether this path, or what it is redirected to, can never lead to the route."""
    pattern = getattr(route, "path_regex", None)
    redirected = path.rstrip("/") if path.endswith("/") else f"{path}/"
    return pattern is not None and not pattern.match(path) and not pattern.match(redirected)


def install_routing(router: APIRouter, require_group: RequireGroup) -> None:
    """Guards every route, and indexes the direct ones. Call it once all routes are there: none may be replaced
    afterwards. `require_group` raises NotFound for a group of others. LookupError for a route of which nothing says who
    may reach it."""
    for route in router.routes:
        gate = build_gate(route, require_group)
        if gate is not None:
            # The routes are of several classes, of other packages too: what they share is this method.
            route.handle = partial(gate.handle, route.handle)  # type: ignore[method-assign]
    router.middleware_stack = _RouteIndex(router)
