"""Database access shared by all stores: the writer, the reader threads, the clock and the dialect."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from sqlalchemy import URL, Connection, Engine, Insert, Table, create_engine, event, func, make_url, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from app.domain.errors import StoreUnavailable
from app.domain.values import utc_now
from app.ports.runtime import Clock
from app.ports.tracing import Span, name_operation, open_span
from app.store.database_errors import as_gateway_error, is_disconnect
from app.store.inserts import let_copy
from app.store.prepared_statements import fetch_rows
from app.store.rows import to_micros
from app.store.writer import SharedUnit, Unit, Writer

BUSY_MILLISECONDS = 10_000
JOURNAL_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 5
EXECUTIONS_BEFORE_PREPARING = 5
"""The driver's own default."""

_PRAGMAS = (
    f"busy_timeout = {BUSY_MILLISECONDS}",  # first, so that the others wait instead of failing
    "journal_mode = WAL",
    "synchronous = FULL",
    f"journal_size_limit = {JOURNAL_BYTES}",
    "foreign_keys = ON",
)

_WRITER_PRAGMAS = (
    *_PRAGMAS,
    "cache_size = -65536",  # kilobytes: an index that grows everywhere at once
    "temp_store = MEMORY",  # what a statement of many rows may take back is no file, which each batch would make
    f"wal_autocheckpoint = {JOURNAL_BYTES // 4096}",  # pages: those that change often are copied once for many commits
)


def parse_url(url: str) -> URL:
    """`sqlite:///path` or `postgresql://…`. ValueError for anything else; the message never holds the URL, since
    that may hold a password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number, among them two hosts with a port each
        raise ValueError("not a database URL: use sqlite:///path or postgresql://user@host/name") from None
    kind = parsed.drivername.partition("+")[0]
    if kind == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite+pysqlite")
    if kind in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    raise ValueError("the database URL must be sqlite:///path or postgresql://user@host/name")


def describe(url: str) -> str:
    """The database as people know it, without a password: a file by its whole path, and whether it is new."""
    file = find_file(url)
    if file is None:
        return parse_url(url).set(drivername="postgresql").render_as_string(hide_password=True)
    return str(file) if file.exists() else f"{file} (new: there was none)"


def find_file(url: str) -> Path | None:
    """SQLite's file by its whole path; None on PostgreSQL."""
    parsed = parse_url(url)
    return Path(str(parsed.database)).absolute() if parsed.drivername.startswith("sqlite") else None


def open_writer(url: str, *, connections: int = 1, prepare: bool = True) -> Engine:
    """An engine whose transactions take SQLite's write lock when they begin. On PostgreSQL `prepare` lets the driver
    prepare statements that it often executes."""
    return _create_engine(parse_url(url), connections, _WRITER_PRAGMAS, "BEGIN IMMEDIATE", prepare)


def open_reader(url: str, *, connections: int, prepare: bool = True) -> Engine:
    """A read-only engine. Each transaction reads one snapshot."""
    parsed = parse_url(url)
    engine = _create_engine(parsed, connections, (*_PRAGMAS, "query_only = ON"), "BEGIN", prepare)
    if is_postgres(engine):
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return engine


def open_for_migration(url: str) -> Engine:
    """Like `open_writer`, without foreign keys, since SQLite alters a table by copying it, and without prepared
    statements, which would be left in the sessions of a pooler."""
    if (file := find_file(url)) is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    return _create_engine(parse_url(url), 1, (*_PRAGMAS[:-1], "foreign_keys = OFF"), "BEGIN IMMEDIATE", prepare=False)


def open_for_inspection(url: str) -> Engine:
    """An engine that changes nothing: it makes no SQLite file and switches no journal, unlike `open_reader`."""
    file = find_file(url)
    if file is None:
        return open_reader(url, connections=1, prepare=False)
    existing = parse_url(url).set(database=file.as_uri(), query={"mode": "rw", "uri": "true"})
    return _create_engine(existing, 1, (_PRAGMAS[0], "query_only = ON"), "BEGIN", prepare=False)


def is_postgres(engine: Engine) -> bool:
    return engine.dialect.name == "postgresql"


def _create_engine(url: URL, connections: int, pragmas: Iterable[str], begin: str, prepare: bool) -> Engine:
    if url.drivername.startswith("postgresql"):
        options: dict[str, int | None] = {
            "connect_timeout": CONNECT_SECONDS,
            "tcp_user_timeout": 3 * CONNECT_SECONDS * 1000,
            "prepare_threshold": EXECUTIONS_BEFORE_PREPARING if prepare else None,
        }
        engine = create_engine(url, pool_size=connections, max_overflow=0, connect_args=options)
        let_copy(engine)
        return engine
    engine = create_engine(url, pool_size=connections, max_overflow=0, connect_args={"check_same_thread": False})
    _set_up_sqlite(engine, tuple(pragmas), begin)
    return engine


