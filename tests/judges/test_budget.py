"""Budgets are never exceeded, however many calls run at once, and go on after a restart."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.budgets import NO_AMOUNT, Admission, Amount, BudgetConfig, BudgetState, Reservation
from app.domain.errors import StoreUnavailable
from app.domain.judging import Judgement, Spending
from app.judges.chat_judge import InProcessMemory
from app.judges.configuration import (
    Budget,
    ReadingFailed,
    SpendingAccount,
    TokenPrices,
    bound_message_tokens,
    create_reservation_id,
)
from tests.support.tiers import examples

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@dataclass
class Purse:
    """A budget over a memory that others may share, and what a judge does with it."""

    limits: BudgetConfig
    memory: InProcessMemory = field(default_factory=lambda: InProcessMemory(lambda: NOON))
    clock: Callable[[], datetime] = lambda: NOON

    def __post_init__(self) -> None:
        self.account = SpendingAccount(self.clock)
        self.budget = Budget("j", self.limits, self.account, self.memory, 60.0)

    async def spend(self, expected: Amount, used: Amount, after: int = 0) -> Amount:
        """What was used; nothing when it was refused."""
        hold = create_reservation_id()
        try:
            await self.budget.reserve(hold, NO_AMOUNT, expected)
        except ReadingFailed:
            await self.budget.release(hold)
            return NO_AMOUNT
        for _ in range(after):
            await asyncio.sleep(0)
        await self.pay(used, hold)
        return used

    async def pay(self, used: Amount, hold: str = "") -> None:
        paid = Judgement(judge="j", model="m", order=(), input_tokens=used.tokens, cost_usd=used.usd, calls=1)
        self.account.update_state(await self.memory.put(paid, hold))
        self.budget.settle(hold)


def budget(**limits: float | int) -> Purse:
    return Purse(BudgetConfig(**limits))  # type: ignore[arg-type]


@settings(max_examples=examples(80), deadline=None)
@given(
    st.integers(0, 2_000),
    st.lists(st.tuples(st.integers(1, 400), st.floats(0, 1), st.integers(0, 5)), min_size=1, max_size=40),
)
def test_calls_at_once_never_spend_more_than_there_is(limit: int, calls: list[tuple[int, float, int]]) -> None:
    """Two processes over one memory take turns."""

    async def play() -> tuple[int, int | None]:
        first = budget(tokens=limit)
        second = Purse(first.limits, first.memory)
        made = [
            (first, second)[number % 2].spend(Amount(most), Amount(int(most * share)), after=passes)
            for number, (most, share, passes) in enumerate(calls)
        ]
        async with asyncio.timeout(5):
            used = sum(amount.tokens for amount in await asyncio.gather(*made))
        return used, (await first.memory.get_budget_state("j")).compute_remaining(first.limits).tokens

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.judges.configuration.POLL_SECONDS", 0.001)
        used, left = asyncio.run(play())
    assert (used <= limit, left) == (True, limit - used)


async def test_a_call_waits_for_others_that_may_turn_out_cheaper() -> None:
    subject = budget(usd=1.0)
    dear = Amount(usd=0.7)
    assert list(
        await asyncio.gather(
            subject.spend(dear, Amount(usd=0.1), after=3),
            subject.spend(dear, Amount(usd=0.6), after=3),
            subject.spend(dear, Amount(usd=0.1)),
        )
    ) == [Amount(usd=0.1), Amount(usd=0.6), Amount()]


async def test_two_readings_that_need_a_second_call_do_not_wait_for_each_other() -> None:
    """Each has used 4 of 10 and wants 5 more: what they used is gone, whoever comes first finds that out."""
    subject = budget(tokens=10)
    for hold in ("a", "b"):
        await subject.budget.reserve(hold, NO_AMOUNT, Amount(5))
    ends = await asyncio.gather(
        *(subject.budget.reserve(hold, Amount(4), Amount(5)) for hold in ("a", "b")), return_exceptions=True
    )
    words = "this judge's budget is exhausted: the next call may use 5 tokens, 2 are left"
    assert ([*map(str, ends)], subject.account.state) == ([words] * 2, BudgetState(used=Amount(8)))


async def test_whoever_gives_up_waiting_holds_nothing() -> None:
    subject = budget(tokens=10)
    await subject.budget.reserve("first", NO_AMOUNT, Amount(8))
    waiting = [asyncio.create_task(subject.spend(Amount(9), Amount(9))) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await subject.budget.release("first")
    assert await waiting[1] == Amount(9)


def test_the_words_say_what_is_left() -> None:
    subject = budget(usd=1.0, tokens=100)
    asyncio.run(subject.pay(Amount(90, 0.75)))
    with pytest.raises(ReadingFailed, match=r"the next call may cost 0\.500000 US dollars, 0\.250000 are left"):
        subject.budget.require_available(Amount(1, 0.5))
    with pytest.raises(ReadingFailed, match="the next call may use 11 tokens, 10 are left") as refused:
        subject.budget.require_available(Amount(11))
    assert refused.value.failure == "budget"
    subject.budget.require_available(Amount(10, 0.25))
    assert (subject.budget.left_usd, subject.budget.left_tokens) == (0.25, 10)


def test_calls_without_an_answer_count_in_full() -> None:
    subject = budget(usd=1.0, tokens=100)
    lost = Spending(unanswered_calls=1, unanswered_tokens=40, unanswered_usd=0.75)
    subject.account.update_state(BudgetState(total=lost))
    assert (subject.budget.left_usd, subject.budget.left_tokens) == (0.25, 60)


def test_a_day_begins_with_the_whole_of_its_budget() -> None:
    now = [NOON]
    clock = lambda: now[0]  # noqa: E731
    subject = Purse(BudgetConfig(usd=5.0, usd_per_day=1.0), InProcessMemory(clock), clock)
    asyncio.run(subject.pay(Amount(usd=0.25)))
    left = [subject.budget.left_usd]
    asyncio.run(subject.spend(Amount(usd=0.5), Amount(usd=0.5)))
    left.append(subject.budget.left_usd)
    now[0] += timedelta(hours=12)
    left.append(subject.budget.left_usd)
    asyncio.run(subject.pay(Amount(usd=3.5)))
    now[0] += timedelta(days=1)
    assert [*left, subject.budget.left_usd] == pytest.approx([0.75, 0.25, 1.0, 0.75])


def test_without_limits_everything_is_let_through_and_nothing_put_aside() -> None:
    subject = budget()
    assert asyncio.run(subject.spend(Amount(10**9, 1e9), Amount(1))) == Amount(1)
    assert (subject.budget.left_usd, subject.budget.left_tokens) == (None, None)


def test_a_budget_that_cannot_be_looked_up_lets_nothing_through() -> None:
    class Away(InProcessMemory):
        async def reserve(self, hold: Reservation, budget: BudgetConfig) -> Admission:
            raise StoreUnavailable("the disk is full")

    subject = Purse(BudgetConfig(tokens=10), Away(lambda: NOON))
    with pytest.raises(ReadingFailed, match="could not read this judge's budget: the disk is full") as failed:
        asyncio.run(subject.budget.reserve("a", NO_AMOUNT, Amount(1)))
    assert failed.value.failure == "unavailable"


def test_prices() -> None:
    prices = TokenPrices(2.0, 10.0)
    assert prices.compute_amount(1_000_000, 100_000) == Amount(1_100_000, 3.0)
    assert [TokenPrices().are_known, TokenPrices(0.0).are_known, prices.are_known] == [False, True, True]
    assert TokenPrices(output_per_million=1.0).compute_cost(10**6, 10**6) == 1.0


def test_estimates_are_on_the_safe_side() -> None:
    assert bound_message_tokens(["the fox", "2 狐", "\ud800"]) == 3 * 16 + 4 + 5 + 3
