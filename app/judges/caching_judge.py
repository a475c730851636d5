"""A caching judge: single-flight for equal questions, and judgements stored before they are used."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final, Protocol

from app.domain.budgets import Admission, BudgetConfig, BudgetState, Reservation
from app.domain.errors import StoreUnavailable
from app.domain.judge_limits import LimitsExchange, LimitsGrant
from app.domain.judging import Judgement, JudgeReport, JudgeRequest
from app.judges.budget import create_reservation_id
from app.judges.limits import await_turn_at_judging
from app.judges.prompt import JudgeQuestion
from app.ports.judges import (
    CachedJudgement,
    Judge,
    JudgeCache,
    PricedJudge,
    RepeatingJudge,
    ReportingJudge,
    can_write,
    get_pace,
    gives_rewards,
)

CLOSING_SECONDS: Final = 5.0
"""How long judgements in flight may take to finish and be stored at shutdown. They are paid for."""
REFRESH_SECONDS: Final = 5.0
"""How often the spending of other processes is loaded."""


class CacheableJudge(Judge, ReportingJudge, Protocol):
    """A judge whose questions have a cache key, and whose cost is recorded separately from asking."""

    def build_question(self, request: JudgeRequest) -> JudgeQuestion: ...

    async def answer_question(self, question: JudgeQuestion, hold: str) -> Judgement: ...

    async def record_spending(self, judgement: Judgement, hold: str) -> None: ...

    async def refresh(self) -> None: ...

    async def close(self) -> None: ...


class WriteOnlyMemory(JudgeCache):
    """Stores judgements and costs but never returns a cached one: for measuring a judge as it is."""

    def __init__(self, memory: JudgeCache) -> None:
        self._memory = memory

    async def get(self, reading: str) -> CachedJudgement | None:
        return None

    async def put(self, judgement: Judgement, hold: str = "") -> BudgetState:
        return await self._memory.put(judgement, hold)

    async def get_budget_state(self, judge: str) -> BudgetState:
        return await self._memory.get_budget_state(judge)

    async def reserve(self, hold: Reservation, budget: BudgetConfig) -> Admission:
        return await self._memory.reserve(hold, budget)

    async def release(self, judge: str, hold: str) -> BudgetState:
        return await self._memory.release(judge, hold)

    async def exchange_limits(self, asked: LimitsExchange) -> LimitsGrant:
        return await self._memory.exchange_limits(asked)


@dataclass
class _InflightReading:
    """A judgement in flight. Only the first caller gets its cost."""

    task: asyncio.Task[Judgement]
    told: bool = False


class CachingJudge:
    """Failures are never cached. A cached judgement that no stored group holds yet is returned with its full cost,
    since nobody has accounted for it: its process died, or its caller left before it arrived."""

    def __init__(self, judge: CacheableJudge, memory: JudgeCache) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self.gives_rewards = gives_rewards(judge)
        self.writes = can_write(judge)
        self.pace = get_pace(judge)
        self._judge = judge
        self._memory = memory
        self._refreshing: asyncio.Task[None] | None = None
        self._under_way: dict[str, _InflightReading] = {}
        self._claimed: set[str] = set()
        self._hits = 0

    @property
    def repeats_itself(self) -> bool:
        return isinstance(self._judge, RepeatingJudge) and self._judge.repeats_itself

    def compute_most(self, input_tokens: int) -> float | None:
        return self._judge.compute_most(input_tokens) if isinstance(self._judge, PricedJudge) else None

    async def open(self) -> None:
        """Loads the budget state. StoreUnavailable when it cannot be read."""
        await self._judge.refresh()
        self._refreshing = asyncio.create_task(self._refresh_periodically())

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
        await await_turn_at_judging()
        question = self._judge.build_question(request)
        reading = f"fresh {create_reservation_id()}" if request.fresh else question.cache_key
        flight = self._under_way.get(reading)
        if flight is None:
            flight = self._under_way[reading] = _InflightReading(asyncio.create_task(self._recall_or_ask(question)))
            flight.task.add_done_callback(lambda _: self._under_way.pop(reading, None))
        else:
            self._hits += 1
        judgement = await asyncio.shield(flight.task)
        await await_turn_at_judging()  # judgements are stored many at once, and reading each takes a while
        if flight.told:
            return _strip_cost(judgement)
        flight.told = True
        if judgement.error is None and not request.fresh:
            self._claimed.add(reading)
        return judgement

    async def _recall_or_ask(self, question: JudgeQuestion) -> Judgement:
        try:
            fresh = question.request.fresh
            recalled = None if fresh else await self._memory.get(question.cache_key)
            if recalled is not None:
                return self._use_recalled(recalled, question)
            hold = create_reservation_id()
            judgement = (await self._judge.answer_question(question, hold)).model_copy(
                update={"reading": "" if fresh else question.cache_key}
            )
            await self._judge.record_spending(judgement, hold)
            return judgement
        except StoreUnavailable as error:
            return Judgement(
                judge=self.name,
                model=self.model,
                order=tuple(candidate.id for candidate in question.request.candidates),
                error=f"could not store the judgement: {error.detail}",
                failure="unavailable",
            )

    async def _refresh_periodically(self) -> None:
        """Picks up the spending of other replicas and of commands."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                await self._judge.refresh()

    def _use_recalled(self, recalled: CachedJudgement, question: JudgeQuestion) -> Judgement:
        self._hits += 1
        whole = recalled.judgement.model_copy(update={"prompt": question.prompt_text})
        return _strip_cost(whole) if recalled.claimed or question.cache_key in self._claimed else whole


class FreshJudge:
    """Asks a judge past its cache, whose questions stay the same."""

    def __init__(self, judge: Judge) -> None:
        self.name = judge.name
        self.model = judge.model
        self.digest = judge.digest
        self.pace = get_pace(judge)
        self.gives_rewards = gives_rewards(judge)
        self._judge = judge

    async def judge(self, request: JudgeRequest) -> Judgement:
        return await self._judge.judge(request.model_copy(update={"fresh": True}))


def _strip_cost(judgement: Judgement) -> Judgement:
    """The same judgement without cost: the first caller has accounted for it."""
    free = None if judgement.cost_usd is None else 0.0
    return judgement.model_copy(
        update={"calls": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": free, "latency_seconds": 0.0}
        | {"cached_input_tokens": 0, "reasoning_tokens": 0}
        | {"unanswered_calls": 0, "unanswered_tokens": 0, "unanswered_usd": 0.0}
        | ({"cached": True} if judgement.error is None else {})
    )
