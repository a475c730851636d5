"""A judge that is never asked the same twice: one call for equal readings, and answers kept before they are used."""

import asyncio
from datetime import UTC, datetime
from typing import Final, Protocol

from app.domain.judging import Judgement, JudgeReport, JudgeRequest, Spending
from app.errors import StoreUnavailable
from app.judges.turns import turn
from app.ports import Clock, Judge, JudgementMemory, Recalled, SelfReporting

CLOSING_SECONDS: Final = 5.0
"""Readings under way at the end have so long to be finished and written down; they are paid for."""


class AskedJudge(Judge, SelfReporting, Protocol):
    """A judge whose questions have an identity, and whose spending goes on where it was."""

    def reading_of(self, request: JudgeRequest) -> str: ...

    def prompt_of(self, request: JudgeRequest) -> str: ...

    def restore(self, total: Spending, today: Spending) -> None: ...

    async def close(self) -> None: ...


def _now() -> datetime:
    return datetime.now(UTC)


class Forgetful(JudgementMemory):
    """For judging outside of the service: everything is asked, nothing is known to have been spent."""

    async def get(self, reading: str) -> Recalled | None:
        return None

    async def put(self, judgement: Judgement) -> None:
        return None

    async def spending(self, judge: str, since: datetime | None = None) -> Spending:
        return Spending()


class RememberingJudge:
    """Failures are never kept. A judgement that was kept by a process which died before any group held it comes back as
    if it had just been made, cost and all: nobody else has accounted for it."""

    def __init__(self, judge: AskedJudge, memory: JudgementMemory, now: Clock = _now) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self._judge = judge
        self._memory = memory
        self._now = now
        self._under_way: dict[str, asyncio.Task[Judgement]] = {}
        self._claimed: set[str] = set()
        self._hits = 0

    async def open(self) -> None:
        """Budgets go on where they were. StoreUnavailable when that cannot be read."""
        memory = self._memory
        self._judge.restore(await memory.spending(self.name), await memory.spending(self.name, self._now()))

    async def close(self) -> None:
        if self._under_way:
            _, late = await asyncio.wait(self._under_way.values(), timeout=CLOSING_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._judge.close()

    def report(self) -> JudgeReport:
        return self._judge.report().model_copy(update={"cache_hits": self._hits})

    async def judge(self, request: JudgeRequest) -> Judgement:
        async with turn():
            reading = self._judge.reading_of(request)
        task = self._under_way.get(reading)
        if task is not None:
            self._hits += 1
            return _again(await asyncio.shield(task))
        task = asyncio.create_task(self._read(reading, request))
        self._under_way[reading] = task
        task.add_done_callback(lambda _: self._under_way.pop(reading, None))
        return await asyncio.shield(task)

    async def _read(self, reading: str, request: JudgeRequest) -> Judgement:
        try:
            recalled = await self._memory.get(reading)
            if recalled is not None:
                return self._recalled(reading, recalled, request)
            judgement = (await self._judge.judge(request)).model_copy(update={"reading": reading})
            if judgement.calls > 0:
                self._claimed.add(reading)
                await self._memory.put(judgement)
            return judgement
        except StoreUnavailable as error:
            return Judgement(
                judge=self.name,
                model=self.model,
                order=tuple(candidate.id for candidate in request.candidates),
                error=f"what the judge says cannot be written down: {error.detail}",
                failure="unavailable",
            )

    def _recalled(self, reading: str, recalled: Recalled, request: JudgeRequest) -> Judgement:
        self._hits += 1
        whole = recalled.judgement.model_copy(update={"prompt": self._judge.prompt_of(request)})
        if recalled.claimed or reading in self._claimed:
            return _again(whole)
        self._claimed.add(reading)
        return whole


def _again(judgement: Judgement) -> Judgement:
    """The same without a cost: whoever had it first has paid."""
    free = None if judgement.cost_usd is None else 0.0
    return judgement.model_copy(
        update={"calls": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": free, "latency_seconds": 0.0}
        | ({"cached": True} if judgement.error is None else {})
    )
