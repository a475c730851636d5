"""Work on the event loop that takes turns."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from app.judges.limits import await_turn_at_judging, take_turn_at_gates


def _passes(work: Callable[[Callable[[], int]], Awaitable[None]]) -> None:
    """Runs `work`, which is told how often the event loop went round."""

    async def play() -> None:
        rounds = 0

        async def count() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await work(lambda: rounds)
        counting.cancel()

    asyncio.run(play())


def test_everybody_gets_a_turn_in_a_pass_of_its_own_and_in_the_order_of_asking() -> None:
    seen: list[tuple[int, int]] = []

    async def work(now: Callable[[], int]) -> None:
        async def one(number: int) -> None:
            async with take_turn_at_gates():
                seen.append((now(), number))

        await asyncio.gather(*map(one, range(5)))

    _passes(work)
    assert [number for _, number in seen] == [0, 1, 2, 3, 4]
    assert all(one < other for (one, _), (other, _) in pairwise(seen))


def test_a_judge_does_not_wait_for_the_groups_at_the_gates() -> None:
    ended: list[str] = []

    async def work(now: Callable[[], int]) -> None:
        async def pass_gates() -> None:
            async with take_turn_at_gates():
                pass
            ended.append("gates")

        async def judge() -> None:
            await await_turn_at_judging()
            ended.append("judges")

        await asyncio.gather(pass_gates(), pass_gates(), judge())

    _passes(work)
    assert ended == ["judges", "gates", "gates"]


def test_short_turns_at_judging_share_a_pass_and_a_long_one_ends_it() -> None:
    seen: list[tuple[int, int]] = []

    async def work(now: Callable[[], int]) -> None:
        async def one(number: int) -> None:
            await await_turn_at_judging()
            seen.append((now(), number))
            if number >= 3:
                time.sleep(0.005)  # noqa: ASYNC251  # holds up the loop, as a large prompt does

        await asyncio.gather(*map(one, range(6)))

    _passes(work)
    began = seen[0][0]
    assert seen == [(began, 0), (began, 1), (began, 2), (began, 3), (began + 1, 4), (began + 2, 5)]


def test_who_gives_up_before_a_turn_holds_up_nobody() -> None:
    ended: list[int] = []

    async def work(now: Callable[[], int]) -> None:
        async def one(number: int) -> None:
            await await_turn_at_judging()
            time.sleep(0.005)  # noqa: ASYNC251
            ended.append(number)

        tasks = [asyncio.create_task(one(number)) for number in range(12)]
        await asyncio.sleep(0)
        for task in tasks[1:-1]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await one(12)

    _passes(work)
    assert ended == [0, 11, 12]


def test_what_goes_wrong_in_a_turn_ends_it() -> None:
    ended: list[str] = []

    async def work(now: Callable[[], int]) -> None:
        with pytest.raises(ValueError, match="broken"):
            async with take_turn_at_gates():
                raise ValueError("broken")
        async with take_turn_at_gates():
            ended.append("the next")

    _passes(work)
    assert ended == ["the next"]
