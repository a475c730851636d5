"""The deadline of one judgement, and how long it may wait for the judge's limits in addition."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class Deadline:
    """`seconds` for the calls, plus up to `queue_seconds` of waiting for the judge's limits: a large burst of groups
    must neither fail nor wait for ever. TimeoutError when either runs out; `queueing` tells which."""

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
        """Wrap waiting for the judge's limits in this: the wait does not count against `seconds`."""
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
