"""`Workers` over a pool of processes, reused between calls and replaced when they die."""

import asyncio
import logging
import os
import time
from collections.abc import Callable

from pydantic import JsonValue

from app.domain.errors import WorkerFailed
from app.domain.fair_semaphore import FairSemaphore
from app.domain.work import DEFAULT_LIMITS, Limits
from app.sandbox.process import Worker
from app.sandbox.work import Done, WorkerCall, WorkerLost, WorkerOutcome, build_call, unwrap_outcome

log = logging.getLogger(__name__)

CALLS_OF_A_WORKER = 1000
"""A worker is replaced after this many calls, to free what it has accumulated."""

ObserveCall = Callable[[str, str, float], None]
"""Called for each attempt: function, outcome (`done`, `broke`, `died`, `cancelled` or the limit), seconds."""


def choose_size(processes: int = 1) -> int:
    """The default number of workers: this process's processor cores, or its part of them where several processes
    serve; at least two, so that a slow call does not hold up every other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, -(-cores // processes))


def ignore_call(function: str, outcome: str, seconds: float) -> None:
    pass


class ProcessWorkers:
    """Workers start on demand. Concurrent callers take turns by key, and by function."""

    def __init__(self, size: int, told: ObserveCall = ignore_call) -> None:
        self._turns = FairSemaphore(size)
        self._told = told
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def waiting(self) -> int:
        """Calls that wait for a worker."""
        return self._turns.waiting

    @property
    def ids(self) -> tuple[int, ...]:
        """Process ids of the workers."""
        return tuple(sorted(worker.id for worker in self._all))

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        work = build_call(function, arguments, limits)
        async with self._turns.hold_place(work.function):
            outcome = await self._attempt(work, self._idle.pop() if self._idle else None)
            if isinstance(outcome, WorkerLost):
                log.warning("%s: a worker was lost (%s: %s)", work.function, outcome.limit or "died", outcome.how)
                outcome = await self._attempt(work, None)
        return unwrap_outcome(work, outcome)

    async def close(self) -> None:
        """Kills every worker; current and later calls fail."""
        self._closed = True
        for worker in [*self._all]:
            self._discard(worker)
        self._idle.clear()
        await asyncio.gather(*self._ending)

    async def _attempt(self, work: WorkerCall, worker: Worker | None) -> WorkerOutcome:
        """Makes one attempt in this worker or a new one."""
        worker = worker or await self._start_worker()
        began = time.perf_counter()
        what = "cancelled"
        try:
            outcome = await worker.call(work)
            what = _name_outcome(outcome)
        finally:
            self._told(work.function, what, time.perf_counter() - began)
            if what in ("done", "broke") and worker.calls < CALLS_OF_A_WORKER and not self._closed:
                self._idle.append(worker)
            else:
                self._discard(worker)
        return outcome

    async def _start_worker(self) -> Worker:
        if self._closed:
            raise WorkerFailed("the workers are closed")
        try:
            worker = await Worker.start()
        except (OSError, TimeoutError) as error:
            log.exception("no worker could be started")
            raise WorkerFailed("no worker could be started; see the log") from error
        self._all.add(worker)
        if self._closed:
            self._discard(worker)
            raise WorkerFailed("the workers are closed")
        return worker

    def _discard(self, worker: Worker) -> None:
        """Kills it at once and waits for its end in the background."""
        self._all.discard(worker)
        worker.kill()
        ending = asyncio.get_running_loop().create_task(worker.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


def _name_outcome(outcome: WorkerOutcome) -> str:
    if isinstance(outcome, WorkerLost):
        return outcome.limit or "died"
    return "done" if isinstance(outcome, Done) else "broke"
