"""The limits of a judge over several processes: the contract of what shares them, and leases on it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

import pytest

from app.domain.errors import StoreUnavailable
from app.domain.judge_limits import (
    LEASE_SECONDS,
    BreakerNews,
    CallFeedback,
    CallLimits,
    LimitsExchange,
    LimitsGrant,
    OpenBreaker,
)
from app.domain.judging import Judgement
from app.judges import limits as circuit_breaker
from app.judges import limits as limits_lease
from app.judges.chat_judge import ChatJudge, InProcessMemory
from app.judges.limits import CircuitBreaker, LimitsLease
from app.ports.judges import JudgeCache
from tests.judges.test_limits import Hand
from tests.judges.test_limits_on_the_wire import Busy, asked
from tests.support.chat_server import serving
from tests.support.event_loop import closed_after
from tests.support.judge_cases import config, failure
from tests.support.store_cases import MovableClock, opened


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """Of a database; empty for what one process keeps for itself."""
    if request.param == "memory":
        return ""
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "store.db"
        path.write_bytes(request.getfixturevalue("migrated_file").read_bytes())
        return f"sqlite:///{path}"
    return str(request.getfixturevalue("postgres").migrated())


@asynccontextmanager
async def shared_by_two(url: str, clock: MovableClock | None = None) -> AsyncIterator[tuple[JudgeCache, JudgeCache]]:
    """What two processes of one database have: two stores, or one memory."""
    if not url:
        memory = InProcessMemory(clock or (lambda: datetime.now(UTC)))
        yield memory, memory
        return
    async with opened(url, clock) as one, opened(url, clock) as other:
        yield one.judge_cache, other.judge_cache


def exchange(holder: str, wanted: int = 0, **more: object) -> LimitsExchange:
    limits = CallLimits(8, requests_per_minute=60, tokens_per_minute=600, call_seconds=5.0)
    return LimitsExchange("big", holder, limits, wanted=wanted, **more)  # type: ignore[arg-type]


async def test_processes_share_slots_rates_and_breaker(url: str) -> None:
    clock = MovableClock()
    async with shared_by_two(url, clock) as (one, other):
        opened = BreakerNews("opened", 30.0, 5, "it answered 500 🐟")
        limited = CallFeedback(rate_limited=True, retry_after=20.0)
        seen = [
            await one.exchange_limits(exchange("a", 6, requests=10.0, tokens=30.0)),
            await other.exchange_limits(exchange("b", 6, requests=10.0, tokens=100.0)),
            await one.exchange_limits(exchange("a", 6, in_flight=2, kept=2, news=opened, feedback=limited)),
            await other.exchange_limits(exchange("b", 6, kept=1)),
        ]
        clock.forward(LEASE_SECONDS + 5.0)
        assert [*seen, await other.exchange_limits(exchange("b", 6, kept=1, wants_probe=True))] == [
            LimitsGrant(7, 7, 8, False, 10.0, 30.0, 0.0, None),
            LimitsGrant(1, 1, 8, False, 2.5, 60.0, 0.0, None),
            LimitsGrant(3, 3, 6, True, 0.0, 0.0, 20.0, OpenBreaker(30.0, 5, "it answered 500 🐟", "nobody")),
            LimitsGrant(3, 3, 6, True, 0.0, 0.0, 20.0, OpenBreaker(30.0, 5, "it answered 500 🐟", "nobody")),
            LimitsGrant(6, 6, 6, False, 0.0, 0.0, 5.0, OpenBreaker(15.0, 5, "it answered 500 🐟", "nobody")),
        ]


async def test_processes_that_ask_at_once_never_hold_more_than_there_is(url: str) -> None:
    async with shared_by_two(url) as memories:
        asking = [memories[number % 2].exchange_limits(exchange(f"p{number}", 3)) for number in range(20)]
        assert sum(grant.held for grant in await asyncio.gather(*asking)) == 8


async def judge_by_two(url: str, server: str, numbers: int, **settings: object) -> tuple[list[Judgement], list[int]]:
    """Readings of two processes, and what each makes its share and limit at the end."""
    async with shared_by_two(url) as memories:
        judges = [ChatJudge(config(server, **settings), memory) for memory in memories]
        try:
            asking = (judges[number % 2].judge(asked(number)) for number in range(numbers))
            return list(await asyncio.gather(*asking)), [judge.report().limit for judge in judges]
        finally:
            for judge in judges:
                await judge.close()


def test_no_more_calls_at_once_over_two_processes(url: str) -> None:
    busy = Busy(seconds=0.05)
    with serving(busy) as server:
        found, limits = asyncio.run(judge_by_two(url, server.url, 24, max_concurrency=3))
    assert ([judgement.error for judgement in found], busy.most, limits) == ([None] * 24, 3, [3, 3])


async def test_a_breaker_that_one_process_opened_is_open_for_the_other(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "BURST_SECONDS", 0.0)
    with serving(lambda number, received: failure(500)) as server:
        async with shared_by_two(url) as memories:
            chosen = config(server.url, breaker_failures=1, deadline_seconds=5.0)
            judges = [ChatJudge(chosen, memory) for memory in memories]
            errors = [(await judge.judge(asked(number))).error or "" for number, judge in enumerate(judges)]
            for judge in judges:
                await judge.close()
    assert (len(server.received), ["open after 1 consecutive" in error for error in errors]) == (1, [True, True])


@dataclass
class Failing(InProcessMemory):
    """A store whose exchanges fail as `when` says, by their number."""

    when: Callable[[int], Exception | None]
    told: list[LimitsExchange] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(lambda: datetime.now(UTC))
        self.exchanges = count()

    async def exchange_limits(self, asked: LimitsExchange) -> LimitsGrant:
        if error := self.when(next(self.exchanges)):
            raise error
        self.told.append(asked)
        return await super().exchange_limits(asked)


def leasing(memory: JudgeCache, clock: Hand) -> AbstractAsyncContextManager[LimitsLease]:
    breaker = CircuitBreaker(3, 30.0, clock, lambda: datetime.now(UTC))
    return closed_after(LimitsLease("big", CallLimits(2), memory, breaker, clock))


async def test_without_the_store_calls_go_on_until_the_lease_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_lease, "EXCHANGE_SECONDS", 0.01)
    memory, clock = Failing(lambda number: StoreUnavailable("gone") if number else None), Hand()
    async with leasing(memory, clock) as lease:
        await asyncio.gather(lease.slots.acquire(), lease.slots.acquire())
        await asyncio.sleep(0.05)
        lease.release()
        await lease.slots.acquire()
        clock.at = LEASE_SECONDS
        waiting = asyncio.create_task(lease.slots.acquire())
        lease.release()
        await asyncio.sleep(0.05)
        seen = [waiting.done(), lease.trouble, lease.slots.limit]
        waiting.cancel()
    assert seen == [False, "gone", 0]


async def test_an_unexpected_error_ends_no_lease_and_loses_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_lease, "EXCHANGE_SECONDS", 0.01)
    """What is held cannot be read once, as where a newer version wrote it."""
    memory = Failing(lambda number: None if number else ValueError("unreadable"))
    async with leasing(memory, Hand()) as lease:
        lease.record(CallFeedback(rate_limited=True))
        async with asyncio.timeout(5.0):
            await lease.slots.acquire()
    assert (memory.told[0].feedback, lease.trouble) == (CallFeedback(rate_limited=True), "")


async def test_a_process_without_calls_gives_back_all_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_lease, "EXCHANGE_SECONDS", 0.01)
    memory, before = InProcessMemory(lambda: datetime.now(UTC)), len(asyncio.all_tasks())
    async with leasing(memory, Hand()) as lease:
        await lease.slots.acquire()
        lease.release()
        await asyncio.sleep(0.05)
        tasks = len(asyncio.all_tasks()) - before
        grant = await memory.exchange_limits(LimitsExchange("big", "another", CallLimits(2), wanted=2))
        assert (tasks, lease.slots.limit, grant.slots) == (0, 0, 2)
