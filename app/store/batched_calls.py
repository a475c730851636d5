"""Items of many callers that the database gets in one call: those that come during a call go into the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar

from app.domain.errors import StoreUnavailable

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

MOST_ITEMS: Final = 256
"""Of one call. A write holds up all others."""


class BatchedCalls(Generic[ItemT, ResultT]):
    """`call` gets the items and returns one result for each, in order."""

    def __init__(
        self, call: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT]]], most_items: int = MOST_ITEMS
    ) -> None:
        self._call = call
        self._most = most_items
        self._waiting: list[tuple[ItemT, asyncio.Future[ResultT]]] = []
        self._calling: asyncio.Task[None] | None = None

    async def add(self, item: ItemT) -> ResultT:
        """The item's result. If a call fails, each of its items has one of its own."""
        result: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        if self._calling is None:
            self._calling = asyncio.create_task(self._call_while_waiting())
        return await result

    async def _call_while_waiting(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._call_batch(batch)
        finally:
            self._calling = None

    async def _call_batch(self, batch: Sequence[tuple[ItemT, asyncio.Future[ResultT]]]) -> None:
        try:
            results = await self._call([item for item, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):
                for one in batch:
                    await self._call_batch([one])
                return
            failure = error
            _settle(batch, lambda _, future: future.set_exception(failure))
        except BaseException:
            _settle(batch, lambda _, future: future.cancel())
            raise
        else:
            _settle(batch, lambda position, future: future.set_result(results[position]))


def split_by_size(results: Sequence[ResultT], asked: Sequence[Sequence[object]]) -> list[list[ResultT]]:
    """The results of all items of these lists, as lists of the same lengths."""
    left = iter(results)
    return [list(islice(left, len(items))) for items in asked]


def _settle(
    batch: Sequence[tuple[ItemT, asyncio.Future[ResultT]]], tell: Callable[[int, asyncio.Future[ResultT]], object]
) -> None:
    for position, (_, future) in enumerate(batch):
        if not future.done():
            tell(position, future)
