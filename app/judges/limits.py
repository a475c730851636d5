"""Queues of judge calls before the slots and rates that this process holds."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from app.domain.access import name_current_caller
from app.domain.fair_semaphore import FairSemaphore, RecentTurns
from app.domain.judge_limits import compute_burst

_MOST_IN_PASS: Final = 8
_SECONDS_OF_PASS: Final = 0.002
"""Turns at judging that take less together share a pass of the event loop: a pass takes as long as a short turn."""


@dataclass(frozen=True)
class _Turns:
    """Gates and judges take them separately, so started groups finish before many others begin."""

    gates: FairSemaphore = field(default_factory=lambda: FairSemaphore(1))
    judges: FairSemaphore = field(default_factory=lambda: FairSemaphore(_MOST_IN_PASS))


_turns_by_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]" = WeakKeyDictionary()


@asynccontextmanager
async def take_turn_at_gates() -> AsyncIterator[None]:
    """Wraps a few milliseconds of work, or more with `asyncio.sleep(0)` between its parts. The next holder runs in a
    later pass of the loop, after everything else that is ready. Keys take turns, so one with thousands of groups holds
    up no other."""
    async with _find_turns().gates.hold_place():
        yield
        await asyncio.sleep(0)


async def await_turn_at_judging() -> None:
    """For what is done about one question or answer, which ends when the caller waits again: hundreds of them may be
    due at once, and nothing else runs until a pass of the loop ends. Keys take turns here too."""
    await _find_turns().judges.take_turn(_SECONDS_OF_PASS)


def _find_turns() -> _Turns:
    loop = asyncio.get_running_loop()
    return _turns_by_loop.get(loop) or _turns_by_loop.setdefault(loop, _Turns())


LONGEST_RUN: Final = 8
"""So many waiting calls with one beginning go before the one that has waited longest."""
_BEGINNING_STEP: Final = 2048
"""Characters."""

Beginning = tuple[int, ...]
"""Hashes of ever longer beginnings of a prompt, each of all before it: two prompts share as much as these tuples do."""


def hash_beginnings(texts: Sequence[str]) -> Beginning:
    text = "".join(texts)
    hashes, last = [], 0
    for start in range(0, len(text) - _BEGINNING_STEP + 1, _BEGINNING_STEP):
        last = hash((last, text[start : start + _BEGINNING_STEP]))
        hashes.append(last)
    return tuple(hashes)


@dataclass(frozen=True, eq=False)
class _Waiting:
    place: "asyncio.Future[None]"
    beginning: Beginning


@dataclass
class _Line:
    """The waiting calls of one key, oldest first."""

    waiting: dict[_Waiting, None] = field(default_factory=dict)
    alike: dict[int, dict[_Waiting, None]] = field(default_factory=dict)
    """The same by the hashes of their beginnings."""
    last: Beginning = ()
    """Of its last call that was let in."""
    run: int = 0

    @property
    def queued(self) -> int:
        return sum(not waiting.place.done() for waiting in self.waiting)

    def add(self, waiting: _Waiting) -> None:
        self.waiting[waiting] = None
        for shared in waiting.beginning:
            self.alike.setdefault(shared, {})[waiting] = None

    def take_next(self) -> _Waiting:
        """The call whose prompt begins most like the last one's, or the oldest after a long run of others."""
        oldest = next(iter(self.waiting))
        chosen = oldest
        if not oldest.place.done() and self.run < LONGEST_RUN:
            longest = next((self.alike[shared] for shared in reversed(self.last) if shared in self.alike), self.waiting)
            chosen = next(iter(longest))
        self.run = 0 if chosen is oldest else self.run + 1
        self._remove(chosen)
        return chosen

    def _remove(self, waiting: _Waiting) -> None:
        del self.waiting[waiting]
        for shared in waiting.beginning:
            del self.alike[shared][waiting]
            if not self.alike[shared]:
                del self.alike[shared]


