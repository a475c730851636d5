"""Group commit: one thread commits the work of many callers in one transaction and then answers each."""

import asyncio
import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.domain.errors import StoreUnavailable
from app.ports.tracing import SpanOrigin, find_origins, open_linked_span
from app.store.database_errors import as_gateway_error, is_disconnect, is_transient

T = TypeVar("T")
ItemT = TypeVar("ItemT")
Unit = Callable[[Connection], T]
"""One caller's work. It may run several times; earlier runs are rolled back."""
SharedUnit = Callable[[Connection, Sequence[ItemT]], Sequence[T]]
"""The work of all callers of a batch that ask for the same: one result for each item, in order."""

CAPACITY = 1000
BATCH = 100
ATTEMPTS = 5
ENOUGH = 64
"""So many units do not wait for more. With fewer, many connections share too few commits (`benchmarks/README.md`)."""
QUIET_TURNS = 2
"""Turns of the event loop without another unit, after which none is waited for: what came while the first of a batch
was queued is read in the first turn, and queued in the second."""


@dataclass
class _Job(Generic[T]):
    unit: SharedUnit[Any, T]
    item: Any
    order: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]
    origins: tuple[SpanOrigin, ...]
    result: tuple[T] | tuple[()] = ()
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
    """Of all jobs that ever were."""
    is_due: bool = False
    """Whether the writer may begin."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def begin(self) -> None:
        if not self.is_due:
            self.is_due = True
            self.changed.notify()


class Writer:
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

    async def run(self, unit: Unit[T], order: str = "") -> T:
        """Returns the unit's result after the commit. Waits while the queue is full. Units of a batch are sorted by
        `order`, so that replicas take locks in the same order."""
        return await self.run_shared(_run_units, unit, order)

    async def run_shared(self, unit: SharedUnit[ItemT, T], item: ItemT, order: str = "") -> T:
        """The same of a unit that is called once for the items of all callers in a batch."""
        loop = asyncio.get_running_loop()
        job = _Job(unit, item, order, loop, loop.create_future(), find_origins())
        while (room := self._enqueue(job)) is not None:
            await room
        result: T = await job.future
        return result

    def _enqueue(self, job: _Job[T]) -> asyncio.Future[None] | None:
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
            if len(queue.jobs) >= ENOUGH or queue.gathering not in {None, job.loop}:
                queue.begin()
            elif queue.gathering is None and not queue.is_due:
                queue.gathering = job.loop
                job.loop.call_soon(self._look_for_more, job.loop, queue.queued, QUIET_TURNS)
        return None

    def _look_for_more(self, loop: asyncio.AbstractEventLoop, known: int, turns: int) -> None:
        """Lets the writer begin when the loop has nothing more for it: callers that are answered together come again
        together, and each commit takes as long as many of their units."""
        queue = self._queue
        with queue.changed:
            left = turns - 1 if queue.queued == known else QUIET_TURNS
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
                _run_batch(self._engine, batch, self._committed, self._complete)
            _wake_callers(batch)

    def _take_batch(self) -> list[_Job[Any]]:
        """The next batch of queued jobs; empty only when the store closes."""
        queue = self._queue
        with queue.changed:
            while not queue.is_due and not queue.closing:
                queue.changed.wait()
            batch = [queue.jobs.popleft() for _ in range(min(BATCH, len(queue.jobs)))]
            queue.is_due = bool(queue.jobs)
            room = len(queue.waiting) if queue.closing else CAPACITY - len(queue.jobs)
            woken = [queue.waiting.popleft() for _ in range(min(room, len(queue.waiting)))]
        for loop, waiter in woken:
            _call_in_loop(loop, partial(_release_waiter, waiter))
        return sorted(batch, key=lambda job: job.order)


def _run_units(connection: Connection, units: Sequence[Unit[T]]) -> list[T]:
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


def _run_batch(
    engine: Engine,
    batch: Sequence[_Job[Any]],
    committed: Callable[[float], None] | None,
    complete: Unit[None] | None,
) -> None:
    """Runs a batch and sets every job's result or error. If it fails, each job runs alone."""
    try:
        _run_with_retries(engine, batch, committed, complete)
    except Exception as error:
        if len(batch) == 1 or isinstance(error, StoreUnavailable):
            for job in batch:
                job.error = as_gateway_error(error)
            return
        for job in batch:
            _run_batch(engine, [job], committed, complete)


def _run_with_retries(
    engine: Engine,
    batch: Sequence[_Job[Any]],
    committed: Callable[[float], None] | None,
    complete: Unit[None] | None,
) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _run_once(engine, batch, committed, complete)
        except DBAPIError as error:
            if attempt == ATTEMPTS or not (is_transient(error) or is_disconnect(error)):
                raise
        time.sleep(random.uniform(0.005, 0.01) * 2**attempt)  # noqa: S311  # spreads replicas that met


def _run_once(
    engine: Engine,
    batch: Sequence[_Job[Any]],
    committed: Callable[[float], None] | None,
    complete: Unit[None] | None,
) -> None:
    """Runs the batch in one transaction. StoreUnavailable when running jobs alone would not help."""
    try:
        connection = engine.connect()
    except DBAPIError as error:
        raise StoreUnavailable("the store cannot be reached; retry later") from error
    with connection:
        try:
            connection.begin()
        except DBAPIError as error:
            raise StoreUnavailable("the store is locked by another process") from error
        for unit, jobs in _join_jobs(batch):
            for job, result in zip(jobs, unit(connection, [job.item for job in jobs]), strict=True):
                job.result = (result,)
        if complete is not None:
            complete(connection)
        _commit(connection, committed)


def _commit(connection: Connection, committed: Callable[[float], None] | None) -> None:
    started = time.perf_counter()
    try:
        connection.commit()
    except DBAPIError as error:
        if is_disconnect(error):
            raise StoreUnavailable(
                "the connection to the store was lost during a commit; the write may or may not have happened"
            ) from error
        raise
    if committed is not None:
        with contextlib.suppress(Exception):  # what is committed must not look as if it had failed
            committed(time.perf_counter() - started)
