"""Limits of judge calls: an adaptive concurrency limit, and rates per minute."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, Literal
from weakref import WeakKeyDictionary

Work = Literal["gates", "judges"]

_locks_by_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[Work, asyncio.Lock]]" = WeakKeyDictionary()


@asynccontextmanager
async def take_exclusive_turn(work: Work = "judges") -> AsyncIterator[None]:
    """Wraps a few milliseconds of work, or more with `asyncio.sleep(0)` between its parts. The next holder runs in a
    later pass of the loop, after everything else that is ready. Gates and judges take turns separately, so started
    groups finish before many others begin."""
    locks = _locks_by_loop.setdefault(asyncio.get_running_loop(), defaultdict(asyncio.Lock))
    async with locks[work]:
        yield
        await asyncio.sleep(0)


SHRINK: Final = 0.8
COOLDOWN_SECONDS: Final = 15.0
"""Responses with 429 within this time, or within the server's `retry-after`, count as one episode."""
BURST_SECONDS: Final = 15.0
"""Unused rate accumulates for at most this many seconds."""


LONGEST_RUN: Final = 8
"""So many waiting calls with one beginning go before the one that has waited longest."""
_MOST_COMPARED: Final = 256
_BEGINNING_STEP: Final = 2048
"""Characters."""

Beginning = tuple[int, ...]
"""Hashes of ever longer beginnings of a prompt: two prompts share as much as these tuples do."""


def hash_beginnings(texts: Sequence[str]) -> Beginning:
    text = "".join(texts)
    hashes, last = [], 0
    for start in range(0, len(text) - _BEGINNING_STEP + 1, _BEGINNING_STEP):
        last = hash((last, text[start : start + _BEGINNING_STEP]))
        hashes.append(last)
    return tuple(hashes)


def _count_shared(one: Beginning, other: Beginning) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@dataclass(frozen=True, eq=False)
class _Waiting:
    place: "asyncio.Future[None]"
    beginning: Beginning


class AdaptiveConcurrencyLimit:
    """At most `limit` calls at once, first come, first served, but for runs of calls whose prompts begin alike: they
    find one another in the server's prefix cache. The limit starts at its ceiling, shrinks to 0.8 of
    itself once per episode of 429, and grows by one after `limit` successful calls. Other failures stop growth for a
    cooldown and shrink nothing."""

    def __init__(self, ceiling: int, clock: Callable[[], float]) -> None:
        self.limit = ceiling
        self.in_flight = 0
        self._ceiling = ceiling
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._last: Beginning = ()
        self._run = 0
        self._clean = 0
        self._episode_until = self._no_growth_until = float("-inf")

    @property
    def queued(self) -> int:
        return sum(not waiting.place.done() for waiting in self._waiting)

    async def acquire(self, beginning: Beginning = ()) -> None:
        if self.in_flight < self.limit:  # waiting calls were admitted when this became true
            self.in_flight += 1
            self._last, self._run = beginning, 0
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(place, beginning))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # the slot was granted just as its call was cancelled
            raise

    def release(self) -> None:
        self.in_flight -= 1
        self._admit_waiting()

    def record_success(self) -> None:
        """Call after a successful call."""
        if self.limit == self._ceiling or self._clock() < self._no_growth_until:
            return
        self._clean += 1
        if self._clean >= self.limit:
            self.limit += 1
            self._clean = 0
            self._admit_waiting()

    def record_rate_limited(self, retry_after: float = 0.0) -> None:
        """Call after a 429. `retry_after` is in seconds."""
        now = self._clock()
        if now >= self._episode_until:
            self.limit = max(1, int(self.limit * SHRINK))
        self._episode_until = max(self._episode_until, now + max(COOLDOWN_SECONDS, retry_after))
        self._stop_growth(self._episode_until)

    def record_failure(self) -> None:
        """Call after another server failure, which says nothing about the server's capacity."""
        self._stop_growth(self._clock() + COOLDOWN_SECONDS)

    def _stop_growth(self, until: float) -> None:
        self._no_growth_until = max(self._no_growth_until, until)
        self._clean = 0

    def _admit_waiting(self) -> None:
        while self._waiting and (self._waiting[0].place.done() or self.in_flight < self.limit):
            chosen = self._choose_next()
            self._waiting.remove(chosen)
            if not chosen.place.done():
                self.in_flight += 1
                self._last = chosen.beginning
                chosen.place.set_result(None)

    def _choose_next(self) -> _Waiting:
        """The call whose prompt begins most like the last one's, or the oldest after a long run of others."""
        oldest = self._waiting[0]
        chosen = oldest
        if not oldest.place.done() and self._run < LONGEST_RUN:
            chosen = max(
                islice(self._waiting, _MOST_COMPARED), key=lambda waiting: _count_shared(waiting.beginning, self._last)
            )
        self._run = 0 if chosen is oldest else self._run + 1
        return chosen


class RateLimiter:
    """A token bucket of `per_minute` units, first come, first served. A request larger than the burst takes the whole
    burst; `settle` corrects the difference."""

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._per_second = per_minute / 60
        self._burst = max(1.0, self._per_second * BURST_SECONDS)
        self._clock = clock
        self._level = self._burst
        self._seen = clock()

    def reserve(self, units: float) -> tuple[float, float]:
        """Returns the units taken and the seconds to wait before using them."""
        self._refill()
        taken = min(units, self._burst)
        self._level -= taken
        return taken, max(0.0, -self._level / self._per_second)

    def settle(self, units: float) -> None:
        """Returns unused units; a negative number takes further units that were used."""
        self._refill()
        self._level = min(self._burst, self._level + units)

    async def take(self, units: float) -> float:
        """Waits until the units may be used and returns the units taken."""
        taken, seconds = self.reserve(units)
        if seconds > 0:
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.settle(taken)
                raise
        return taken

    def _refill(self) -> None:
        now = self._clock()
        self._level = min(self._burst, self._level + max(0.0, now - self._seen) * self._per_second)
        self._seen = max(self._seen, now)
