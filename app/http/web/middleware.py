"""The middleware between the socket and the routes, in the required order.

From outside in: a request gets its id and its span, every response the security headers, a measurement by route, then
the checks of origin, of the key and of the body's size and time, and at last a net for failures. A stage further in may
rely on those further out: a refused origin has an id and is measured, and a failure never loses its headers.
"""

import asyncio
import random
import re
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from time import perf_counter
from typing import Any, Final, cast
from urllib.parse import urlsplit

import structlog
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import get_contextvars
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.domain.faults import make_printable
from app.domain.values import MEBIBYTE, remember
from app.http.web.api_keys import ALWAYS_OPEN, ApiKeys, KeyRing, ProxySignIn
from app.http.web.bodies import DEFAULT_MAX_BYTES
from app.http.web.openapi import install_openapi
from app.http.web.problems import RefusedBody, build_problem_response, install_problems
from app.ports.tracing import Tracer, bind_request, open_request_span

# Before all others: paths that clients build.


class PathRewriting:
    """Gives a request whose path begins with `prefix` the scope that `rewrite` makes of its own. No other request
    enters the code of the wire that asks for it."""

    def __init__(self, app: ASGIApp, prefix: str, rewrite: Callable[[Scope], Scope]) -> None:
        self._app = app
        self._prefix = prefix
        self._rewrite = rewrite

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._prefix):
            scope = self._rewrite(scope)
        await self._app(scope, receive, send)


# Ids, measurements and failures.

_HEADER = "X-Request-ID"
_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_log = structlog.get_logger(__name__)


class _RequestIds:
    """Keeps a request's `X-Request-ID` if it is 1 to 128 characters of `[A-Za-z0-9._-]`, else generates one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        proposed = Headers(scope=scope).get(_HEADER, "")
        request_id = proposed if _ACCEPTED.match(proposed) else f"{random.getrandbits(64):016x}"
        scope.setdefault("state", {})["request_id"] = request_id
        header = (_HEADER.lower().encode(), request_id.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        with bind_request(request_id):
            await self._app(scope, receive, send_with_id)


ObserveRequest = Callable[[str, str, int, float], None]
"""(route template, method, status, seconds). Never raises."""

_UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _Measurements:
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


_UNTRACED = frozenset({"/livez", "/readyz", "/metrics"})
"""Asked every few seconds by machines that look at nothing but the answer."""


class _RequestSpans:
    """Opens a span for each request. It has the route, never the path or the query, which callers write."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        traceparent = Headers(scope=scope).get("traceparent")
        with open_request_span(self._tracer, method, {"http.request.method": method}, traceparent) as span:

            async def watch(message: Message) -> None:
                if message["type"] == "http.response.start":
                    # The route, the key and the run are known only now: the span opened before any of them.
                    template, status, bound = _find_route_template(scope), message["status"], get_contextvars()
                    route = template if template != _UNMATCHED else None
                    span.rename(f"{method} {route}" if route else method)
                    span.describe({"http.route": route, "http.response.status_code": status})
                    span.describe({f"atropos.{name}": bound.get(name) for name in _LOGGED})
                    if status >= 500:
                        span.mark_failed(str(status))
                await send(message)

            await self._app(scope, receive, watch)


_LOGGED = ("request_id", "key", "environment", "run")
"""Fields of log lines that the span of a request has too."""


class _UnexpectedFailures:
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
            if started:  # a second response cannot be sent: the server cuts the connection off
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
    return path if isinstance(path, str) else _UNMATCHED


# Limits of what arrives: size, encoding and time.

_DEFAULT_SECONDS = 60.0


