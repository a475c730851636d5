"""Every request has an id, is counted and timed by its route, and is answered even when the service fails."""

import asyncio
import random
import re
import traceback
from collections.abc import Callable
from time import perf_counter

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import get_contextvars

from app.http.web.problems import build_problem_response, make_printable
from app.ports.tracing import Tracer, bind_request, open_request_span

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

        with bind_request(request_id):
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


UNTRACED = frozenset({"/livez", "/readyz", "/metrics"})
"""Asked every few seconds by machines that look at nothing but the answer."""


class RequestSpans:
    """Opens a span for each request. It has the route, never the path or the query, which callers write."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNTRACED:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        traceparent = Headers(scope=scope).get("traceparent")
        with open_request_span(self._tracer, method, {"http.request.method": method}, traceparent) as span:

            async def watch(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route, status, bound = _find_route_template(scope), message["status"], get_contextvars()
                    known = route if route != UNMATCHED else None
                    span.rename(f"{method} {known}" if known else method)
                    span.describe({"http.route": known, "http.response.status_code": status})
                    span.describe({f"atropos.{name}": bound.get(name) for name in _LOGGED})
                    if status >= 500:
                        span.mark_failed(str(status))
                await send(message)

            await self._app(scope, receive, watch)


_LOGGED = ("request_id", "key", "environment", "run")
"""Fields of log lines that the span of a request has too."""


class UnexpectedFailures:
    """Answers unhandled exceptions with 500 without details, and logs the traceback. Answers 503 to requests that a
    stop breaks off, which the server would answer with 500: clients try the one again, and give up at the other."""

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
        except asyncio.CancelledError:
            if not started:
                detail = "The service is stopping. Send the request again."
                await build_problem_response(scope, 503, detail, headers={"Retry-After": "1"})(scope, receive, send)
            raise


def _find_route_template(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else UNMATCHED
