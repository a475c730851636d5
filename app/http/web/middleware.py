"""The middleware between the socket and the routes, in the required order."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from fastapi import FastAPI

from app.http.web.api_keys import ALWAYS_OPEN, ApiKeys, KeyRing, ProxySignIn
from app.http.web.arrival import DEFAULT_SECONDS, BodyLimits
from app.http.web.bodies import DEFAULT_MAX_BYTES
from app.http.web.browser_protection import SameOrigin, SecurityHeaders
from app.http.web.openapi import install_openapi
from app.http.web.problems import install_problems
from app.http.web.request_tracking import Measurements, RequestIds, RequestSpans, UnexpectedFailures
from app.ports.tracing import Tracer


def _ignore_request(route: str, method: str, status: int, seconds: float) -> None:
    pass


@dataclass(frozen=True)
class MiddlewareOptions:
    keys: KeyRing
    open_paths: frozenset[str] = ALWAYS_OPEN
    max_body_bytes: int = DEFAULT_MAX_BYTES
    observe: Callable[[str, str, int, float], None] = _ignore_request
    inflating: tuple[str, ...] = ()
    """Path prefixes of routes that decompress gzip themselves."""
    hosts: frozenset[str] | None = None
    """Accepted `Host` headers; None accepts any."""
    environments: Collection[str] = ()
    """Names that have routes under `/envs`."""
    request_seconds: float = DEFAULT_SECONDS
    proxy: ProxySignIn | None = None
    tracer: Tracer | None = None


def install_middleware(app: FastAPI, door: MiddlewareOptions) -> None:
    """Middleware added last is outermost: each request gets its id first, every response has the id and the security
    headers, and all others see a failure as a response."""
    install_openapi(app, keys_needed=not door.keys.anonymous, open_paths=door.open_paths)
    install_problems(app, door.environments)
    app.add_middleware(UnexpectedFailures)
    app.add_middleware(
        BodyLimits, max_bytes=door.max_body_bytes, inflating=door.inflating, seconds=door.request_seconds
    )
    if door.keys.may_change or not door.keys.anonymous:
        app.add_middleware(ApiKeys, ring=door.keys, open_paths=door.open_paths, proxy=door.proxy)
    app.add_middleware(SameOrigin, hosts=door.hosts)
    app.add_middleware(Measurements, observe=door.observe)
    app.add_middleware(SecurityHeaders)
    if door.tracer is not None:
        app.add_middleware(RequestSpans, tracer=door.tracer)
    app.add_middleware(RequestIds)