class _BodyLimits:
    """Answers 413 to bodies over `max_bytes`, announced or streamed. Answers 415 to any `Content-Encoding`, because a
    few kilobytes can expand to gigabytes; paths that start with `inflating` decompress gzip themselves, within the
    limit. Answers 408 to bodies that have not arrived after `seconds`."""

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int = DEFAULT_MAX_BYTES,
        inflating: tuple[str, ...] = (),
        seconds: float = _DEFAULT_SECONDS,
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._inflating = inflating
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity" and not (encoding == "gzip" and scope["path"].startswith(self._inflating)):
            detail = "Send the body uncompressed: Content-Encoding is not accepted."
            await build_problem_response(scope, 415, detail, headers={"Accept-Encoding": "identity"})(
                scope, receive, send
            )
            return
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self._max_bytes:
            await build_problem_response(scope, 413, self._detail)(scope, receive, send)
            return
        scope.setdefault("state", {})["max_body_bytes"] = self._max_bytes
        received, arriving, late = 0, True, False
        due = asyncio.get_running_loop().time() + self._seconds

        async def receive_limited() -> Message:
            nonlocal received, arriving, late
            if not arriving:
                return await receive()  # that the client has left
            try:
                async with asyncio.timeout_at(due):
                    message = await receive()
            except TimeoutError:
                late = True
                raise RefusedBody(408, self._late) from None
            received += len(message.get("body", b""))
            arriving = bool(message.get("more_body", False))
            if received > self._max_bytes:
                raise RefusedBody(413, self._detail)
            return message

        async def send_last(message: Message) -> None:
            # The rest of the body may still arrive: a connection that stays open would wait for it.
            if late and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive_limited, send_last)

    @property
    def _detail(self) -> str:
        return f"The body is larger than {self._max_bytes} bytes (the setting `max_body_bytes`)."

    @property
    def _late(self) -> str:
        return f"The body did not arrive within {self._seconds:g} s (the setting `request_seconds`)."


# Written to the socket: there is no request yet that an app could answer.
_LATE_HEADERS = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b"
)


_LONGEST_REST: Final = 0.25
"""Seconds. A reply may have taken longer because it waited for others, which takes no time of theirs."""


