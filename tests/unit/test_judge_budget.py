"""Budgets are never exceeded, however many calls run at once, and go on after a restart."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.judging import Spending
from app.judges.budget import Amount, Budget, BudgetConfig
from app.judges.failures import ReadingFailed
from app.judges.prices import Prices, estimated_tokens

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def budget(**limits: float | int) -> Budget:
    return Budget(BudgetConfig(**limits), lambda: NOON)  # type: ignore[arg-type]


async def spend(subject: Budget, expected: Amount, used: Amount, after: int = 0) -> Amount:
    """What was used; nothing when it was refused."""
    try:
        reserved = await subject.reserve(expected)
    except ReadingFailed:
        return Amount()
    with subject.settling(reserved):
        for _ in range(after):
            await asyncio.sleep(0)
        reserved.used = used
        return used


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2_000),
    st.lists(st.tuples(st.integers(1, 400), st.floats(0, 1), st.integers(0, 5)), min_size=1, max_size=40),
)
def test_calls_at_once_never_spend_more_than_there_is(limit: int, calls: list[tuple[int, float, int]]) -> None:
    async def play() -> tuple[int, int | None]:
        subject = budget(tokens=limit)
        made = [spend(subject, Amount(most), Amount(int(most * share)), after=passes) for most, share, passes in calls]
        async with asyncio.timeout(5):
            used = sum(amount.tokens for amount in await asyncio.gather(*made))
        return used, subject.left_tokens

    used, left = asyncio.run(play())
    assert (used <= limit, left) == (True, limit - used)


def test_a_call_waits_for_others_that_may_turn_out_cheaper() -> None:
    async def play() -> list[Amount]:
        subject = budget(usd=1.0)
        dear = Amount(usd=0.7)
        return list(
            await asyncio.gather(
                spend(subject, dear, Amount(usd=0.1), after=3),
                spend(subject, dear, Amount(usd=0.6), after=3),
                spend(subject, dear, Amount(usd=0.1)),
            )
        )

    assert asyncio.run(play()) == [Amount(usd=0.1), Amount(usd=0.6), Amount()]


def test_whoever_gives_up_waiting_holds_nothing() -> None:
    async def play() -> Amount:
        subject = budget(tokens=10)
        first = await subject.reserve(Amount(8))
        waiting = [asyncio.create_task(spend(subject, Amount(9), Amount(9))) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        with subject.settling(first):
            pass
        return await waiting[1]

    assert asyncio.run(play()) == Amount(9)


def test_the_words_say_what_is_left() -> None:
    subject = budget(usd=1.0, tokens=100)
    subject.restore(Spending(input_tokens=60, output_tokens=30, cost_usd=0.75), Spending())
    with pytest.raises(ReadingFailed, match=r"a call may cost 0\.500000 US dollars and 0\.250000 are left"):
        subject.check(Amount(1, 0.5))
    with pytest.raises(ReadingFailed, match="a call may take 11 tokens and 10 are left") as refused:
        subject.check(Amount(11))
    assert refused.value.failure == "budget"
    subject.check(Amount(10, 0.25))
    assert (subject.left_usd, subject.left_tokens) == (0.25, 10)


def test_a_day_begins_with_the_whole_of_its_budget() -> None:
    now = [NOON]
    subject = Budget(BudgetConfig(usd=5.0, usd_per_day=1.0), lambda: now[0])
    subject.restore(Spending(cost_usd=3.0), Spending(cost_usd=0.25))
    left = [subject.left_usd]
    asyncio.run(spend(subject, Amount(usd=0.5), Amount(usd=0.5)))
    left.append(subject.left_usd)
    now[0] += timedelta(hours=12)
    left.append(subject.left_usd)
    asyncio.run(spend(subject, Amount(usd=0.75), Amount(usd=0.75)))
    now[0] += timedelta(days=1)
    assert [*left, subject.left_usd] == pytest.approx([0.75, 0.25, 1.0, 0.75])


def test_without_limits_everything_is_let_through() -> None:
    subject = budget()
    assert asyncio.run(spend(subject, Amount(10**9, 1e9), Amount(1))) == Amount(1)
    assert (subject.left_usd, subject.left_tokens) == (None, None)


def test_prices() -> None:
    prices = Prices(2.0, 10.0)
    assert prices.amount(1_000_000, 100_000) == Amount(1_100_000, 3.0)
    assert [Prices().known, Prices(0.0).known, prices.known] == [False, True, True]
    assert Prices(output_per_million=1.0).cost(10**6, 10**6) == 1.0


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("the quick brown fox jumps", 5), ("速い狐が飛ぶ", 8), ("🐟" * 10, 20), ("\ud800", 1)]
)
def test_estimates_are_on_the_safe_side(text: str, tokens: int) -> None:
    assert estimated_tokens([text]) >= tokens
