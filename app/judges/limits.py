"""Limits of one judge's calls: slots, rates and the circuit breaker, which all processes of a database share.

`LimitsLease` is this process's part. While there are calls it sends the store a message about once a second: what it
holds, what it wants, and what the server answered. `app.domain.judge_limits` decides there who gets what; together the
processes never hold more than the limit. Calls wait for `CallSlots` and `RateCredit`, which hold what the lease got. A
lease that is not renewed expires: a process without the store keeps within what it holds, and then starts no more
calls. When there are no calls, everything is given back.

A breaker counts failures in each process. One that opens is open for all, and all together make one probe when its time
is over. A 429 reaches the others at once, and so does a breaker that opens or closes.
"""

import asyncio
import contextlib
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal
from weakref import WeakKeyDictionary

from app.domain.access import name_current_caller
from app.domain.errors import StoreUnavailable
from app.domain.fair_semaphore import FairSemaphore, RecentTurns
from app.domain.judge_limits import (
    LEASE_SECONDS,
    NO_FEEDBACK,
    BreakerNews,
    CallFeedback,
    CallLimits,
    LimitsExchange,
    LimitsGrant,
    OpenBreaker,
    compute_burst,
)
from app.judges.configuration import ReadingFailed, Role
from app.ports.environment import Clock
from app.ports.judges import JudgeCache

log = logging.getLogger(__name__)

# Slots.

LONGEST_RUN: Final = 8
"""So many waiting calls with one beginning go before the one that has waited longest."""
_BEGINNING_STEP: Final = 2048
"""Characters by which two beginnings differ."""

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
    admitted: "asyncio.Future[None]"
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
        return sum(not waiting.admitted.done() for waiting in self.waiting)

    def add(self, waiting: _Waiting) -> None:
        self.waiting[waiting] = None
        for shared in waiting.beginning:
            self.alike.setdefault(shared, {})[waiting] = None

    def take_next(self) -> _Waiting:
        """The call whose prompt begins most like the last one's, or the oldest after a long run of others."""
        oldest = next(iter(self.waiting))
        chosen = oldest  # also where its caller left: it is dropped here
        if not oldest.admitted.done() and self.run < LONGEST_RUN:
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
        # It stops at the first; `queued` counts them all.
        return any(not waiting.admitted.done() for line in self._lines.values() for waiting in line.waiting)

    def grant(self, limit: int, until: float) -> None:
        self._limit, self._until = limit, until
        self._admit_waiting()

    def lower(self, limit: int) -> None:
        self._limit = min(self._limit, limit)

    async def acquire(self, beginning: Beginning = ()) -> None:
        caller = name_current_caller()
        line = self._lines.setdefault(caller, _Line())
        if not self._has_queue and self.in_flight < self.limit:  # nobody overtakes those who wait
            self.in_flight += 1
            self._turns.add(caller)
            line.last, line.run = beginning, 0
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.add(_Waiting(admitted, beginning))
        self._wake()
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
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
            if not chosen.admitted.done():
                self.in_flight += 1
                self._turns.add(name)
                line.last = chosen.beginning
                chosen.admitted.set_result(None)
                self._lines[name] = self._lines.pop(name)  # to the end of the order

    def _find_turn(self) -> str | None:
        """The key whose turn it is."""
        waiting = [name for name, line in self._lines.items() if line.waiting]
        return self._turns.choose(waiting) if waiting else None


# Rates.

_ROUNDING: Final = 1e-9
"""Sums of parts of units may miss a whole number by this."""


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
        first = next((units for units, admitted in self._waiting if not admitted.done()), self._credit)
        return max(0.0, first - self._credit) / self._per_second

    def compute_request(self) -> float:
        """What waiting calls lack, and as much as was used since this was last called."""
        queued = sum(units for units, admitted in self._waiting if not admitted.done())
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
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((taken, admitted))
        self._admit_waiting()
        if not admitted.done():
            self._wake()
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.settle(taken)  # the units were granted just as their call was cancelled
            raise
        return taken

    def _admit_waiting(self) -> None:
        while self._waiting:
            units, admitted = self._waiting[0]
            if not admitted.done():
                if units > self._credit + _ROUNDING:
                    return
                self._credit -= units
                self._used += units
                admitted.set_result(None)
            self._waiting.popleft()


# The circuit breaker: after repeated failures a judge gets no calls for a while, then one probe.

BURST_SECONDS: Final = 5.0
"""Failures within this time are a burst, which retries survive. The breaker opens only for longer outages."""

_State = Literal["closed", "open", "half_open"]


@dataclass
class CallOutcome:
    """The result of a call. `good` is null for a call that was given up."""

    good: bool | None = None
    trouble: str = ""


