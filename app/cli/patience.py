"""Waiting for a server that does not answer: for as long as it takes, or as long as somebody cares to wait."""

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
class Patience:
    """`waiting` says for whom, with what it said last; empty while everybody answers."""

    most_seconds: float = MOST_SECONDS
    """Between two questions."""
    ends_after: float | None = None
    """Seconds of asking the same in vain."""
    waiting: dict[str, str] = field(default_factory=dict)

    def idle(self, who: str, why: str, *, waits: bool) -> None:
        """Somebody waits for something else than an answer, or does so no more."""
        if waits:
            self.waiting[who] = why
        else:
            self.waiting.pop(who, None)

    async def until_answered(self, who: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks again after every Unavailable, each time after about twice as long. Raises the last one where patience
        has come to its end."""
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
