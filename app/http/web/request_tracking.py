"""Every request has an id, is counted and timed by its route, and is answered even when the service fails."""

import random
import re
import traceback
from collections.abc import Callable
from time import perf_counter

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from app.http.web.problems import build_problem_response, make_printable

HEADER = "X-Request-ID"
_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_log = structlog.get_logger(__name__)


class RequestIds:
    """Keeps a request's `X-Request-ID` if it is 1 to 128 characters of `[A-Za-z0-9._-]`, else generates one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _ACCEPTED.match(given) else f"{random.getrandbits(64):016x}"
        scope.setdefault("state", {})["request_id"] = request_id
        header = (HEADER.lower().encode(), request_id.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        with bound_contextvars(request_id=request_id):
            await self._app(scope, receive, send_with_id)


ObserveRequest = Callable[[str, str, int, float], None]
"""(route template, method, status, seconds). Never raises."""

UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Measurements:
    """Reports each request to `observe`. Unknown paths and methods never become labels."""

    def __init__(self, app: ASGIApp, observe: ObserveRequest) -> None:
        self._app = app
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._observe(_find_route_template(scope), method, status, perf_counter() - started)


class UnexpectedFailures:
    """Answers unhandled exceptions with 500 without details, and logs the traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            _log.error(
                "request_failed",
                path=make_printable(scope["path"]),
                traceback="".join(traceback.format_exception(error)),
            )
            if started:
                raise
            response = build_problem_response(
                scope, 500, "Internal error. The service's log has the details under this request id."
            )
            await response(scope, receive, send)


def _find_route_template(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else UNMATCHED
