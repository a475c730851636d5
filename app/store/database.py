"""The database: one writer, several reader threads, the clocks, and the engines of both databases.

All writes of a process go through one thread. A commit waits for the disk, and SQLite takes one writer at a time, so
the thread runs the work of many callers, up to a hundred, in one transaction and answers each of them once that is
durable. A unit is one caller's work; callers who ask for the same share one unit, which is called once with all their
items and so needs as few statements as one of them would. When a batch fails, its transaction is rolled back and each
unit runs alone: one bad unit never fails the others. So a unit may run several times, and must leave nothing behind
but what its transaction writes.

Reads run on threads of their own, each in a transaction that sees one snapshot and can change nothing.
"""

import asyncio
import contextlib
import errno
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial, wraps
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, Insert, Table, create_engine, event, func, make_url, select
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from app.domain.errors import GatewayError, InvalidRequest, StoreUnavailable, UserError
from app.domain.values import utc_now
from app.ports.environment import Clock
from app.ports.tracing import (
    Span,
    SpanOrigin,
    create_joint_context,
    find_origin,
    find_origins,
    name_operation,
    open_linked_span,
    open_span,
)
from app.store.statements import begin_insert, fetch_rows, let_copy, lock_names, to_micros

_ItemT = TypeVar("_ItemT")
_ResultT = TypeVar("_ResultT")
_T = TypeVar("_T")
Unit = Callable[[Connection], _T]
"""One caller's work. It may run several times; earlier runs are rolled back."""
SharedUnit = Callable[[Connection, Sequence[_ItemT]], Sequence[_T]]
"""The work of all callers of a batch that ask for the same: one result for each item, in order."""


class _SteadyClock:
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
        self._lease_clock = clock or _SteadyClock()
        self.postgres = is_postgres(self._writing)
        self._system = "postgresql" if self.postgres else "sqlite"
        self.writer = _Writer(self._writing, committed, complete)
        self._threads = ThreadPoolExecutor(readers, thread_name_prefix="store-reader")
        self._readers, self._reads = readers, 0
        self._erasing = threading.Lock()

    async def write(self, unit: Unit[_T], order: str = "", name: str = "", locks: Collection[str] = ()) -> _T:
        """Runs the unit in the writer and returns its result once it is durable. See `_Writer.run`. `name` is the
        operation's, unless the unit has a good one."""
        with self.open_operation("write", name or name_operation(unit)):
            return await self.writer.run(unit, order, locks)

    async def write_shared(
        self, name: str, unit: SharedUnit[_ItemT, _T], item: _ItemT, order: str = "", locks: Collection[str] = ()
    ) -> _T:
        """As `write`, of a unit that is called once for the items of many callers. `name` is that of the operation."""
        with self.open_operation("write", name):
            return await self.writer.run_shared(unit, item, order, locks)

    def open_operation(self, kind: Literal["read", "write"], name: str) -> AbstractContextManager[Span]:
        """The span of an operation, such as `GroupStore.add`. Callers whose work is batched open it themselves."""
        return open_span(f"{kind} {name}", {"db.operation.name": name, "db.system.name": self._system})

    async def read(self, query: Callable[[Connection], _T], name: str = "") -> _T:
        """Runs `query` on a read-only snapshot of the database."""
        loop = asyncio.get_running_loop()
        self._reads += 1
        try:
            with self.open_operation("read", name or name_operation(query)):
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

    def read_blocking(self, query: Callable[[Connection], _T]) -> _T:
        try:
            try:
                return self._read_in_transaction(query)
            except DBAPIError as error:
                if not _is_disconnect(error):
                    raise
                return self._read_in_transaction(query)  # on a fresh connection: the pool has let go of the old ones
        except Exception as error:
            raise _as_gateway_error(error) from error

    def _read_in_transaction(self, query: Callable[[Connection], _T]) -> _T:
        with self._reading.connect() as connection:
            return query(connection)

    def write_blocking(self, unit: Unit[_T]) -> _T:
        """Runs the unit in its own transaction, for writes before there is an event loop."""
        try:
            with self._writing.begin() as connection:
                return unit(connection)
        except Exception as error:
            raise _as_gateway_error(error) from error

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

    async def erase_deleted(self, tables: Sequence[Table]) -> None:
        """What was deleted from these tables then stands nowhere in SQLite's files. StoreUnavailable while somebody
        else reads for long. On PostgreSQL its vacuum does that, by itself."""
        if not self.postgres:
            await asyncio.to_thread(self._erase_deleted, [table.name for table in tables])

    def _erase_deleted(self, tables: Sequence[str]) -> None:
        with self._erasing, contextlib.closing(open_for_erasing(self._writing.url)) as connection:
            _rewrite_tables(connection, tables)
            _empty_journal(connection)

    async def close(self) -> None:
        await asyncio.to_thread(self._close_blocking)

    def _close_blocking(self) -> None:
        self.writer.close()
        self._threads.shutdown()
        self._reading.dispose()
        self._writing.dispose()


