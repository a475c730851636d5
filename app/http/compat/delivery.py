"""A response that reports whether it was sent in full, and work that ends when its client disconnects."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_CHUNK = 64 * 1024

ResultT = TypeVar("ResultT")


class Delivery(Response):
    """Calls `settle` with True if the server accepted the whole body and the client had not disconnected before, and
    with False in every other case, failures included."""

    media_type = "application/json"

    def __init__(self, content: bytes, headers: dict[str, str], settle: Callable[[bool], Awaitable[None]]) -> None:
        super().__init__(content, headers=headers)
        self._settle = settle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = False
        try:
            sent = await self._send_body(receive, send)
        finally:
            await self._settle(sent)

    async def _send_body(self, receive: Receive, send: Send) -> bool:
        """The server blocks in `send` while its buffer is full. Trainers disconnect as soon as they have everything, so
        the connection is checked before the last byte; of what fills no buffer, before all of them."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = bytes(self.body)
        last = len(body) - 1 if len(body) > _CHUNK else 0
        for start in range(0, last, _CHUNK):
            chunk = body[start : min(start + _CHUNK, last)]
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if last:
            await send({"type": "http.response.body", "body": b"", "more_body": True})
        gone = await _has_disconnected(receive)
        await send({"type": "http.response.body", "body": body[last:], "more_body": False})
        return not gone


async def _has_disconnected(receive: Receive) -> bool:
    """Whether the client has disconnected; does not wait for it."""
    while True:
        asked = asyncio.ensure_future(receive())
        done, _ = await asyncio.wait({asked}, timeout=0.001)
        if not done:
            asked.cancel()
            return False
        if asked.result()["type"] == "http.disconnect":
            return True


async def wait_while_connected(working: "asyncio.Future[ResultT]", request: Request) -> ResultT | None:
    """Awaits `working`; None if the client disconnects first. It has ended in any case."""
    gone = asyncio.ensure_future(_await_disconnect(request))
    try:
        waited: set[asyncio.Future[Any]] = {working, gone}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        gone.cancel()
        working.cancel()
        await asyncio.wait({working})


async def _await_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
