"""Requests to one OpenAI-compatible server through the `openai` package, which is imported by the first of them."""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from app.inference.endpoint import Endpoint, Reply

if TYPE_CHECKING:
    from app.inference.openai_client import OpenaiClient

CHAT_PATH: Final = "/chat/completions"


class Connection:
    """Opened by the first request. Time limits, retries and the number of requests at once are the caller's."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._client: OpenaiClient | None = None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def post(self, body: Mapping[str, JsonValue], path: str = CHAT_PATH) -> Reply:
        """NoReply when none came, or too large a one."""
        return await (await self._open()).post(path, body)

    async def get(self, path: str) -> Reply:
        """NoReply when none came, or too large a one."""
        return await (await self._open()).get(path)

    async def _open(self) -> "OpenaiClient":
        if self._client is None:
            client_type = await asyncio.to_thread(_import_client)
            if self._client is None:  # another request may have been faster
                self._client = client_type(self.endpoint)
        return self._client


def _import_client() -> "type[OpenaiClient]":
    """Takes half a second. Undoes what OPENAI_LOG does to logging meanwhile."""
    package, root = logging.getLogger("openai"), logging.getLogger()
    level, handlers = package.level, list(root.handlers)
    from app.inference.openai_client import OpenaiClient

    package.setLevel(level)
    root.handlers[:] = handlers
    return OpenaiClient
