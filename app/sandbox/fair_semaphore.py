"""A fair semaphore: a fixed number of slots, given in turn to each kind of waiting caller."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairSemaphore:
    """Round-robin over kinds, first in, first out within a kind. So a kind with a thousand waiting callers does not
    starve a kind with one."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting callers by kind, in the order of their turns."""
        self._since: dict[asyncio.Future[None], float] = {}
        """When waiting callers came, oldest first."""
        self.waiting = 0
        """Number of waiting callers."""

    @property
    def longest_wait(self) -> float:
        """Seconds that the oldest waiting caller has waited; 0 without any."""
        return next((time.monotonic() - since for since in self._since.values()), 0.0)

    @asynccontextmanager
    async def hold_place(self, kind: str) -> AsyncIterator[None]:
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
        self._lines.setdefault(kind, deque()).append(turn)
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
            kind = next(iter(self._lines))
            line = self._lines.pop(kind)
            turn = line.popleft()
            if line:
                self._lines[kind] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