# Methods that query. The caller of one gives no connection, and awaits what it returns.


class StorePart:
    """What is kept of one subject: its methods are made by `reads` and `writes`."""

    def __init__(self, database: Database) -> None:
        self.database = database


_PartT = TypeVar("_PartT", bound=StorePart)
_P = ParamSpec("_P")
_Query = Callable[Concatenate[_PartT, Connection, _P], _T]
_Method = Callable[Concatenate[_PartT, _P], Coroutine[Any, Any, _T]]


def reads(query: _Query[_PartT, _P, _T]) -> _Method[_PartT, _P, _T]:
    """A method that runs on a read-only snapshot, in a thread of the readers."""

    @wraps(query)
    async def read(self: _PartT, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self.database.read(lambda connection: query(self, connection, *args, **kwargs), query.__qualname__)

    return read


def writes(
    order: str | Callable[..., str] = "", *, locked: bool = False
) -> Callable[[_Query[_PartT, _P, _T]], _Method[_PartT, _P, _T]]:
    """A method that runs in the writer; what it wrote is durable when it returns. It may run several times. `order`, or
    what that makes of the arguments, says where it comes in a batch: replicas lock the same rows in the same order. The
    name of a `locked` method's order is locked."""

    def decorate(unit: _Query[_PartT, _P, _T]) -> _Method[_PartT, _P, _T]:
        @wraps(unit)
        async def write(self: _PartT, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            place = order if isinstance(order, str) else order(*args, **kwargs)
            return await self.database.write(
                lambda connection: unit(self, connection, *args, **kwargs),
                place,
                unit.__qualname__,
                (place,) if locked else (),
            )

        return write

    return decorate


@cache
def insert_new(table: Table, postgres: bool) -> Insert:
    merge: Insert = begin_insert(table, postgres).on_conflict_do_nothing()
    return merge


# What features do with a store before it is used.

PREPARATIONS: Final[list[Callable[[Database], None]]] = []


def prepare_on_open(prepare: Callable[[Database], None]) -> None:
    """Called with each store that is opened, after it was migrated. Blocking."""
    PREPARATIONS.append(prepare)


# The writer: one thread commits the work of many callers in one transaction, and then answers each.

CAPACITY: Final = 1000
"""Queued units, beyond which callers wait for room."""
_BATCH: Final = 100
"""Units of one transaction, at most: the first of them waits for the last."""
_ATTEMPTS: Final = 5
_ENOUGH: Final = 64
"""So many units do not wait for more. With fewer, many connections share too few commits (`docs/results.md`)."""
_TURNS_WITHOUT_A_UNIT: Final = 2
"""Turns of the event loop in a row that bring no other unit, after which the writer begins. Two, since a request that
came while the first unit of a batch was queued is read in the first turn, and its unit is queued in the second."""


@dataclass
class _Job(Generic[_T]):
    unit: SharedUnit[Any, _T]
    item: Any
    order: str
    locks: Collection[str]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[_T]
    origins: tuple[SpanOrigin, ...]
    result: tuple[_T] | tuple[()] = ()
    error: Exception | None = None

    def resolve(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(*self.result)


@dataclass
class _Queue:
    """State shared by callers and the writer thread, under one lock."""

    jobs: deque[_Job[Any]] = field(default_factory=deque)
    waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = field(default_factory=deque)
    closing: bool = False
    gathering: asyncio.AbstractEventLoop | None = None
    """The event loop that looks whether its callers queue more."""
    queued: int = 0
    """How many jobs ever were queued: a change tells that more came, even where the writer took some meanwhile."""
    is_due: bool = False
    """Whether the writer may begin."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def begin(self) -> None:
        if not self.is_due:
            self.is_due = True
            self.changed.notify()


class _Writer:
    """Commits units in batches. `committed` is called with the seconds of every commit, `complete` before each with its
    connection, both from the writer's thread."""

    def __init__(
        self,
        engine: Engine,
        committed: Callable[[float], None] | None = None,
        complete: Unit[None] | None = None,
    ) -> None:
        self._engine = engine
        self._complete = complete
        self._committed = committed
        self._queue = _Queue()
        self._thread = threading.Thread(target=self._write_batches, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """Number of queued units."""
        return len(self._queue.jobs)

    @property
    def closed(self) -> bool:
        return self._queue.closing

    async def run(self, unit: Unit[_T], order: str = "", locks: Collection[str] = ()) -> _T:
        """Returns the unit's result after the commit. Waits while the queue is full. Units of a batch are sorted by
        `order`, so that replicas take locks in the same order. A unit that needs several kinds of locks names them
        (`lock_names`): the names of all units are locked together before the first unit runs. Each unit by itself would
        wait for its locks with those of earlier units in hand."""
        return await self.run_shared(_run_units, unit, order, locks)

    async def run_shared(
        self, unit: SharedUnit[_ItemT, _T], item: _ItemT, order: str = "", locks: Collection[str] = ()
    ) -> _T:
        """The same of a unit that is called once for the items of all callers in a batch."""
        loop = asyncio.get_running_loop()
        job = _Job(unit, item, order, locks, loop, loop.create_future(), find_origins())
        while (room := self._enqueue(job)) is not None:
            await room
        result: _T = await job.future
        return result

    def _enqueue(self, job: _Job[_T]) -> asyncio.Future[None] | None:
        """Queues the job and returns None, or returns a future to wait for when the queue is full."""
        queue = self._queue
        with queue.changed:
            if queue.closing:
                raise StoreUnavailable("the store is closed")
            if len(queue.jobs) >= CAPACITY:
                room: asyncio.Future[None] = job.loop.create_future()
                queue.waiting.append((job.loop, room))
                return room
            queue.jobs.append(job)
            queue.queued += 1
            # Another loop that looks for more does not see what the callers of this one are about to queue.
            if len(queue.jobs) >= _ENOUGH or queue.gathering not in {None, job.loop}:
                queue.begin()
            elif queue.gathering is None and not queue.is_due:
                queue.gathering = job.loop
                job.loop.call_soon(self._look_for_more, job.loop, queue.queued, _TURNS_WITHOUT_A_UNIT)
        return None

    def _look_for_more(self, loop: asyncio.AbstractEventLoop, queued: int, turns_left: int) -> None:
        """Lets the writer begin when the loop has nothing more for it: callers that are answered together come again
        together, and each commit takes as long as many of their units."""
        queue = self._queue
        with queue.changed:
            left = turns_left - 1 if queue.queued == queued else _TURNS_WITHOUT_A_UNIT
            if left and not queue.is_due:
                loop.call_soon(self._look_for_more, loop, queue.queued, left)
                return
            queue.gathering = None
            if queue.jobs:
                queue.begin()

    def close(self) -> None:
        """Blocks until everything queued is committed; later units are refused."""
        with self._queue.changed:
            self._queue.closing = True
            self._queue.changed.notify()
        self._thread.join()

    def _write_batches(self) -> None:
        while batch := self._take_batch():
            origins = [origin for job in batch for origin in job.origins]
            with open_linked_span("commit batch", {"db.operation.batch.size": len(batch)}, origins):
                self._run_batch(batch)
            _wake_callers(batch)

    def _take_batch(self) -> list[_Job[Any]]:
        """The next batch of queued jobs; empty only when the store closes."""
        queue = self._queue
        with queue.changed:
            while not queue.is_due and not queue.closing:
                queue.changed.wait()
            batch = [queue.jobs.popleft() for _ in range(min(_BATCH, len(queue.jobs)))]
            queue.is_due = bool(queue.jobs)
            room = len(queue.waiting) if queue.closing else CAPACITY - len(queue.jobs)
            woken = [queue.waiting.popleft() for _ in range(min(room, len(queue.waiting)))]
        for loop, waiter in woken:
            _call_in_loop(loop, partial(_release_waiter, waiter))
        return sorted(batch, key=lambda job: job.order)

    def _run_batch(self, batch: Sequence[_Job[Any]]) -> None:
        """Runs a batch and sets every job's result or error. If it fails, each job runs alone."""
        try:
            self._run_with_retries(batch)
        except Exception as error:
            if len(batch) == 1 or isinstance(error, StoreUnavailable):
                for job in batch:
                    job.error = _as_gateway_error(error)
                return
            for job in batch:
                self._run_batch([job])

    def _run_with_retries(self, batch: Sequence[_Job[Any]]) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._run_once(batch)
            except DBAPIError as error:
                if attempt == _ATTEMPTS or not (is_transient(error) or _is_disconnect(error)):
                    raise
            time.sleep(random.uniform(0.005, 0.01) * 2**attempt)  # noqa: S311  # spreads replicas that met

    def _run_once(self, batch: Sequence[_Job[Any]]) -> None:
        """Runs the batch in one transaction. StoreUnavailable when running jobs alone would not help."""
        try:
            connection = self._engine.connect()
        except DBAPIError as error:
            raise StoreUnavailable("the store cannot be reached; retry later") from error
        with connection:
            try:
                connection.begin()
            except DBAPIError as error:
                raise StoreUnavailable("the store is locked by another process") from error
            # All at once and sorted, before any unit: two replicas that took them one by one would wait for each other.
            if names := {name for job in batch for name in job.locks}:
                lock_names(connection, names)
            for unit, jobs in _join_jobs(batch):
                for job, result in zip(jobs, unit(connection, [job.item for job in jobs]), strict=True):
                    job.result = (result,)
            if self._complete is not None:
                self._complete(connection)
            self._commit(connection)

    def _commit(self, connection: Connection) -> None:
        started = time.perf_counter()
        try:
            connection.commit()
        except DBAPIError as error:
            if _is_disconnect(error):
                # Not tried again, and no unit runs alone: the work may be committed already.
                raise StoreUnavailable(
                    "the connection to the store was lost during a commit; the write may or may not have happened"
                ) from error
            raise
        if self._committed is not None:
            with contextlib.suppress(Exception):  # what is committed must not look as if it had failed
                self._committed(time.perf_counter() - started)


def _run_units(connection: Connection, units: Sequence[Unit[_T]]) -> list[_T]:
    return [unit(connection) for unit in units]


def _join_jobs(batch: Sequence[_Job[Any]]) -> Iterable[tuple[SharedUnit[Any, Any], list[_Job[Any]]]]:
    """In the order of the batch, those of one order and unit together."""
    joined: dict[tuple[str, SharedUnit[Any, Any]], list[_Job[Any]]] = {}
    for job in batch:
        joined.setdefault((job.order, job.unit), []).append(job)
    return ((unit, jobs) for (_, unit), jobs in joined.items())


def _call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:  # the caller's loop is closed: nobody is waiting any more
        return


def _wake_callers(batch: Sequence[_Job[Any]]) -> None:
    """One wake-up per event loop and batch."""
    for loop in {job.loop for job in batch}:
        _call_in_loop(loop, partial(_resolve_jobs, [job for job in batch if job.loop is loop]))


def _resolve_jobs(jobs: Sequence[_Job[Any]]) -> None:
    for job in jobs:
        job.resolve()


def _release_waiter(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


# Items of many callers that the database gets in one call: those that come during a call go into the next one.

_MOST_ITEMS: Final = 256
"""Of one call, at most: a write holds up all others."""
_TURNS_WITHOUT_AN_ITEM: Final = 4
"""Turns of the event loop in a row that bring no other item, after which the call begins. More than one, since callers
who are answered together come again together, but not all in one turn."""


@dataclass(frozen=True)
class _BatchedItem(Generic[_ItemT, _ResultT]):
    item: _ItemT
    result: asyncio.Future[_ResultT]
    origin: SpanOrigin | None


class BatchedCalls(Generic[_ItemT, _ResultT]):
    """`call` gets the items and returns one result for each, in order. While others come, it waits for them for
    `patience` seconds."""

    def __init__(
        self,
        call: Callable[[Sequence[_ItemT]], Awaitable[Sequence[_ResultT]]],
        most_items: int = _MOST_ITEMS,
        *,
        patience: float = 0.0,
    ) -> None:
        self._call = call
        self._most = most_items
        self._patience = patience
        self._waiting: list[_BatchedItem[_ItemT, _ResultT]] = []
        self._is_calling = False
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: _ItemT, pause: float = 0.0) -> _ResultT:
        """The item's result. If a call fails, each of its items has one of its own. A call that would begin with this
        item waits `pause` seconds for others."""
        loop = asyncio.get_running_loop()
        waiting = _BatchedItem[_ItemT, _ResultT](item, loop.create_future(), find_origin())
        self._waiting.append(waiting)
        if not self._is_calling:
            self._is_calling = True
            if pause:
                loop.call_later(pause, self._call_next)
            else:
                loop.call_soon(self._look_for_more, loop.time() + self._patience, 1, _TURNS_WITHOUT_AN_ITEM)
        return await waiting.result

    def _look_for_more(self, until: float, waiting: int, turns_left: int) -> None:
        loop = asyncio.get_running_loop()
        left = turns_left - 1 if len(self._waiting) == waiting else _TURNS_WITHOUT_AN_ITEM
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

    async def _call_batch(self, batch: Sequence["_BatchedItem[_ItemT, _ResultT]"]) -> None:
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


def split_by_size(results: Sequence[_ResultT], lists: Sequence[Sequence[object]]) -> list[list[_ResultT]]:
    """The results of all items of these lists, as lists of the same lengths."""
    left = iter(results)
    return [list(islice(left, len(items))) for items in lists]


def _settle(
    batch: Sequence[_BatchedItem[_ItemT, _ResultT]], tell: Callable[[int, asyncio.Future[_ResultT]], object]
) -> None:
    for position, one in enumerate(batch):
        if not one.result.done():
            tell(position, one.result)


# Engines, and the settings of their connections.

BUSY_MILLISECONDS: Final = 10_000
"""How long SQLite waits for a lock that another process holds."""
_JOURNAL_BYTES: Final = 64 * 1024 * 1024
_CONNECT_SECONDS: Final = 5
_EXECUTIONS_BEFORE_PREPARING: Final = 5
"""The driver's own default."""
_ERASING = "secure_delete = ON"
"""What is deleted is overwritten, so that what players take back is not left in the file."""
_PRAGMAS = (
    f"busy_timeout = {BUSY_MILLISECONDS}",  # first, so that the others wait instead of failing
    "journal_mode = WAL",
    "synchronous = FULL",
    f"journal_size_limit = {_JOURNAL_BYTES}",
    "foreign_keys = ON",
)
_WRITER_PRAGMAS = (
    *_PRAGMAS,
    "cache_size = -32768",  # kilobytes: an index that grows everywhere at once
    _ERASING,
    "temp_store = MEMORY",  # what a statement of many rows may take back is no file, which each batch would make
    f"wal_autocheckpoint = {_JOURNAL_BYTES // 4096}",  # pages: those that change often are copied once for many commits
)


def parse_url(url: str) -> URL:
    """`sqlite:///path` or `postgresql://…`. UserError for anything else; the message never holds the URL, since
    that may hold a password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number, among them two hosts with a port each
        raise UserError("not a database URL: use sqlite:///path or postgresql://user@host/name") from None
    kind = parsed.drivername.partition("+")[0]
    if kind == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite+pysqlite")
    if kind in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    raise UserError("the database URL must be sqlite:///path or postgresql://user@host/name")


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


# Erasing. SQLite overwrites rows that are deleted and pages that get free, but a row that was moved to another page
# leaves a copy in the gap of the former one: so the tables are written anew, and all their former pages overwritten.


def open_for_erasing(url: URL) -> sqlite3.Connection:
    """Without foreign keys: a table whose rows go one by one, as these ask for, is not overwritten as a whole."""
    connection = sqlite3.connect(str(url.database), isolation_level=None)
    for pragma in (_PRAGMAS[0], "foreign_keys = OFF", "temp_store = MEMORY", _ERASING):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _rewrite_tables(connection: sqlite3.Connection, tables: Iterable[str]) -> None:
    try:
        for table in tables:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM main.{table}")  # noqa: S608  # names of ours
            connection.execute(f"DELETE FROM main.{table}")  # noqa: S608
            connection.execute(f"INSERT INTO main.{table} SELECT * FROM temp.kept")  # noqa: S608
            connection.execute("DROP TABLE temp.kept")
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{_NOT_ERASED}: {error}") from error


def _empty_journal(connection: sqlite3.Connection) -> None:
    (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise StoreUnavailable(f"{_NOT_ERASED}: somebody reads what was there before")


_NOT_ERASED: Final = "it is deleted, but traces are left in the file of the database; repeat the request later"


def is_postgres(engine: Engine) -> bool:
    return engine.dialect.name == "postgresql"


def _create_engine(url: URL, connections: int, pragmas: Iterable[str], begin: str, prepare: bool) -> Engine:
    if url.drivername.startswith("postgresql"):
        options: dict[str, int | None] = {
            "connect_timeout": _CONNECT_SECONDS,
            "tcp_user_timeout": 3 * _CONNECT_SECONDS * 1000,
            "prepare_threshold": _EXECUTIONS_BEFORE_PREPARING if prepare else None,
        }
        engine = create_engine(url, pool_size=connections, max_overflow=0, connect_args=options)
        let_copy(engine)
        return engine
    engine = create_engine(url, pool_size=connections, max_overflow=0, connect_args={"check_same_thread": False})
    _set_up_sqlite(engine, tuple(pragmas), begin, None if "uri" in url.query else Path(str(url.database)))
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


def _set_up_sqlite(engine: Engine, pragmas: tuple[str, ...], begin: str, file: Path | None) -> None:
    def configure_connection(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        cursor = connection.cursor()
        for pragma in pragmas:
            _execute_when_unlocked(cursor, f"PRAGMA {pragma}")
        cursor.close()
        entry.info[_OPENED] = _identify_file(file)

    def begin_transaction(connection: Connection) -> None:
        # What is written into a file that was replaced is acknowledged and then gone.
        if connection.info[_OPENED] != _identify_file(file):
            raise StoreUnavailable(FILE_REPLACED)
        fetch_rows(connection, begin, (), alone=True)

    event.listen(engine, "connect", configure_connection)
    event.listen(engine, "begin", begin_transaction)


_OPENED: Final = "opened_file"


def _identify_file(file: Path | None) -> tuple[int, int] | None:
    """Device and inode of the file that stands under this path now; None where there is none, or it is not looked
    for."""
    try:
        found = None if file is None else file.stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


# What an error of the database means for the service.

FILE_REPLACED = "the file of the database was replaced or removed while the service ran: restart the service"
DISK_FULL = "the disk of the database cannot be written to: no space left"
_TRANSIENT = {"40001", "40P01"}
"""PostgreSQL's serialization_failure and deadlock_detected: the same work succeeds when tried again."""
_PROMPT_GONE = {"fk_judgements_prompt_digest", "fk_tasks_prompt_digest"}
"""Constraints of PostgreSQL that a prompt breaks which was pruned while somebody stored a use of it, or the other way
round: the same work succeeds when tried again, since who uses a prompt stores it first."""
_LOST_STATEMENT = {"42P05", "26000"}
"""PostgreSQL's duplicate_prepared_statement and invalid_sql_statement_name: a pooler changes sessions under the
driver."""
_DISK_FULL_STATE = "53100"
"""PostgreSQL's disk_full."""
_READ_ONLY_STATE = "25006"
"""PostgreSQL's read_only_sql_transaction: the server is a standby that was not promoted."""


def _as_gateway_error(error: Exception) -> Exception:
    """The error to raise for `error`. Values that no database can hold are the caller's fault; an unavailable database
    is a temporary fault of the service; other errors are bugs and stay as they are."""
    if isinstance(error, GatewayError):
        return error
    if isinstance(error, DataError | UnicodeEncodeError | OverflowError):
        return InvalidRequest("a value cannot be stored in the database")
    if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _LOST_STATEMENT:
        return StoreUnavailable(
            "a connection pooler stands before the database and keeps no prepared statements: set"
            " database_prepared_statements to false"
        )
    if is_disk_full(error):
        return StoreUnavailable(DISK_FULL)
    if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == _READ_ONLY_STATE:
        return StoreUnavailable("the server of the database takes no writes: it is a standby, or set to be read only")
    if isinstance(error, OperationalError | InterfaceError) or _is_disconnect(error):
        return StoreUnavailable("the store cannot be reached or written to; retry later")
    return error


def is_transient(error: Exception) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    broken = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
    return getattr(error.orig, "sqlstate", None) in _TRANSIENT or broken in _PROMPT_GONE


def _is_disconnect(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def is_disk_full(error: BaseException) -> bool:
    """Whether the driver or the system said that there is no space left."""
    if isinstance(error, DBAPIError):
        code = getattr(error.orig, "sqlite_errorcode", None)
        return code == sqlite3.SQLITE_FULL or getattr(error.orig, "sqlstate", None) == _DISK_FULL_STATE
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
