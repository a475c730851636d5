"""Deadlines: for one reading, with the time that it may wait for limits, and for all that is asked about a group."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from app.domain.judging import Judgement, JudgeRequest
from app.ports.judges import Judge, get_pace

JUDGING_SECONDS: Final = 900.0


class DeadlineJudge:
    """Wraps a judge for one group. After the deadline every open judgement has failed and nothing more is asked. A
    judgement that arrives later only fills the cache."""

    def __init__(self, judge: Judge, seconds: float) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self.pace = get_pace(judge)
        self._judge = judge
        self._seconds = seconds
        self._until = asyncio.get_running_loop().time() + seconds

    @property
    def expired(self) -> bool:
        return asyncio.get_running_loop().time() >= self._until

    async def judge(self, request: JudgeRequest) -> Judgement:
        if self.expired:
            return self._build_timeout_judgement(request)
        timeout = asyncio.timeout_at(self._until)
        try:
            async with timeout:
                return await self._judge.judge(request)
        except TimeoutError:
            if not timeout.expired():
                raise
            return self._build_timeout_judgement(request)

    def _build_timeout_judgement(self, request: JudgeRequest) -> Judgement:
        return Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(candidate.id for candidate in request.candidates),
            error=f"no verdict within the limit of {self._seconds:g} s per group",
            failure="unavailable",
        )


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
    def seconds_left(self) -> float:
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
    def extend_while_queued(self) -> Iterator[None]:
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
