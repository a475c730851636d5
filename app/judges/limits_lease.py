"""This process's part of a judge's limits, which all processes of a database share."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable
from contextvars import Context
from typing import Final

from app.domain.errors import StoreUnavailable
from app.domain.judge_limits import LEASE_SECONDS, NO_FEEDBACK, CallFeedback, CallLimits, LimitsExchange, LimitsGrant
from app.judges.circuit_breaker import CircuitBreaker
from app.judges.failures import ReadingFailed
from app.judges.limits import CallSlots, RateCredit
from app.ports.judges import JudgeCache

log = logging.getLogger(__name__)

EXCHANGE_SECONDS: Final = 1.0
"""Time between exchanges while there are calls."""
CONTENDED_SECONDS: Final = 0.2
"""The same while processes wait for each other's slots or for a probe."""
RATE_SECONDS: Final = 0.1
"""Least time between exchanges while calls wait for a rate."""
CLOSING_SECONDS: Final = 1.0


class LimitsLease:
    """Leases slots and rates while there are calls, and gives them back afterwards. Without the store it keeps within
    what it holds, and starts no call once the lease has expired."""

    def __init__(
        self, judge: str, limits: CallLimits, memory: JudgeCache, breaker: CircuitBreaker, clock: Callable[[], float]
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
        if not self._breaker.needs_probe or self._clock() - self._probe_asked_at < CONTENDED_SECONDS:
            return
        self._probe_asked_at = self._clock()
        self._wants_probe = True
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting.append(answered)
        self._wake()
        await answered
        if self.trouble:
            raise ReadingFailed(f"could not read this judge's shared limits: {self.trouble}", "unavailable")

    async def close(self) -> None:
        """Gives everything back."""
        if self._renewing is None:
            return
        running = not self._renewing.done()
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        if running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_SECONDS):
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
            pause = min(EXCHANGE_SECONDS, max(RATE_SECONDS, rate))
            return pause, pause
        if self._unserved or self._contended:
            return CONTENDED_SECONDS if self._unserved else 0.0, CONTENDED_SECONDS
        return 0.0, EXCHANGE_SECONDS

    async def _exchange(self) -> None:
        asked, at = self._build_exchange(), self._clock()
        answered, self._awaiting = self._awaiting, []
        try:
            self._apply(await self._memory.exchange_limits(asked), asked, at)
        except StoreUnavailable as error:
            self._keep_for_later(asked, error.detail)
        except Exception:  # who waits for a slot must not wait for an exchange that nobody makes
            log.exception("the limits of judge %s could not be exchanged", self._judge)
            self._keep_for_later(asked, "an unexpected error, which is in this process's log")
        finally:
            for place in answered:
                if not place.done():
                    place.set_result(None)

    def _keep_for_later(self, asked: LimitsExchange, trouble: str) -> None:
        self.trouble = trouble
        self._feedback = asked.feedback + self._feedback
        self._breaker.news = self._breaker.news or asked.news

    def _build_exchange(self) -> LimitsExchange:
        """Until the answer this process keeps within what it says here, since the rest may go to others."""
        in_flight, wanted = self.slots.in_flight, self.slots.in_flight + self.slots.queued
        keeps_all = wanted > 0 and not self._contended and self.slots.limit > 0
        self._held = max(in_flight, self._held) if keeps_all else in_flight
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
            wanted=wanted,
            requests=_request_units(self.requests, wanted),
            tokens=_request_units(self.tokens, wanted),
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


def _request_units(credit: RateCredit | None, wanted: int) -> float:
    """What the waiting calls lack. A process without calls gives back what it has."""
    if credit is None:
        return 0.0
    return credit.compute_request() if wanted else -credit.give_back()
