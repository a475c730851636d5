"""A caching judge: single-flight for equal questions, and judgements stored before they are used."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final, Protocol

from app.domain.budgets import Admission, BudgetConfig, Hold, Standing
from app.domain.errors import StoreUnavailable
from app.domain.judging import Judgement, JudgeReport, JudgeRequest
from app.judges.budget import new_hold
from app.judges.limits import turn
from app.judges.prompt import Question
from app.ports.judges import Judge, JudgementMemory, Recalled, SelfReporting

CLOSING_SECONDS: Final = 5.0
"""How long judgements in flight may take to finish and be stored at shutdown. They are paid for."""
REFRESH_SECONDS: Final = 5.0
"""How often the spending of other processes is loaded."""


class AskedJudge(Judge, SelfReporting, Protocol):
    """A judge whose questions have a cache key, and whose cost is recorded separately from asking."""

    def question(self, request: JudgeRequest) -> Question: ...

    async def read(self, question: Question, hold: str) -> Judgement: ...

    async def account_for(self, judgement: Judgement, hold: str) -> None: ...

    async def refresh(self) -> None: ...

    async def close(self) -> None: ...


class AskingAnew(JudgementMemory):
    """Stores judgements and costs but never returns a cached one: for measuring a judge as it is."""

    def __init__(self, memory: JudgementMemory) -> None:
        self._memory = memory

    async def get(self, reading: str) -> Recalled | None:
        return None

    async def put(self, judgement: Judgement, hold: str = "") -> Standing:
        return await self._memory.put(judgement, hold)

    async def standing(self, judge: str) -> Standing:
        return await self._memory.standing(judge)

    async def put_aside(self, hold: Hold, budget: BudgetConfig) -> Admission:
        return await self._memory.put_aside(hold, budget)

    async def give_back(self, judge: str, hold: str) -> Standing:
        return await self._memory.give_back(judge, hold)


@dataclass
class _Flight:
    """A judgement in flight. Only the first caller gets its cost."""

    task: asyncio.Task[Judgement]
    told: bool = False


class RememberingJudge:
    """Failures are never cached. A cached judgement that no stored group holds yet is returned with its full cost,
    since nobody has accounted for it: its process died, or its caller left before it arrived."""

    def __init__(self, judge: AskedJudge, memory: JudgementMemory) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self._judge = judge
        self._memory = memory
        self._refreshing: asyncio.Task[None] | None = None
        self._under_way: dict[str, _Flight] = {}
        self._claimed: set[str] = set()
        self._hits = 0

    async def open(self) -> None:
        """Loads the budget state. StoreUnavailable when it cannot be read."""
        await self._judge.refresh()
        self._refreshing = asyncio.create_task(self._refresh())

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        if self._under_way:
            _, late = await asyncio.wait([flight.task for flight in self._under_way.values()], timeout=CLOSING_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._judge.close()

    def report(self) -> JudgeReport:
        return self._judge.report().model_copy(update={"cache_hits": self._hits})

    async def judge(self, request: JudgeRequest) -> Judgement:
        async with turn():
            question = self._judge.question(request)
        reading = question.reading
        flight = self._under_way.get(reading)
        if flight is None:
            flight = self._under_way[reading] = _Flight(asyncio.create_task(self._read(question)))
            flight.task.add_done_callback(lambda _: self._under_way.pop(reading, None))
        else:
            self._hits += 1
        judgement = await asyncio.shield(flight.task)
        if flight.told:
            return _again(judgement)
        flight.told = True
        if judgement.error is None:
            self._claimed.add(reading)
        return judgement

    async def _read(self, question: Question) -> Judgement:
        try:
            recalled = await self._memory.get(question.reading)
            if recalled is not None:
                return self._recalled(recalled, question)
            hold = new_hold()
            judgement = (await self._judge.read(question, hold)).model_copy(update={"reading": question.reading})
            await self._judge.account_for(judgement, hold)
            return judgement
        except StoreUnavailable as error:
            return Judgement(
                judge=self.name,
                model=self.model,
                order=tuple(candidate.id for candidate in question.request.candidates),
                error=f"could not store the judgement: {error.detail}",
                failure="unavailable",
            )

    async def _refresh(self) -> None:
        """Picks up the spending of other replicas and of commands."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                await self._judge.refresh()

    def _recalled(self, recalled: Recalled, question: Question) -> Judgement:
        self._hits += 1
        whole = recalled.judgement.model_copy(update={"prompt": question.kept})
        return _again(whole) if recalled.claimed or question.reading in self._claimed else whole


def _again(judgement: Judgement) -> Judgement:
    """The same judgement without cost: the first caller has accounted for it."""
    free = None if judgement.cost_usd is None else 0.0
    return judgement.model_copy(
        update={"calls": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": free, "latency_seconds": 0.0}
        | {"unanswered_calls": 0, "unanswered_tokens": 0, "unanswered_usd": 0.0}
        | ({"cached": True} if judgement.error is None else {})
    )
