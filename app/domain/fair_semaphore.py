"""A fair semaphore: a fixed number of slots, given in turn to each key's work, and to each kind of it."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.domain.access import name_current_caller


class FairSemaphore:
    """Round-robin over the keys for which callers work, over kinds within a key, first in, first out within a kind. So
    one with a thousand waiting callers does not starve one with a single caller."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._lines: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}
        """Waiting callers by key and kind, in the order of their turns."""
        self._since: dict[asyncio.Future[None], float] = {}
        """When waiting callers came, oldest first."""
        self.waiting = 0
        """Number of waiting callers."""

    @property
    def longest_wait(self) -> float:
        """Seconds that the oldest waiting caller has waited; 0 without any."""
        return next((time.monotonic() - since for since in self._since.values()), 0.0)

    @asynccontextmanager
    async def hold_place(self, kind: str = "") -> AsyncIterator[None]:
        await self._acquire(kind)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, kind: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(name_current_caller(), {}).setdefault(kind, deque()).append(turn)
        self.waiting += 1
        self._since[turn] = time.monotonic()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()
            raise
        finally:
            self.waiting -= 1
            del self._since[turn]

    def _release(self) -> None:
        while self._lines:
            caller = next(iter(self._lines))
            kinds = self._lines.pop(caller)
            kind = next(iter(kinds))
            line = kinds.pop(kind)
            turn = line.popleft()
            if line:
                kinds[kind] = line
            if kinds:
                self._lines[caller] = kinds
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