class CircuitBreaker:
    """Opens for `seconds` after `failures` consecutive failures that span more than a burst. Then one call goes through
    as a probe, which closes the breaker or opens it again. Processes of one database share an open breaker and its
    probe: `news` is what the others have yet to hear, `update` what they said."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float], now: Clock) -> None:
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._now = now
        self._failures = 0
        self._first_at = 0.0
        self._opened_until: float | None = None
        self._probing = False
        self._others_probe = False
        self._trouble = ""
        self.news: BreakerNews | None = None

    @property
    def state(self) -> _State:
        if self._opened_until is None:
            return "closed"
        return "half_open" if self._probing or self._others_probe or self._clock() >= self._opened_until else "open"

    def require_closed(self) -> None:
        """Raises ReadingFailed with the time of the next attempt while the breaker is open."""
        probing = self._probing or self._others_probe
        if self._opened_until is None or (self._clock() >= self._opened_until and not probing):
            return
        when = "after the probe in flight" if probing else f"at {self._compute_retry_time():%Y-%m-%dT%H:%M:%SZ}"
        raise ReadingFailed(
            f"circuit breaker open after {self._failures} consecutive failures; next attempt {when}; "
            f"last failure: {self._trouble}",
            "unavailable",
        )

    @property
    def needs_probe(self) -> bool:
        """Whether the next call would be a probe, for which all processes together have one."""
        return self._opened_until is not None and not self._probing and self._clock() >= self._opened_until

    def update(self, shared: OpenBreaker | None) -> None:
        """Takes over the state that all processes share, unless this process has news."""
        if self.news is not None or self._probing:
            return  # what the others know is older than what happened here
        if shared is None:
            if self._opened_until is not None:
                self._failures = 0
            self._opened_until, self._others_probe = None, False
            return
        self._opened_until = self._clock() + shared.seconds
        self._failures, self._trouble = shared.failures, shared.trouble
        self._others_probe = shared.probe == "another"

    @contextmanager
    def track_call(self) -> Iterator[CallOutcome]:
        """Wraps one call. The caller records the result in the outcome."""
        self.require_closed()
        probe = self._opened_until is not None
        self._probing = self._probing or probe
        outcome = CallOutcome()
        try:
            yield outcome
        finally:
            if probe:
                self._probing = False
            if outcome.good is True:
                self._close()
            elif outcome.good is False:
                self._record_failure(outcome.trouble, probe)
            elif probe:
                self.news = BreakerNews("given_up")

    def _close(self) -> None:
        if self._opened_until is not None:
            self.news = BreakerNews("closed")
        self._failures = 0
        self._opened_until, self._others_probe = None, False

    def _record_failure(self, trouble: str, probe: bool) -> None:
        now = self._clock()
        self._trouble = trouble
        if self._failures == 0:
            self._first_at = now
        self._failures += 1
        lasting = self._failures >= self._most and now - self._first_at >= BURST_SECONDS
        if probe or (self._opened_until is None and lasting):
            self._opened_until, self._others_probe = now + self._seconds, False
            self.news = BreakerNews("opened", self._seconds, self._failures, trouble)

    def _compute_retry_time(self) -> datetime:
        left = (self._opened_until or 0.0) - self._clock()
        return self._now() + timedelta(seconds=max(0.0, left))


# The lease.

EXCHANGE_SECONDS: Final = 1.0
"""Time between exchanges while there are calls."""
_CONTENDED_SECONDS: Final = 0.2
"""The same while processes wait for each other's slots or for a probe."""
_RATE_SECONDS: Final = 0.1
"""Least time between exchanges while calls wait for a rate."""
_CLOSING_SECONDS: Final = 1.0
"""Longest wait for the last exchange at shutdown. What it does not give back expires."""


