"""One id per request, the caller's or a new one, on every response and log line."""

import random
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

HEADER = "X-Request-ID"
_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")


def request_id_of(scope: Scope) -> str:
    """The id of the scope's request; empty outside of `RequestIds`."""
    return str(scope.get("state", {}).get("request_id", ""))


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

        async def echo(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        with bound_contextvars(request_id=request_id):
            await self._app(scope, receive, echo)