class _TimedProtocol(HttpToolsProtocol):
    """Closes a connection whose headers, or the body that nobody reads any more, take longer than `seconds` to arrive.
    uvicorn waits for them without end.

    Of requests that a client sends without waiting for replies, each begins after a rest, as long as the one before it
    took. uvicorn begins it at once, so that hundreds of large replies on one connection held up all others."""

    _timer: asyncio.TimerHandle | None = None
    _answers_headers = False
    _began = 0.0
    """When the last request began to be answered."""
    _is_resting = False

    def __init__(self, *args: Any, seconds: float = _DEFAULT_SECONDS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seconds = seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def on_response_complete(self) -> None:
        self._is_resting = True
        super().on_response_complete()
        self._is_resting = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._is_resting:
            rest = min(self.loop.time() - self._began, _LONGEST_REST)
            self.loop.call_later(rest, self._begin_after_rest, cycle, app)
        else:
            self._begin(cycle, app)

    def _begin_after_rest(self, cycle: RequestResponseCycle, app: Any) -> None:
        if not self.transport.is_closing():
            self._begin(cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._began = self.loop.time()
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._start_timer()  # even blank lines before a request keep a connection open
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start_timer()
        self._answers_headers = True

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._start_timer()
        self._answers_headers = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._stop_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.seconds, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_timer()  # it is being answered: _BodyLimits measures its body
            return
        if self._answers_headers:
            detail = b"The headers did not arrive within %g s (the setting `request_seconds`)." % self.seconds
            self.transport.write(_LATE_HEADERS % (len(detail), detail))
        self.transport.close()


def create_timed_protocol(seconds: float) -> type[_TimedProtocol]:
    """For uvicorn, which makes one for each connection itself, maybe in another process."""
    return cast(type[_TimedProtocol], partial(_TimedProtocol, seconds=seconds))


# Browsers: requests from other sites are refused, and what models wrote is never executed.

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
"""Accepted hosts of a service without a key on loopback. Other names that resolve to it are rejected (DNS
rebinding)."""

_ELSEWHERE = "Cross-origin requests are not allowed."
_PAGES: Final = frozenset({"/", "/docs", "/favicon.svg"})
_PAGES_BELOW: Final = "/view/"
"""What people look at in a browser. Opening a page changes nothing."""
_PROBES: Final = frozenset({"/livez", "/readyz"})
_LINKED = "A link of another web site can only open pages, not what programs call. Type the address to see it."


def _is_page(scope: Scope) -> bool:
    path = str(scope.get("path", ""))
    return path in _PAGES or path.startswith(_PAGES_BELOW)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _SameOrigin:
    """Answers 403 to cross-origin requests, but for those of `origins`, and to a `Host` that is not in `hosts` (None:
    any). A link from another site gets our HTML pages alone: some routes for programs change something by GET. Programs
    send neither `Origin` nor `Sec-Fetch-Site`."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: frozenset[str] | None = None,
        origins: frozenset[str] = frozenset(),
        proxy_header: str = "",
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = origins
        self._sign_in = frozenset({b"cookie", proxy_header.lower().encode()})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._find_refusal(scope) if scope["type"] in {"http", "websocket"} else None
        if refusal == _ELSEWHERE and Headers(scope=scope).get("origin") in self._origins:
            scope, refusal = self._leave_out_sign_in(scope), None
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "cross-origin request"})
        else:
            await build_problem_response(scope, 403, refusal)(scope, receive, send)

    def _leave_out_sign_in(self, scope: Scope) -> Scope:
        """Without what a browser sends along by itself, or a proxy for it: a page of another site acts with a key of
        its own, if with any."""
        headers = [
            (name, value)
            for name, value in scope["headers"]
            if name not in self._sign_in and not (name == b"authorization" and value[:6].lower() == b"basic ")
        ]
        return {**scope, "headers": headers}

    def _find_refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # Probes of a cluster name the address of the pod.
        if self._hosts is not None and _strip_port(host) not in self._hosts and scope["path"] not in _PROBES:
            return "The `Host` header is not an address of this service."
        site = headers.get("sec-fetch-site")
        if site is not None:  # set by the browser, so it is right behind proxies that change `Host` too
            linked = headers.get("sec-fetch-mode") == "navigate" and scope.get("method") in {"GET", "HEAD"}
            if linked and site not in {"same-origin", "none"}:
                return None if _is_page(scope) else _LINKED
            return None if site in {"same-origin", "none"} else _ELSEWHERE
        origin = headers.get("origin")
        if origin is not None and _parse_host(origin) != host.lower():
            return _ELSEWHERE
        return None


def _parse_host(origin: str) -> str:
    """`host:port` of an origin; empty for `null` and for invalid origins."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


@remember(MEBIBYTE)
def _strip_port(host: str) -> str:
    """The host without its port; brackets of an IPv6 address removed. Empty for what is no host, such as one with a
    user's name."""
    try:
        return "" if "@" in host else (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Only our own files, nothing inline. Swagger UI's style sheet holds its icons as `data:` images."""

_HEADERS = tuple(
    (name.lower().encode(), value.encode())
    for name, value in {
        "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }.items()
)


class _SecurityHeaders:
    """Adds the security headers to every response, JSON included, because a browser may open any URL."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def add_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self._app(scope, receive, add_headers)


def _ignore_request(route: str, method: str, status: int, seconds: float) -> None:
    pass


@dataclass(frozen=True)
class MiddlewareOptions:
    keys: KeyRing
    open_paths: frozenset[str] = ALWAYS_OPEN
    max_body_bytes: int = DEFAULT_MAX_BYTES
    observe: ObserveRequest = _ignore_request
    inflating: tuple[str, ...] = ()
    """Path prefixes of routes that decompress gzip themselves."""
    hosts: frozenset[str] | None = None
    """Accepted `Host` headers; None accepts any."""
    origins: frozenset[str] = frozenset()
    """Sites whose pages may call the API, in small letters."""
    environments: Collection[str] = ()
    """Names that have routes under `/envs`."""
    request_seconds: float = _DEFAULT_SECONDS
    proxy: ProxySignIn | None = None
    tracer: Tracer | None = None


def install_middleware(app: FastAPI, options: MiddlewareOptions) -> None:
    """Middleware added last is outermost: each request gets its id first, every response has the id and the security
    headers, and all others see a failure as a response."""
    install_openapi(app, keys_needed=not options.keys.anonymous, open_paths=options.open_paths)
    install_problems(app, options.environments)
    app.add_middleware(_UnexpectedFailures)
    app.add_middleware(
        _BodyLimits, max_bytes=options.max_body_bytes, inflating=options.inflating, seconds=options.request_seconds
    )
    # Without keys now there may be some later, where they are read from a store.
    if options.keys.may_change or not options.keys.anonymous:
        app.add_middleware(ApiKeys, ring=options.keys, open_paths=options.open_paths, proxy=options.proxy)
    if options.origins:
        # Outside of the check of keys: a browser asks first without one, and shows a page no refusal without a header.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[*options.origins],
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["*"],
        )
    header = "" if options.proxy is None else options.proxy.header
    app.add_middleware(_SameOrigin, hosts=options.hosts, origins=options.origins, proxy_header=header)
    app.add_middleware(_Measurements, observe=options.observe)
    app.add_middleware(_SecurityHeaders)
    if options.tracer is not None:
        app.add_middleware(_RequestSpans, tracer=options.tracer)
    app.add_middleware(_RequestIds)