class LimitsLease:
    """Leases slots and rates while there are calls, and gives them back afterwards. Without the store it keeps within
    what it holds, and starts no call once the lease has expired."""

    def __init__(
        self,
        judge: str,
        limits: CallLimits,
        memory: JudgeCache,
        breaker: CircuitBreaker,
        clock: Callable[[], float],
        role: Role = "judge",
    ) -> None:
        self.slots = CallSlots(clock, self._wake_for_slot)
        self.requests = _build_credit(limits.requests_per_minute, self._wake)
        self.tokens = _build_credit(limits.tokens_per_minute, self._wake)
        self.limit = limits.concurrency
        """The limit of all processes together, as of the last exchange."""
        self.quiet_until = float("-inf")
        self.trouble = ""
        """Why the last exchange failed."""
        self._judge = judge
        self._role = role
        self._limits = limits
        self._memory = memory
        self._breaker = breaker
        self._clock = clock
        self._holder = uuid.uuid4().hex
        self._held = 0
        self._contended = False
        self._unserved = False
        self._feedback = NO_FEEDBACK
        self._wants_probe = False
        self._probe_asked_at = float("-inf")
        self._awaiting: list[asyncio.Future[None]] = []
        self._woken = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None

    def record(self, feedback: CallFeedback) -> None:
        """Call after each call. A 429 reaches the other processes at once."""
        self._feedback += feedback
        if feedback.rate_limited:
            self.quiet_until = max(self.quiet_until, self._clock() + feedback.retry_after)
            self._wake()

    def release(self) -> None:
        """Frees the slot of a call. A breaker that opened or closed reaches the other processes at once."""
        self.slots.release()
        if self._breaker.news is not None:
            self._wake()

    async def prepare_probe(self) -> None:
        """Call before each call. After an outage it asks whether this process may make the one probe."""
        if not self._breaker.needs_probe or self._clock() - self._probe_asked_at < _CONTENDED_SECONDS:
            return
        self._probe_asked_at = self._clock()
        self._wants_probe = True
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting.append(answered)
        self._wake()
        await answered
        if self.trouble:
            raise ReadingFailed(f"could not read this {self._role}'s shared limits: {self.trouble}", "unavailable")

    async def close(self) -> None:
        """Gives everything back."""
        if self._renewing is None:
            return
        running = not self._renewing.done()  # a task that ended by itself has given everything back
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        if running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await self._exchange()

    def _wake_for_slot(self) -> None:
        if self.slots.limit < self.limit:
            self._wake()

    def _wake(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._woken = asyncio.Event()
            # It outlives the request that happens to begin it: neither its log lines nor its spans are that one's.
            self._renewing = asyncio.get_running_loop().create_task(self._renew(), context=Context())
        self._woken.set()

    async def _renew(self) -> None:
        """Ends when there are no calls and everything is given back."""
        while True:
            self._woken.clear()
            await self._exchange()
            if not (self._has_work or self._held or self.trouble or self._woken.is_set()):
                return
            least, longest = self._choose_pause()
            await asyncio.sleep(least)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(longest - least):
                    await self._woken.wait()

    @property
    def _has_work(self) -> bool:
        return self.slots.in_flight > 0 or self.slots.queued > 0

    def _choose_pause(self) -> tuple[float, float]:
        """The least and the longest time until the next exchange. Being woken in between ends the pause."""
        if self.trouble:
            return EXCHANGE_SECONDS, EXCHANGE_SECONDS
        waits = [credit.seconds_missing for credit in (self.requests, self.tokens) if credit is not None]
        rate = max(waits, default=0.0)
        if rate > 0:
            pause = min(EXCHANGE_SECONDS, max(_RATE_SECONDS, rate))
            return pause, pause
        if self._unserved or self._contended:
            return _CONTENDED_SECONDS if self._unserved else 0.0, _CONTENDED_SECONDS
        return 0.0, EXCHANGE_SECONDS

    async def _exchange(self) -> None:
        asked, at = self._build_exchange(), self._clock()
        answered, self._awaiting = self._awaiting, []
        try:
            # The lease counts from before the message, so that it ends here no later than in the store.
            self._apply(await self._memory.exchange_limits(asked), asked, at)
        except StoreUnavailable as error:
            self._keep_for_later(asked, error.detail)
        except Exception:  # who waits for a slot must not wait for an exchange that nobody makes
            log.exception("the limits of judge %s could not be exchanged", self._judge)
            self._keep_for_later(asked, "an unexpected error, which is in this process's log")
        finally:
            for future in answered:
                if not future.done():
                    future.set_result(None)

    def _keep_for_later(self, asked: LimitsExchange, trouble: str) -> None:
        self.trouble = trouble
        self._feedback = asked.feedback + self._feedback
        self._breaker.news = self._breaker.news or asked.news

    def _build_exchange(self) -> LimitsExchange:
        in_flight, demand = self.slots.in_flight, self.slots.in_flight + self.slots.queued
        keeps_all = demand > 0 and not self._contended and self.slots.limit > 0
        self._held = max(in_flight, self._held) if keeps_all else in_flight
        # Lowered before the answer: what is given back may belong to others as soon as the store has the message.
        self.slots.lower(self._held)
        feedback, self._feedback = self._feedback, NO_FEEDBACK
        news, self._breaker.news = self._breaker.news, None
        probe, self._wants_probe = self._wants_probe, False
        return LimitsExchange(
            judge=self._judge,
            holder=self._holder,
            limits=self._limits,
            in_flight=in_flight,
            kept=self._held,
            wanted=demand,
            requests=_request_units(self.requests, demand),
            tokens=_request_units(self.tokens, demand),
            feedback=feedback,
            news=news,
            wants_probe=probe,
        )

    def _apply(self, grant: LimitsGrant, asked: LimitsExchange, at: float) -> None:
        self.trouble = ""
        self.limit = grant.limit
        self.quiet_until = max(self.quiet_until, at + grant.quiet_seconds)
        self._held = grant.held
        self._contended = grant.contended or grant.slots < grant.held
        self._unserved = grant.slots < min(asked.wanted, grant.limit)
        self._breaker.update(grant.breaker)
        for credit, units in ((self.requests, grant.requests), (self.tokens, grant.tokens)):
            if credit is not None:
                credit.settle(max(0.0, units))
        self.slots.grant(grant.slots, at + LEASE_SECONDS)


def _build_credit(per_minute: float | None, wake: Callable[[], None]) -> RateCredit | None:
    return None if per_minute is None else RateCredit(per_minute, wake)


def _request_units(credit: RateCredit | None, demand: int) -> float:
    """What the waiting calls lack. A process without calls gives back what it has."""
    if credit is None:
        return 0.0
    return credit.compute_request() if demand else -credit.give_back()


# Turns on the event loop: gates and judges give way to other work.

_MOST_IN_PASS: Final = 8
"""Turns at judging that share a pass of the event loop at most."""
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
