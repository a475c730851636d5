"""Items of many callers that are written together: those that come during a write go into the next one."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection

from app.domain.errors import StoreUnavailable
from app.store.database import Database

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

MOST: Final = 256
"""Items of one write, which holds up all others."""

WriteItems = Callable[[Connection, Database, Sequence[ItemT]], Sequence[ResultT]]
"""One result for each item, in order."""


@dataclass(frozen=True)
class _Waiting(Generic[ItemT, ResultT]):
    item: ItemT
    result: asyncio.Future[ResultT]
    context: Context

    def succeed(self, result: ResultT) -> None:
        if not self.result.done():
            self.result.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class BatchedWrites(Generic[ItemT, ResultT]):
    def __init__(self, database: Database, write: WriteItems[ItemT, ResultT], order: str) -> None:
        self._database = database
        self._write = write
        self._order = order
        self._waiting: list[_Waiting[ItemT, ResultT]] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, item: ItemT) -> ResultT:
        """Returns the item's result after the commit. If a write fails, each of its items is written alone."""
        result: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(item, result, copy_context()))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_waiting())
        return await result

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await asyncio.create_task(self._write_batch(batch), context=batch[0].context)  # for its trace
        finally:
            self._writing = None

    async def _write_batch(self, batch: Sequence[_Waiting[ItemT, ResultT]]) -> None:
        try:
            results = await self._database.write(partial(self._write_items, [one.item for one in batch]), self._order)
        except asyncio.CancelledError:
            for one in batch:
                one.result.cancel()
            raise
        except Exception as error:
            return await self._recover(batch, error)
        for one, result in zip(batch, results, strict=True):
            one.succeed(result)

    async def _recover(self, batch: Sequence[_Waiting[ItemT, ResultT]], error: Exception) -> None:
        for one in batch:
            if len(batch) == 1 or isinstance(error, StoreUnavailable):
                one.fail(error)
            else:
                await self._write_batch([one])

    def _write_items(self, items: Sequence[ItemT], connection: Connection) -> Sequence[ResultT]:
        return self._write(connection, self._database, items)
