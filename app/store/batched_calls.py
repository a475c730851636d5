"""Items of many callers that the database gets in one call: those that come during a call go into the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from app.domain.errors import StoreUnavailable
from app.ports.tracing import SpanOrigin, create_joint_context, find_origin

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

MOST_ITEMS: Final = 256
"""Of one call. A write holds up all others."""
QUIET_TURNS: Final = 4
"""Passes of the event loop without another item, after which none is waited for: callers that are answered together
come again together, but not all in one pass."""


@dataclass(frozen=True)
class _BatchedItem(Generic[ItemT, ResultT]):
    item: ItemT
    result: asyncio.Future[ResultT]
    origin: SpanOrigin | None


class BatchedCalls(Generic[ItemT, ResultT]):
    """`call` gets the items and returns one result for each, in order. While others come, it waits for them for
    `patience` seconds."""

    def __init__(
        self,
        call: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT]]],
        most_items: int = MOST_ITEMS,
        *,
        patience: float = 0.0,
    ) -> None:
        self._call = call
        self._most = most_items
        self._patience = patience
        self._waiting: list[_BatchedItem[ItemT, ResultT]] = []
        self._is_calling = False
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: ItemT, pause: float = 0.0) -> ResultT:
        """The item's result. If a call fails, each of its items has one of its own. A call that would begin with this
        item waits `pause` seconds for others."""
        loop = asyncio.get_running_loop()
        waiting = _BatchedItem[ItemT, ResultT](item, loop.create_future(), find_origin())
        self._waiting.append(waiting)
        if not self._is_calling:
            self._is_calling = True
            if pause:
                loop.call_later(pause, self._call_next)
            else:
                loop.call_soon(self._look_for_more, loop.time() + self._patience, 1, QUIET_TURNS)
        return await waiting.result

    def _look_for_more(self, until: float, known: int, turns: int) -> None:
        loop = asyncio.get_running_loop()
        left = turns - 1 if len(self._waiting) == known else QUIET_TURNS
        if left and loop.time() < until:
            loop.call_soon(self._look_for_more, until, len(self._waiting), left)
        else:
            self._call_next()

    def _call_next(self, _: object = None) -> None:
        self._is_calling = bool(self._waiting)
        if self._is_calling:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            context = create_joint_context(one.origin for one in batch)
            self._task = asyncio.get_running_loop().create_task(self._call_batch(batch), context=context)
            self._task.add_done_callback(self._call_next)

    async def _call_batch(self, batch: Sequence["_BatchedItem[ItemT, ResultT]"]) -> None:
        try:
            results = await self._call([one.item for one in batch])
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
    batch: Sequence[_BatchedItem[ItemT, ResultT]], tell: Callable[[int, asyncio.Future[ResultT]], object]
) -> None:
    for position, one in enumerate(batch):
        if not one.result.done():
            tell(position, one.result)
