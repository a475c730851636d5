"""A circuit breaker: after repeated failures a judge gets no calls for a while, then one probe."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from app.domain.judge_limits import BreakerNews, OpenBreaker
from app.judges.failures import ReadingFailed
from app.ports.runtime import Clock

BURST_SECONDS: Final = 5.0
"""Failures within this time are a burst, which retries survive. The breaker opens only for longer outages."""

State = Literal["closed", "open", "half_open"]


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
    def state(self) -> State:
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
            return
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
