"""Clock, observer, and resources that are opened and closed with the service."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from app.domain.judging import Judgement
from app.domain.scores import Score


@runtime_checkable
class ManagedResource(Protocol):
    """A judge or retriever that holds a resource while the service runs."""

    async def open(self) -> None:
        """Called before first use. A judge raises StoreUnavailable when it cannot read its spending."""

    async def close(self) -> None: ...


ScoredGroup = tuple[Sequence[Score], float]
"""A group's scores, and how many seconds it took to score it."""


class Observer(Protocol):
    """Receives what happens in the service, for metrics and logs. Never raises, never blocks."""

    def record_hand_out(self, environment: str, tasks: int) -> None: ...

    def record_scores(self, environment: str, groups: Sequence[ScoredGroup]) -> None: ...

    def record_judgements(self, judgements: Sequence[Judgement]) -> None: ...

    def record_refusal(self, environment: str, code: str) -> None: ...

    def record_closed_group(self, environment: str, flags: Sequence[str]) -> None:
        """A group sent in pieces was closed, with these flags."""

    def record_retrieval(self, seconds: float, *, failed: bool, future: int = 0) -> None:
        """`future`: number of passages withheld because they are later than the requested time."""

    def record_alarms(self, standing: Mapping[str, int]) -> None:
        """Alarms of all runs that stand now, by series."""


Clock = Callable[[], datetime]
"""The current time, in UTC, with its time zone."""