def _execute_when_unlocked(cursor: DBAPICursor, statement: str) -> None:
    """Executes a statement and retries while locked. SQLite does not wait when two processes switch to WAL at once."""
    end = time.monotonic() + BUSY_MILLISECONDS / 1000
    while True:
        try:
            cursor.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _set_up_sqlite(engine: Engine, pragmas: tuple[str, ...], begin: str) -> None:
    def configure_connection(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        cursor = connection.cursor()
        for pragma in pragmas:
            _execute_when_unlocked(cursor, f"PRAGMA {pragma}")
        cursor.close()

    def begin_transaction(connection: Connection) -> None:
        fetch_rows(connection, begin, (), alone=True)

    event.listen(engine, "connect", configure_connection)
    event.listen(engine, "begin", begin_transaction)


T = TypeVar("T")
ItemT = TypeVar("ItemT")


class SteadyClock:
    """The wall clock when the process began, and the monotonic time since: deadlines stay where they are when the wall
    clock is set."""

    def __init__(self) -> None:
        self._began = utc_now() - timedelta(seconds=time.monotonic())

    def __call__(self) -> datetime:
        return self._began + timedelta(seconds=time.monotonic())


class Database:
    """Without a `clock`, leases and deadlines use PostgreSQL's clock, which all replicas share, or this process's
    monotonic clock on SQLite, which has one replica. `complete` is called before the commits of the writer."""

    def __init__(
        self,
        url: str,
        *,
        readers: int,
        clock: Clock | None,
        committed: Callable[[float], None] | None,
        prepare: bool = True,
        complete: Unit[None] | None = None,
    ) -> None:
        self._writing = open_writer(url, prepare=prepare)
        self._reading = open_reader(url, connections=readers, prepare=prepare)
        self._clock = clock
        self._lease_clock = clock or SteadyClock()
        self.postgres = is_postgres(self._writing)
        self._system = "postgresql" if self.postgres else "sqlite"
        self.writer = Writer(self._writing, committed, complete)
        self._threads = ThreadPoolExecutor(readers, thread_name_prefix="store-reader")
        self._readers, self._reads = readers, 0

    async def write(self, unit: Unit[T], order: str = "") -> T:
        """Runs the unit in the writer and returns its result once it is durable. See `Writer.run`."""
        with self.open_operation("write", name_operation(unit)):
            return await self.writer.run(unit, order)

    async def write_shared(self, name: str, unit: SharedUnit[ItemT, T], item: ItemT, order: str = "") -> T:
        """As `write`, of a unit that is called once for the items of many callers. `name` is that of the operation."""
        with self.open_operation("write", name):
            return await self.writer.run_shared(unit, item, order)

    def open_operation(self, kind: Literal["read", "write"], name: str) -> AbstractContextManager[Span]:
        """The span of an operation, such as `SqlGroupStore.add`. Callers whose work is batched open it themselves."""
        return open_span(f"{kind} {name}", {"db.operation.name": name, "db.system.name": self._system})

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Runs `query` on a read-only snapshot of the database."""
        loop = asyncio.get_running_loop()
        self._reads += 1
        try:
            with self.open_operation("read", name_operation(query)):
                return await loop.run_in_executor(self._threads, self.read_blocking, query)
        except RuntimeError as error:
            if self.writer.closed:
                raise StoreUnavailable("the store is closed") from error
            raise
        finally:
            self._reads -= 1

    @property
    def read_depth(self) -> int:
        """Number of reads that wait for a reader."""
        return max(0, self._reads - self._readers)

    @property
    def folder(self) -> Path | None:
        """Where the SQLite file lies; None without a file."""
        file = None if self.postgres else self._writing.url.database
        return None if not file or file == ":memory:" else Path(file).absolute().parent

    def read_blocking(self, query: Callable[[Connection], T]) -> T:
        try:
            try:
                return self._read_in_transaction(query)
            except DBAPIError as error:
                if not is_disconnect(error):
                    raise
                return self._read_in_transaction(query)  # on a fresh connection: the pool has let go of the old ones
        except Exception as error:
            raise as_gateway_error(error) from error

    def _read_in_transaction(self, query: Callable[[Connection], T]) -> T:
        with self._reading.connect() as connection:
            return query(connection)

    def write_blocking(self, unit: Unit[T]) -> T:
        """Runs the unit in its own transaction, for writes before there is an event loop."""
        try:
            with self._writing.begin() as connection:
                return unit(connection)
        except Exception as error:
            raise as_gateway_error(error) from error

    def read_clock(self) -> int:
        """The current time, for columns that record when something was written."""
        return to_micros(self._clock() if self._clock else utc_now())

    def read_lease_clock(self, connection: Connection) -> int:
        """The current time of the clock that decides when leases and deadlines are over."""
        if self._clock is None and self.postgres:
            return to_micros(connection.execute(select(func.clock_timestamp())).scalar_one())
        return to_micros(self._lease_clock())

    def insert_new(self, table: Table) -> Insert:
        """An insert that ignores rows whose key exists."""
        return insert_new(table, self.postgres)

    async def close(self) -> None:
        await asyncio.to_thread(self._close_blocking)

    def _close_blocking(self) -> None:
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
