"""The server as uvicorn is told of it, in the one process or in each of several."""

import gc
from collections.abc import Callable
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.http.web.api_keys import PEER
from app.http.web.arrival import create_timed_protocol
from app.settings import Settings

KEEP_ALIVE_SECONDS = 75
"""Of a connection without requests. Longer than proxies keep theirs, which is a minute for most: whoever closes first
must be the proxy, or it sends a request into a closed connection and answers 502."""
SILENT_SECONDS = 60
"""A process that says nothing for so long is replaced. Importing the service on a busy machine takes a part of it."""


def build_config(settings: Settings, app: ASGIApp | Callable[[], ASGIApp], *, processes: int = 1) -> uvicorn.Config:
    """For several processes `app` makes the service in each of them."""
    return uvicorn.Config(
        app,
        factory=processes > 1,
        workers=processes,
        host=settings.host,
        port=settings.port,
        http=create_timed_protocol(settings.request_seconds),
        log_config=None,
        access_log=settings.log_level == "debug",
        server_header=False,
        proxy_headers=False,  # `keep_peers` does it
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_worker_healthcheck=SILENT_SECONDS,
        ws="websockets-sansio",
        ws_max_size=settings.max_body_bytes,
        ws_per_message_deflate=False,  # as request bodies: a few kilobytes could become gigabytes
        ws_ping_timeout=None,  # a client may learn for minutes, and answer nothing meanwhile
    )


def keep_peers(app: ASGIApp, trusted: list[str] | str) -> ASGIApp:
    """Takes a client's address and scheme from `X-Forwarded-*` of trusted proxies, as uvicorn does, and keeps the
    address of the connection itself."""
    # The two packages have types of their own for the same interface.
    rewritten = cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, app), trusted_hosts=trusted))

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await rewritten({**scope, PEER: scope.get("client")}, receive, send)

    return call


def tune_garbage_collection() -> None:
    """What a request makes dies with it by counting alone. Looking for cycles after every 700 objects, through
    everything that was ever loaded, took a fifth of the time of scoring. Everything waits for a look at the young
    ones, which are more than the first number by all that was let go meanwhile: tens of milliseconds where each
    look was only every sixth time at those that had been looked at before. At all of them it looks once in 50 million:
    that takes 0.2 s, and requests leave few cycles. A page of the viewer left all that it shows, until `Renderer` let
    go of it.
    """
    gc.freeze()
    gc.set_threshold(1_000, 0, 25_000)
    gc.enable()
