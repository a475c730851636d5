"""The time that a reading has, and the time that it may wait for our own limits before that."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class Deadline:
    """`seconds` for asking, and beside them `queue_seconds` for waiting until the limits of the judge let a call
    through: a burst of groups must not fail because it is large, nor wait for ever. TimeoutError when either is up;
    `queueing` tells which."""

    def __init__(self, seconds: float, queue_seconds: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + seconds
        self._queue_left = queue_seconds
        self._timeout = asyncio.timeout_at(self._until)
        self.queueing = False

    @property
    def left(self) -> float:
        return self._until - self._clock()

    @property
    def expired(self) -> bool:
        return self._timeout.expired()

    async def __aenter__(self) -> "Deadline":
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, trace)

    @contextmanager
    def queue(self) -> Iterator[None]:
        """Around waiting for our own limits."""
        began = self._clock()
        self._timeout.reschedule(began + self._queue_left)
        self.queueing = True
        try:
            yield
        finally:
            if not self.expired:
                waited = self._clock() - began
                self._queue_left -= waited
                self._until += waited
                self._timeout.reschedule(self._until)
                self.queueing = False
