"""Items of many callers in one call of the database: what waits goes together, and one bad item fails alone."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.errors import StoreUnavailable
from app.store.database import BatchedCalls, split_by_size


class Doubling:
    """Doubles numbers once it may; a negative one fails the whole call."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.is_called, self.may_answer = asyncio.Event(), asyncio.Event()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        self.is_called.set()
        await self.may_answer.wait()
        if -1 in items:
            raise ValueError("negative")
        if -2 in items:
            raise StoreUnavailable("away")
        return [2 * item for item in items]


async def call_with(*items: int, most: int = 256) -> tuple[list[int | type[BaseException]], list[list[int]]]:
    """The first item is sent alone, the others while its call runs."""
    doubling = Doubling()
    batched = BatchedCalls(doubling, most)
    first = asyncio.ensure_future(batched.add(items[0]))
    await doubling.is_called.wait()
    others = [asyncio.ensure_future(batched.add(item)) for item in items[1:]]
    await asyncio.sleep(0)
    doubling.may_answer.set()
    results = await asyncio.gather(first, *others, return_exceptions=True)
    return [one if isinstance(one, int) else type(one) for one in results], doubling.calls


@pytest.mark.parametrize(
    ("items", "most", "results", "calls"),
    [
        ((1, 2, 3), 256, [2, 4, 6], [[1], [2, 3]]),
        ((1, 2, 3, 4), 2, [2, 4, 6, 8], [[1], [2, 3], [4]]),
        ((1, 2, -1, 3), 256, [2, 4, ValueError, 6], [[1], [2, -1, 3], [2], [-1], [3]]),
        ((1, 2, -2), 256, [2, StoreUnavailable, StoreUnavailable], [[1], [2, -2]]),
    ],
    ids=["together", "bounded", "one is bad", "the store is away"],
)
async def test_what_comes_during_a_call_goes_into_the_next(
    items: tuple[int, ...], most: int, results: list[int | type[BaseException]], calls: list[list[int]]
) -> None:
    assert await call_with(*items, most=most) == (results, calls)


async def test_a_caller_that_leaves_takes_nothing_from_others() -> None:
    doubling = Doubling()
    batched = BatchedCalls(doubling)
    leaving, staying = (asyncio.ensure_future(batched.add(item)) for item in (1, 2))
    await asyncio.sleep(0)
    leaving.cancel()
    doubling.may_answer.set()
    assert (await staying, leaving.cancelled()) == (4, True)


def test_results_are_split_as_their_items_were() -> None:
    assert split_by_size([1, 2, 3], ["ab", "", "c"]) == [[1, 2], [], [3]]
