"""Requests to one OpenAI-compatible server through the `openai` package, which is imported by the first of them."""

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from pydantic import JsonValue

from app.inference.endpoint import Endpoint, OpenReply, ServerReply

CHAT_PATH: Final = "/chat/completions"


class RequestSender(Protocol):
    """Of `app.inference.openai_client`."""

    async def post(self, path: str, body: Mapping[str, JsonValue]) -> ServerReply: ...

    async def get(self, path: str) -> ServerReply: ...

    async def open(self, path: str, body: Mapping[str, JsonValue]) -> OpenReply: ...

    async def close(self) -> None: ...


class Connection:
    """Opened by the first request. Time limits, retries and the number of requests at once are the caller's."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._sender: RequestSender | None = None

    async def aclose(self) -> None:
        if self._sender is not None:
            await self._sender.close()

    async def post(self, body: Mapping[str, JsonValue], path: str = CHAT_PATH) -> ServerReply:
        """NoReply when none came, or too large a one."""
        return await (await self._open()).post(path, body)

    async def open(self, body: Mapping[str, JsonValue], path: str = CHAT_PATH) -> OpenReply:
        """Returns when the reply begins. NoReply when none came."""
        return await (await self._open()).open(path, body)

    async def get(self, path: str) -> ServerReply:
        """NoReply when none came, or too large a one."""
        return await (await self._open()).get(path)

    async def prepare(self) -> None:
        """What the first request would wait for. NoReply for a URL that is none."""
        await self._open()

    async def _open(self) -> RequestSender:
        if self._sender is None:
            build = await asyncio.to_thread(_import_client)
            if self._sender is None:  # another request may have been faster
                self._sender = build(self.endpoint)
        return self._sender


def _import_client() -> Callable[[Endpoint], RequestSender]:
    """Takes half a second. Undoes what OPENAI_LOG does to logging meanwhile."""
    package, root = logging.getLogger("openai"), logging.getLogger()
    level, handlers = package.level, list(root.handlers)
    build: Callable[[Endpoint], RequestSender] = importlib.import_module("app.inference.openai_client").OpenaiClient
    package.setLevel(level)
    root.handlers[:] = handlers
    return build
