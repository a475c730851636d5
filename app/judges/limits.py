"""How much a judge is asked at once and per minute: a limit that adapts to its server, and rates that are kept."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Literal
from weakref import WeakKeyDictionary

Work = Literal["gates", "judges"]

_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[Work, asyncio.Lock]]" = WeakKeyDictionary()


@asynccontextmanager
async def turn(work: Work = "judges") -> AsyncIterator[None]:
    """Around a few milliseconds of work, or more with `asyncio.sleep(0)` between its parts. Whoever else wants a turn
    for such work gets one in a later pass of the loop, after everything that became ready meanwhile. A turn at the
    gates holds up no judge: groups already under way are finished before many others are begun."""
    locks = _turns.setdefault(asyncio.get_running_loop(), defaultdict(asyncio.Lock))
    async with locks[work]:
        yield
        await asyncio.sleep(0)


SHRINK: Final = 0.8
COOLDOWN_SECONDS: Final = 15.0
"""After an episode of 429 the next one within this time, longer where the server says so, is the same episode."""
BURST_SECONDS: Final = 15.0
"""A rate that was not used adds up to this many seconds' worth."""


class AdaptiveLimit:
    """At most `limit` holders, first come, first served. The limit starts at its ceiling, falls to 0.8 of itself once
    per episode of 429, and grows by one after as many clean calls as it allows at once. Other faults stop growth for
    a cooldown and shrink nothing."""

    def __init__(self, ceiling: int, clock: Callable[[], float]) -> None:
        self.limit = ceiling
        self.in_flight = 0
        self._ceiling = ceiling
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._clean = 0
        self._episode_until = self._no_growth_until = float("-inf")

    @property
    def queued(self) -> int:
        return sum(not waiter.done() for waiter in self._waiting)

    async def acquire(self) -> None:
        if self.in_flight < self.limit:  # whoever waits was let in when this came true
            self.in_flight += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # the place was given in the moment in which nobody wanted it any more
            raise

    def release(self) -> None:
        self.in_flight -= 1
        self._admit()

    def clean(self) -> None:
        """A call was answered."""
        if self.limit == self._ceiling or self._clock() < self._no_growth_until:
            return
        self._clean += 1
        if self._clean >= self.limit:
            self.limit += 1
            self._clean = 0
            self._admit()

    def too_many(self, retry_after: float = 0.0) -> None:
        """The server answered 429; `retry_after` is in seconds."""
        now = self._clock()
        if now >= self._episode_until:
            self.limit = max(1, int(self.limit * SHRINK))
        self._episode_until = max(self._episode_until, now + max(COOLDOWN_SECONDS, retry_after))
        self._stop_growth(self._episode_until)

    def troubled(self) -> None:
        """The server failed in another way, which says nothing of how much it can take."""
        self._stop_growth(self._clock() + COOLDOWN_SECONDS)

    def _stop_growth(self, until: float) -> None:
        self._no_growth_until = max(self._no_growth_until, until)
        self._clean = 0

    def _admit(self) -> None:
        while self._waiting and (self._waiting[0].done() or self.in_flight < self.limit):
            place = self._waiting.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)


class Rate:
    """So many units a minute. Whoever asks is given a moment in the order of asking; asking for more than the burst
    counts as asking for the whole of it, and `settle` makes up for the difference."""

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._per_second = per_minute / 60
        self._burst = max(1.0, self._per_second * BURST_SECONDS)
        self._clock = clock
        self._level = self._burst
        self._seen = clock()

    def reserve(self, units: float) -> tuple[float, float]:
        """The units that are taken, and the seconds until they may be used."""
        self._refill()
        taken = min(units, self._burst)
        self._level -= taken
        return taken, max(0.0, -self._level / self._per_second)

    def settle(self, units: float) -> None:
        """Gives back what was taken and not used; a negative number takes what was used beyond it."""
        self._refill()
        self._level = min(self._burst, self._level + units)

    async def take(self, units: float) -> float:
        """Waits for the moment and returns what was taken."""
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
