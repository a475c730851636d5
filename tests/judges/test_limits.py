"""How much a judge is asked at once and per minute, by a clock that only moves when it is told to."""

import asyncio
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.judges.limits import (
    BURST_SECONDS,
    COOLDOWN_SECONDS,
    LONGEST_RUN,
    AdaptiveConcurrencyLimit,
    RateLimiter,
    hash_beginnings,
)

ROUNDING: Final = 1e-9
"""Seconds by which two sums of the same pauses may differ; far below what a clock can tell."""


@dataclass
class Hand:
    """Of a clock."""

    at: float = 0.0

    def __call__(self) -> float:
        return self.at


def test_a_limit_starts_at_its_ceiling_and_shrinks_once_per_episode() -> None:
    clock = Hand()
    limit = AdaptiveConcurrencyLimit(64, clock)
    seen = [limit.limit]
    for _ in range(64):
        limit.record_rate_limited()
    seen.append(limit.limit)
    clock.at = COOLDOWN_SECONDS
    limit.record_rate_limited(retry_after=100.0)
    seen.append(limit.limit)
    clock.at = COOLDOWN_SECONDS + 99.0
    limit.record_rate_limited()
    seen.append(limit.limit)
    clock.at = 2 * COOLDOWN_SECONDS + 99.0
    limit.record_rate_limited()
    assert [*seen, limit.limit] == [64, 51, 40, 40, 32]


def test_it_never_falls_below_one() -> None:
    clock = Hand()
    limit = AdaptiveConcurrencyLimit(2, clock)
    for episode in range(5):
        clock.at = episode * COOLDOWN_SECONDS
        limit.record_rate_limited()
    assert limit.limit == 1


def test_it_grows_by_one_after_a_clean_round_and_not_beyond_its_ceiling() -> None:
    clock = Hand()
    limit = AdaptiveConcurrencyLimit(10, clock)
    limit.record_rate_limited()
    grown = [limit.limit]
    for _ in range(3):
        limit.record_success()
    clock.at = COOLDOWN_SECONDS
    for _ in range(100):
        limit.record_success()
        if limit.limit != grown[-1]:
            grown.append(limit.limit)
    assert grown == [8, 9, 10]


def test_other_faults_stop_growth_and_shrink_nothing() -> None:
    clock = Hand()
    limit = AdaptiveConcurrencyLimit(5, clock)
    limit.record_rate_limited()
    clock.at = COOLDOWN_SECONDS
    limit.record_success()
    limit.record_failure()
    for _ in range(50):
        limit.record_success()
    held = limit.limit
    clock.at = 2 * COOLDOWN_SECONDS
    for _ in range(4):
        limit.record_success()
    assert (held, limit.limit) == (4, 5)


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from(("arrive", "leave", "give up", "429", "clean")), st.integers(0, 20)), max_size=60
    ),
)
def test_places_are_neither_lost_nor_given_twice(ceiling: int, events: list[tuple[str, int]]) -> None:
    """Whoever arrives gets a place in order, whatever others do meanwhile; nobody waits while there is room."""

    async def play() -> None:
        limit = AdaptiveConcurrencyLimit(ceiling, Hand())
        waiting: list[asyncio.Task[None]] = []
        inside = 0
        for event, which in events:
            if event == "arrive":
                waiting.append(asyncio.create_task(limit.acquire()))
            elif event == "leave" and inside:
                limit.release()
                inside -= 1
            elif event == "give up" and waiting:
                waiting.pop(which % len(waiting)).cancel()
            elif event == "429":
                limit.record_rate_limited()
            elif event == "clean":
                limit.record_success()
            if which % 2:
                continue  # several things happen before anybody gets to act
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            admitted = [task for task in waiting if task.done()]
            assert admitted == waiting[: len(admitted)], "first come, first served"
            inside += len(admitted)
            del waiting[: len(admitted)]
            assert (limit.in_flight, limit.queued) == (inside, len(waiting))
            assert not waiting or inside >= limit.limit
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert limit.queued == 0

    asyncio.run(play())


def test_a_place_given_to_somebody_who_just_left_is_passed_on() -> None:
    async def play() -> tuple[bool, int]:
        limit = AdaptiveConcurrencyLimit(1, Hand())
        await limit.acquire()
        first = asyncio.create_task(limit.acquire())
        second = asyncio.create_task(limit.acquire())
        await asyncio.sleep(0)
        limit.release()
        first.cancel()
        await asyncio.wait([first, second], timeout=1)
        return second.done() and not second.cancelled(), limit.in_flight

    assert asyncio.run(play()) == (True, 1)


@given(st.floats(1, 6000), st.lists(st.tuples(st.floats(0, 30), st.floats(0, 500)), min_size=1, max_size=40))
@example(60.0, [(3.3, 15.8), (0.0, 500.0), (1.8, 0.0)])
def test_no_stretch_of_time_sees_more_than_its_rate_and_one_burst(
    per_minute: float, asked: list[tuple[float, float]]
) -> None:
    clock = Hand()
    rate = RateLimiter(per_minute, clock)
    burst = max(1.0, per_minute / 60 * BURST_SECONDS)
    used: list[tuple[float, float]] = []
    for pause, units in asked:
        clock.at += pause
        taken, seconds = rate.reserve(units)
        assert taken == min(units, burst)
        used.append((clock.at + seconds, taken))
    moments = [moment for moment, _ in used]
    assert all(later >= earlier - ROUNDING for earlier, later in pairwise(moments)), "in the order of asking"
    for begin in range(len(used)):
        for end in range(begin, len(used)):
            within = sum(taken for _, taken in used[begin : end + 1])
            allowed = burst + (moments[end] - moments[begin]) * per_minute / 60
            assert within <= allowed * (1 + 1e-6) + 1e-6


def test_what_was_not_used_is_given_back() -> None:
    rate = RateLimiter(60, Hand())
    rate.reserve(15)
    waits = [rate.reserve(0)[1], rate.reserve(3)[1]]
    rate.settle(2)
    assert [*waits, rate.reserve(0)[1]] == pytest.approx([0.0, 3.0, 1.0])


def test_whoever_stops_waiting_for_a_rate_takes_nothing() -> None:
    async def play() -> float:
        rate = RateLimiter(60, Hand())
        await rate.take(15)
        waiting = asyncio.create_task(rate.take(10))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        return rate.reserve(1)[1]

    assert asyncio.run(play()) == pytest.approx(1.0)


def test_prompts_that_begin_alike_follow_one_another_and_nobody_waits_for_ever() -> None:
    """Groups of three characters wait in turns."""
    names = [f"{'abc'[number % 3]}{number}" for number in range(3 * (LONGEST_RUN + 4))]

    async def admitted() -> str:
        limit, order = AdaptiveConcurrencyLimit(1, lambda: 0.0), []
        await limit.acquire()

        async def call(name: str) -> None:
            await limit.acquire(hash_beginnings(["rules" * 1000, name[0] * 5000, name]))
            order.append(name[0])
            limit.release()

        calls = [asyncio.create_task(call(name)) for name in names]
        await asyncio.sleep(0)
        limit.release()
        await asyncio.gather(*calls)
        return "".join(order)

    order = asyncio.run(admitted())
    runs = [len(list(run)) for _, run in groupby(order)]
    assert (sorted(order), len(runs)) == (sorted(name[0] for name in names), 5)
    assert runs[0] == 1 + LONGEST_RUN, "then the oldest of another character has its turn"
