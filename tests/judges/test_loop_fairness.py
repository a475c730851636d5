"""Work on the event loop that takes turns."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from app.judges.limits import Work, take_exclusive_turn


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
            async with take_exclusive_turn():
                seen.append((now(), number))

        await asyncio.gather(*map(one, range(5)))

    _passes(work)
    assert [number for _, number in seen] == [0, 1, 2, 3, 4]
    assert all(one < other for (one, _), (other, _) in pairwise(seen))


def test_a_judge_does_not_wait_for_the_groups_at_the_gates() -> None:
    ended: list[Work] = []

    async def work(now: Callable[[], int]) -> None:
        async def one(kind: Work) -> None:
            async with take_exclusive_turn(kind):
                pass
            ended.append(kind)

        await asyncio.gather(one("gates"), one("gates"), one("judges"))

    _passes(work)
    assert ended == ["gates", "judges", "gates"]


def test_what_goes_wrong_in_a_turn_ends_it() -> None:
    ended: list[str] = []

    async def work(now: Callable[[], int]) -> None:
        with pytest.raises(ValueError, match="broken"):
            async with take_exclusive_turn():
                raise ValueError("broken")
        async with take_exclusive_turn():
            ended.append("the next")

    _passes(work)
    assert ended == ["the next"]
