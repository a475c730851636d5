"""Deadlines: for one reading, with the time that it may wait for limits, and for all that is asked about a group."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from app.domain.judging import Judgement, JudgeRequest
from app.ports.judges import Judge

JUDGING_SECONDS: Final = 900.0


class BoundedJudge:
    """A judge for the length of one group. Whatever it has not said when the time is up is a failed judgement; nothing
    is asked after that. What a judge goes on with behind that is for its memory alone."""

    def __init__(self, judge: Judge, seconds: float) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self._judge = judge
        self._seconds = seconds
        self._until = asyncio.get_running_loop().time() + seconds

    async def judge(self, request: JudgeRequest) -> Judgement:
        if asyncio.get_running_loop().time() >= self._until:
            return self._late(request)
        timeout = asyncio.timeout_at(self._until)
        try:
            async with timeout:
                return await self._judge.judge(request)
        except TimeoutError:
            if not timeout.expired():
                raise
            return self._late(request)

    def _late(self, request: JudgeRequest) -> Judgement:
        return Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(candidate.id for candidate in request.candidates),
            error=f"no verdict within the {self._seconds:g} s that there are for one group",
            failure="unavailable",
        )


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
