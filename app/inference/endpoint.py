"""One OpenAI-compatible server, and what it answers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from app.inference.credentials import Credentials

LARGEST_REPLY: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class Endpoint:
    """`base_url` excludes `/chat/completions`. With an `api_version` the server is Azure OpenAI: `base_url` is the
    resource, or a deployment of it."""

    base_url: str
    credentials: Credentials = field(default_factory=Credentials)
    api_version: str | None = None
    largest_reply: int = LARGEST_REPLY
    """Bytes, after decompression. Larger replies are aborted."""

    @property
    def base(self) -> str:
        """The base URL in its plainest form, for messages."""
        return self.base_url.rstrip("/")


@dataclass(frozen=True)
class ServerReply:
    """Whatever the server answered, errors and redirects included. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class OpenReply:
    """A reply whose body is still to come. Whoever closes it before the end breaks off the server's work."""

    status: int
    body: AsyncIterator[bytes]
    """NoReply when it breaks off."""
    close: Callable[[], Awaitable[None]]


class NoReply(Exception):
    """`unreachable` means that nothing was sent. `reason` holds nothing of what was sent or received."""

    def __init__(self, kind: Literal["unreachable", "broken", "too_large"], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