class CallSlots:
    """At most `limit` calls at once until a time, then none. The key that had the fewest turns lately is next; within a
    key first come, first served, but for runs of calls whose prompts begin alike: they meet in the server's prefix
    cache. `wake` is called when a call has to wait."""

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self.in_flight = 0
        self._limit = 0
        self._until = float("-inf")
        self._clock = clock
        self._wake = wake
        self._lines: dict[str, _Line] = {}
        """By key, in the order of their turns."""
        self._turns = RecentTurns(clock)

    @property
    def limit(self) -> int:
        return self._limit if self._clock() < self._until else 0

    @property
    def queued(self) -> int:
        return sum(line.queued for line in self._lines.values())

    @property
    def _has_queue(self) -> bool:
        return any(not waiting.place.done() for line in self._lines.values() for waiting in line.waiting)

    def grant(self, limit: int, until: float) -> None:
        self._limit, self._until = limit, until
        self._admit_waiting()

    def lower(self, limit: int) -> None:
        self._limit = min(self._limit, limit)

    async def acquire(self, beginning: Beginning = ()) -> None:
        caller = name_current_caller()
        line = self._lines.setdefault(caller, _Line())
        if not self._has_queue and self.in_flight < self.limit:
            self.in_flight += 1
            self._turns.add(caller)
            line.last, line.run = beginning, 0
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.add(_Waiting(place, beginning))
        self._wake()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # the slot was granted just as its call was cancelled
            raise

    def release(self) -> None:
        self.in_flight -= 1
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        limit = self.limit
        while self.in_flight < limit and (name := self._find_turn()) is not None:
            line = self._lines[name]
            chosen = line.take_next()
            if not chosen.place.done():
                self.in_flight += 1
                self._turns.add(name)
                line.last = chosen.beginning
                chosen.place.set_result(None)
                self._lines[name] = self._lines.pop(name)

    def _find_turn(self) -> str | None:
        """The key whose turn it is."""
        waiting = [name for name, line in self._lines.items() if line.waiting]
        return self._turns.choose(waiting) if waiting else None


class RateCredit:
    """Units of a rate per minute that this process holds and has not used, first come, first served. A request larger
    than the burst takes the whole burst; `settle` corrects the difference. `wake` is called when a call has to wait."""

    def __init__(self, per_minute: float, wake: Callable[[], None]) -> None:
        self._per_second = per_minute / 60
        self._burst = compute_burst(per_minute)
        self._wake = wake
        self._credit = 0.0
        self._used = 0.0
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()

    @property
    def seconds_missing(self) -> float:
        """How long the whole rate takes for what the first waiting call lacks."""
        first = next((units for units, place in self._waiting if not place.done()), self._credit)
        return max(0.0, first - self._credit) / self._per_second

    def compute_request(self) -> float:
        """What waiting calls lack, and as much as was used since this was last called."""
        queued = sum(units for units, place in self._waiting if not place.done())
        used, self._used = self._used, 0.0
        return max(0.0, queued + used - self._credit)

    def give_back(self) -> float:
        """Removes the unused units and returns them."""
        unused = max(0.0, self._credit)
        self._credit -= unused
        return unused

    def settle(self, units: float) -> None:
        """Adds granted or unused units; a negative number takes further units that were used."""
        self._credit += units
        self._admit_waiting()

    async def take(self, units: float) -> float:
        """Waits until the units may be used and returns the units taken."""
        taken = min(units, self._burst)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((taken, place))
        self._admit_waiting()
        if not place.done():
            self._wake()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.settle(taken)
            raise
        return taken

    def _admit_waiting(self) -> None:
        while self._waiting:
            units, place = self._waiting[0]
            if not place.done():
                if units > self._credit + _ROUNDING:
                    return
                self._credit -= units
                self._used += units
                place.set_result(None)
            self._waiting.popleft()


_ROUNDING = 1e-9
