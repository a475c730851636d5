"""What people said to characters, and what policies answered. It is kept apart from training, for a while."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from pydantic import JsonValue

# Policies that people talk to, and the store of what they said.

ChatBody = Mapping[str, JsonValue]
"""A request in OpenAI's chat format, without a model."""
Chunk = dict[str, JsonValue]
"""One event of a streamed chat completion."""


class ReplyStream(Protocol):
    def __aiter__(self) -> AsyncIterator[Chunk]:
        """Unavailable where the stream breaks off, or tells of an error."""

    async def close(self) -> None:
        """Before the end it breaks off the policy's work."""


class PolicyServer(Protocol):
    """A model behind a URL."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str:
        """As its server names it."""

    @property
    def takes_tools(self) -> bool:
        """Whether its server reads calls of tools."""

    async def ask(self, body: ChatBody, *, continues: bool = False) -> Chunk:
        """A chat completion. `continues`: the last message is the beginning of the reply. Unavailable, InvalidRequest
        with the server's words."""

    async def stream(self, body: ChatBody, *, continues: bool = False) -> ReplyStream:
        """Returns with the first event of the reply. Unavailable, InvalidRequest with the server's words."""
