"""A quick way to the routes that trainers call all the time.

Direct routes are found without a search, and answered without what FastAPI does for others. A single group is scored in
less time than FastAPI needs to find its route, to solve dependencies that it has not, and to answer through two stacks
of contexts. Whatever is unusual about a request goes the usual way.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, get_origin
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

from app.http.web.bodies import BodyReader, JsonRequest, JsonRoute


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
