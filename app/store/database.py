"""What every part of the store works with: the writer, the reading threads, the clock and the dialect."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from typing import TypeVar

from sqlalchemy import Connection, Insert, Table, func, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from app.domain.errors import StoreUnavailable
from app.ports.runtime import Clock
from app.store.engine import is_postgres, open_reader, open_writer
from app.store.failures import as_gateway_error, is_disconnect
from app.store.payloads import to_micros
from app.store.writer import Unit, Writer

T = TypeVar("T")


class Database:
    """With a `clock` it tells the time everywhere; without one leases go by PostgreSQL's own clock, which all replicas
    share, or by this process' clock on SQLite, which has one replica."""

    def __init__(
        self, url: str, *, readers: int, clock: Clock | None, committed: Callable[[float], None] | None
    ) -> None:
        self._writing = open_writer(url)
        self._reading = open_reader(url, connections=readers)
        self._clock = clock
        self.postgres = is_postgres(self._writing)
        self.writer = Writer(self._writing, committed)
        self._threads = ThreadPoolExecutor(readers, thread_name_prefix="store-reader")

    async def write(self, unit: Unit[T], order: str = "") -> T:
        """The unit's result once it is durable. See `Writer.run`."""
        return await self.writer.run(unit, order)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """What `query` sees of one moment of the database. It cannot write."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self.read_blocking, query)
        except RuntimeError as error:
            if self.writer.closed:
                raise StoreUnavailable("the store is closed") from error
            raise

    def read_blocking(self, query: Callable[[Connection], T]) -> T:
        try:
            try:
                return self._read_once(query)
            except DBAPIError as error:
                if not is_disconnect(error):
                    raise
                return self._read_once(query)  # on a fresh connection: the pool has let go of the old ones
        except Exception as error:
            raise as_gateway_error(error) from error

    def _read_once(self, query: Callable[[Connection], T]) -> T:
        with self._reading.connect() as connection:
            return query(connection)

    def write_blocking(self, unit: Unit[T]) -> T:
        """A transaction of its own, beside the writer's: for what is written before there is an event loop."""
        try:
            with self._writing.begin() as connection:
                return unit(connection)
        except Exception as error:
            raise as_gateway_error(error) from error

    def stamp(self) -> int:
        """The present, for columns that only tell when something was written."""
        return to_micros(self._clock() if self._clock else datetime.now(UTC))

    def now(self, connection: Connection) -> int:
        """The present by the clock that leases run out by."""
        if self._clock is None and self.postgres:
            return to_micros(connection.execute(select(func.clock_timestamp())).scalar_one())
        return self.stamp()

    def insert_new(self, table: Table) -> Insert:
        """An insert that leaves rows alone whose key exists."""
        return insert_new(table, self.postgres)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self.writer.close()
        self._threads.shutdown()
        self._reading.dispose()
        self._writing.dispose()


@cache
def insert_new(table: Table, postgres: bool) -> Insert:
    if postgres:
        from sqlalchemy.dialects import postgresql  # takes long to import

        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()
