"""Security of browsers: requests from other web sites are rejected, and what models wrote is never executed."""

from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.web.problems import build_problem_response

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
"""Accepted hosts of a service without a key on loopback. Other names that resolve to it are rejected (DNS
rebinding)."""

_ELSEWHERE = "Cross-origin requests are not allowed."


PAGES: Final = frozenset({"/", "/docs", "/favicon.svg"})
PAGES_BELOW: Final = "/view/"
"""What people look at in a browser. Opening a page changes nothing."""
_LINKED = "A link of another web site can only open pages, not what programs call. Type the address to see it."


def _is_page(scope: Scope) -> bool:
    path = str(scope.get("path", ""))
    return path in PAGES or path.startswith(PAGES_BELOW)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class SameOrigin:
    """Answers 403 to cross-origin requests and to a `Host` that is not in `hosts` (None: any). A link from another site
    gets our HTML pages alone: some routes for programs change something by GET. Programs send neither `Origin` nor
    `Sec-Fetch-Site`."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None = None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._find_refusal(scope) if scope["type"] in {"http", "websocket"} else None
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "cross-origin request"})
        else:
            await build_problem_response(scope, 403, refusal)(scope, receive, send)

    def _find_refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts is not None and _strip_port(host) not in self._hosts:
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


@lru_cache(maxsize=256)
def _strip_port(host: str) -> str:
    """The host without its port; brackets of an IPv6 address removed. Empty for what is no host, such as one with a
    user's name."""
    try:
        return "" if "@" in host else (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Only our own files, nothing inline. Swagger UI's style sheet holds its icons as `data:` images."""

_HEADERS = tuple(
    (name.lower().encode(), value.encode())
    for name, value in {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }.items()
)


class SecurityHeaders:
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
