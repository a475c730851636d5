"""Routes that trainers call all the time: found without a search, and answered without what FastAPI does for others.

A single group is scored in less time than FastAPI needs to find its route, to solve dependencies that it has not, and
to answer through two stacks of contexts. Whatever is unusual about a request goes the usual way."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from fastapi.routing import APIRouter
from pydantic import BaseModel
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.web.bodies import JsonRequest, JsonRoute


class DirectRoute(JsonRoute):
    """`POST` with a JSON body. The endpoint takes the model as `request` and the Request as `client`; whatever else it
    takes has a default, and comes from headers that are not plain."""

    def get_route_handler(self) -> Callable[..., Any]:
        self._reader = self.create_reader()
        return super().get_route_handler()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.build()
        if not _is_plain(scope):
            await super().handle(scope, receive, send)
            return
        request = JsonRequest(scope, receive)
        request.reader = self._reader
        try:
            body = await request.body()
        except ClientDisconnect as gone:
            raise HTTPException(400, "There was an error parsing the body") from gone
        if not body:
            await super().handle(scope, _receive_nothing, send)
            return
        answer = await self.endpoint(request=await request.json(), client=request)
        if isinstance(answer, Response):
            await answer(scope, receive, send)
        else:
            await _send_model(answer, send)


_PLAIN_TYPES: Final = frozenset({b"application/json", b"application/json; charset=utf-8"})
_UNUSUAL: Final = frozenset({b"idempotency-key"})
"""Headers that endpoints take."""


def _is_plain(scope: Scope) -> bool:
    """Whether it is a POST of JSON, with nothing in its query or headers that FastAPI would have to check."""
    if scope["method"] != "POST" or scope.get("query_string"):
        return False
    is_json = False
    for name, value in scope["headers"]:
        if name in _UNUSUAL:
            return False
        is_json = is_json or (name == b"content-type" and value.lower() in _PLAIN_TYPES)
    return is_json


async def _receive_nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send_model(answer: BaseModel, send: Send) -> None:
    content = answer.__pydantic_serializer__.to_json(answer, by_alias=True)
    headers = [(b"content-length", str(len(content)).encode()), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class RouteIndex:
    """Finds direct routes by their path. `app` tries all routes one after the other."""

    def __init__(self, routes: Iterable[BaseRoute], app: ASGIApp) -> None:
        self._by_path = {route.path: route for route in routes if isinstance(route, DirectRoute)}
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._by_path.get(get_route_path(scope)) if scope["type"] == "http" else None
        if route is None or scope["method"] not in (route.methods or ()):
            await self._app(scope, receive, send)
            return
        scope.update({"endpoint": route.endpoint, "path_params": {}, "route": route})
        await route.handle(scope, receive, send)


def index_direct_routes(router: APIRouter) -> None:
    """Once all routes are there, and guarded."""
    router.middleware_stack = RouteIndex(router.routes, router.middleware_stack)
