"""A fair semaphore: a fixed number of slots, of which each key gets its share, and each kind of work within a key.

Keys are those of `app.domain.access`, under which the current task works. Turns are counted and forgotten by and by,
so that a key that begins is served at once, and one that was alone before does not pay for it long.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final

from app.domain.access import name_current_caller

_HALF_LIFE_SECONDS: Final = 10.0
"""After so long, turns that a key had count half."""
_MOST_KEYS: Final = 1000


class RecentTurns:
    """How many turns each key had lately. Whoever had the fewest is next: a key that begins is served at once, and keys
    that all wait get equal shares."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns: dict[str, tuple[float, float]] = {}
        """By key the number, and the moment at which it was that."""

    def choose(self, keys: Collection[str]) -> str:
        """The first of the keys that had the fewest turns."""
        if len(keys) == 1:
            return next(iter(keys))
        now = self._clock()
        return min(keys, key=lambda key: self._count(key, now))

    def add(self, key: str) -> None:
        now = self._clock()
        if len(self._turns) > _MOST_KEYS:
            self._turns = {name: entry for name, entry in self._turns.items() if self._count(name, now) > 0.5}
        self._turns[key] = self._count(key, now) + 1, now

    def _count(self, key: str, now: float) -> float:
        number, moment = self._turns.get(key, (0.0, now))
        return float(number * 0.5 ** ((now - moment) / _HALF_LIFE_SECONDS))


class FairSemaphore:
    """Slots go to the key that had the fewest turns lately, in turn to kinds within a key, and first in, first out
    within a kind. So one with a thousand waiting callers does not starve one with a single caller."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._lines: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}
        """Waiting callers by key and kind, in the order of their turns."""
        self._turns = RecentTurns()
        self._since: dict[asyncio.Future[None], float] = {}
        """By waiting caller the time at which it came, oldest first."""
        self._began: float | None = None
        """Time at which the first turn of this pass of the event loop began."""
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

    async def take_turn(self, seconds: float) -> None:
        """Takes a place until the caller waits again. Turns begin in one pass of the event loop until they have taken
        `seconds` together; the others wait for the next pass."""
        await self._acquire("")
        try:
            while self._began is not None and time.perf_counter() - self._began > seconds:  # noqa: ASYNC110  # a pass
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._release()
            raise
        loop = asyncio.get_running_loop()
        if self._began is None:
            self._began = time.perf_counter()
            loop.call_soon(self._end_pass)
        if self.waiting:
            self._release()  # who is next then wakes up in the next pass
        else:
            loop.call_soon(self._release)

    def _end_pass(self) -> None:
        self._began = None

    async def _acquire(self, kind: str) -> None:
        caller = name_current_caller()
        if self._free:
            self._free -= 1
            self._turns.add(caller)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(caller, {}).setdefault(kind, deque()).append(turn)
        self.waiting += 1
        self._since[turn] = time.monotonic()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given the place in the same pass
                self._release()
            raise
        finally:
            self.waiting -= 1
            del self._since[turn]

    def _release(self) -> None:
        while self._lines:
            caller = self._turns.choose(self._lines)
            kinds = self._lines.pop(caller)
            kind = next(iter(kinds))
            line = kinds.pop(kind)
            turn = line.popleft()
            if line:
                kinds[kind] = line
            if kinds:
                self._lines[caller] = kinds
            if not turn.done():  # else it was cancelled, and still stands in line
                self._turns.add(caller)
                turn.set_result(None)
                return
        self._free += 1
