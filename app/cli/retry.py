"""Retries of an unavailable server, with or without a time limit."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from app.domain.errors import Unavailable

T = TypeVar("T")

FIRST_SECONDS: Final = 0.25
MOST_SECONDS: Final = 10.0


@dataclass
class Retrier:
    """`waiting`: the last error by server; empty while all servers answer."""

    most_seconds: float = MOST_SECONDS
    """Maximum seconds between two attempts."""
    ends_after: float | None = None
    """Seconds after which retrying stops; None for never."""
    waiting: dict[str, str] = field(default_factory=dict)

    def note_waiting(self, who: str, why: str, *, waits: bool) -> None:
        """Notes that `who` waits for something other than a reply, or no longer does."""
        if waits:
            self.waiting[who] = why
        else:
            self.waiting.pop(who, None)

    async def retry_until_answered(self, who: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Retries after every Unavailable, with exponential backoff. Raises the last one after `ends_after` seconds."""
        seconds, began = FIRST_SECONDS, time.monotonic()
        while True:
            try:
                answer = await ask()
            except Unavailable as error:
                self.waiting[who] = error.detail
                if self.ends_after is not None and time.monotonic() - began >= self.ends_after:
                    raise
                await asyncio.sleep(random.uniform(seconds / 2, seconds))  # noqa: S311  # so that not all come at once
                seconds = min(2 * seconds, self.most_seconds)
            else:
                self.waiting.pop(who, None)
                return answer
