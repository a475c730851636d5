"""A reply that knows whether it went out in full."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_CHUNK = 64 * 1024


class Delivery(Response):
    """`settle` is told True once the server's last buffer took the end of the body and the client had not left before,
    and False in every other case, failures included."""

    media_type = "application/json"

    def __init__(self, content: bytes, headers: dict[str, str], settle: Callable[[bool], Awaitable[None]]) -> None:
        super().__init__(content, headers=headers)
        self._settle = settle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = False
        try:
            sent = await self._send(receive, send)
        finally:
            await self._settle(sent)

    async def _send(self, receive: Receive, send: Send) -> bool:
        """The server waits in `send` while its buffer is full. Trainers close their connection as soon as they have
        everything, so whether somebody is there is asked while one byte is missing."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = bytes(self.body)
        for start in range(0, len(body) - 1, _CHUNK):
            chunk = body[start : min(start + _CHUNK, len(body) - 1)]
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        gone = await _gone(receive)
        await send({"type": "http.response.body", "body": body[-1:], "more_body": False})
        return not gone


async def _gone(receive: Receive) -> bool:
    """Whether the client closed the connection, without waiting for it to do so."""
    while True:
        asked = asyncio.ensure_future(receive())
        done, _ = await asyncio.wait({asked}, timeout=0.001)
        if not done:
            asked.cancel()
            return False
        if asked.result()["type"] == "http.disconnect":
            return True
