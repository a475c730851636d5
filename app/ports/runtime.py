"""What surrounds every request: the clock, the observer, what is opened and closed with the service."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from app.domain.judging import Judgement
from app.domain.scores import Score


@runtime_checkable
class Opened(Protocol):
    """A judge or a retriever that holds something between the service's start and its end."""

    async def open(self) -> None:
        """Before it is asked anything. StoreUnavailable from a judge that cannot know what it has spent."""

    async def close(self) -> None: ...


class Observer(Protocol):
    """Where the service tells what happened, for metrics and logs. Never raises, never blocks."""

    def handed_out(self, environment: str, tasks: int) -> None: ...

    def scored(self, environment: str, scores: Sequence[Score], seconds: float) -> None: ...

    def judged(self, judgements: Sequence[Judgement]) -> None: ...

    def refused(self, environment: str, code: str) -> None: ...

    def gathered(self, environment: str, flags: Sequence[str]) -> None:
        """A group that came in pieces was closed, with these flags."""

    def retrieved(self, seconds: float, *, failed: bool, future: int = 0) -> None:
        """`future`: passages that were withheld since they are later than was asked for."""


Clock = Callable[[], datetime]
"""The present, in UTC with its zone."""
