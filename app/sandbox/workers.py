"""Workers: calls of our functions in processes that can be killed. Text of models is parsed there.

Some texts keep a parser busy for ever, and a thread cannot be ended. So a worker is killed when a call exceeds its
time; the kernel keeps the other limits. A call whose worker was lost is made once more in a new one: only what happens
twice is held against a text of a model. Texts of authors get a part of the workers, and one try. Workers are started,
not forked: a fork of a process with threads may copy a held lock. Answers are JSON under the random token of their
call, and never pickles, which could run code in the service.
"""

import asyncio
import json
import logging
import os
import secrets
import signal
import socket
import sys
import time
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.errors import WorkerFailed, WorkExceeded
from app.domain.fair_semaphore import FairSemaphore
from app.domain.tasks import DEFAULT_LIMITS, Limit, Limits
from app.domain.values import FiniteJson, Frozen
from app.ports.environment import Workers
from app.sandbox.frames import HEAD, SLACK_BYTES, STARTED, build_frame, encode_json
from app.toolkit.texts import run_in_turn

log = logging.getLogger(__name__)

# Calls and outcomes

_LIMIT_TEXTS: Final[dict[Limit, str]] = {
    "seconds": "{0.seconds:g} seconds",
    "cpu_seconds": "{0.cpu_seconds:g} seconds of processor time",
    "memory_mb": "{0.memory_mb} MB of memory",
    "output_bytes": "{0.output_bytes} bytes of result",
}


@dataclass(frozen=True)
class _WorkerCall:
    """A call of a function `module:name`. `order` is the message to the worker."""

    function: str
    limits: Limits
    order: bytes


@dataclass(frozen=True)
class _Done:
    result: JsonValue


@dataclass(frozen=True)
class _FunctionRaised:
    """The function raised; its worker is still usable. `fault` may quote the text."""

    fault: str


@dataclass(frozen=True)
class _WorkerLost:
    """The worker is dead or must be killed, because of `limit` or, without one, for the reason in `how`."""

    limit: Limit | None
    how: str


_WorkerOutcome = _Done | _FunctionRaised | _WorkerLost


def _build_call(function: Callable[..., JsonValue], arguments: Sequence[JsonValue], limits: Limits) -> _WorkerCall:
    """Builds a call. Raises ValueError, TypeError or RecursionError for arguments that cannot be sent to a worker."""
    name = _name_function(function)
    order = {"function": name, "arguments": list(arguments), "limits": limits.model_dump()}
    return _WorkerCall(name, limits, encode_json(order))


def _name_function(function: Callable[..., object]) -> str:
    """The function's name. Raises ValueError for functions without an importable name: lambdas, closures, bound
    methods."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or "<" in name or module == "__main__" or hasattr(function, "__self__"):
        raise ValueError(f"{function!r} is not a module-level function, so a worker cannot import it")
    return f"{module}:{name}"


def _unwrap_outcome(work: _WorkerCall, outcome: _WorkerOutcome) -> JsonValue:
    """The call's result. Raises WorkerFailed or WorkExceeded if there is none. A fault may quote a model's text, so it
    goes only to the log, on one line."""
    if isinstance(outcome, _Done):
        return outcome.result
    if isinstance(outcome, _FunctionRaised):
        fault = "".join(character if character.isprintable() else " " for character in outcome.fault)
        log.error("%s broke in a worker: %s", work.function, fault)
        raise WorkerFailed(f"{work.function} broke; see the log")
    if outcome.limit is None:
        raise WorkerFailed(f"{work.function}: its worker was lost twice, the last time because {outcome.how}")
    allowed = _LIMIT_TEXTS[outcome.limit].format(work.limits)
    detail = f"{work.function} needs more than the {allowed} that it may use"
    raise WorkExceeded(detail, limit=outcome.limit, allowed=allowed)


# One worker

_START_SECONDS: Final = 120.0
"""For starting Python and importing a function's module: generous, because only our own code can be slow here."""
BOOT: Final = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[2])\n"
    "from app.sandbox.worker import serve\n"
    "serve(int(sys.argv[1]))\n"
)
ENVIRONMENT: Final = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
"""A worker's complete environment: none of the service's variables, and a fixed order of sets."""


class _WorkerAnswer(Frozen):
    """Validated strictly as untrusted, because code in a worker may have taken it over."""

    ready: bool = False
    result: FiniteJson = None
    fault: str | None = None
    exceeded: Limit | None = None


_ANSWER = TypeAdapter(_WorkerAnswer)


class Worker:
    """Created by `start`. Runs one call at a time; unusable once it was killed or lost."""

    def __init__(self, process: Process, reader: StreamReader, writer: StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._talk = asyncio.Lock()
        self._loaded: set[str] = set()
        self.calls = 0
        """Number of calls that it has run."""

    @classmethod
    async def start(cls) -> "Worker":
        """Starts a worker. Raises OSError or TimeoutError if that fails."""
        # One socket, no pipes: event loops differ in how they treat pipes of a subprocess.
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-s", "-P", "-B", "-c", BOOT, str(os.getpid()), _dump_module_path()),
                    stdin=theirs.fileno(),
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    cwd="/",
                    env=ENVIRONMENT,
                    start_new_session=True,
                )
            except BaseException:
                writer.close()
                raise
        worker = cls(process, reader, writer)
        try:
            async with asyncio.timeout(_START_SECONDS):
                answer = await worker._read(STARTED, SLACK_BYTES)
        except BaseException:
            await worker._reap()
            raise
        if isinstance(answer, _WorkerLost) or not answer.ready:
            await worker._reap()
            raise OSError("a worker did not start")
        return worker

    @property
    def id(self) -> int:
        return self._process.pid

    async def call(self, work: _WorkerCall) -> _WorkerOutcome:
        """Runs a call. Raises only on cancellation; then the worker must be killed."""
        if work.function not in self._loaded:
            # Imported first, under its own time limit, so that the limits of the call are the text's alone.
            loaded = await self._ask(encode_json({"function": work.function}), _START_SECONDS, SLACK_BYTES)
            if isinstance(loaded, _WorkerLost):
                return _WorkerLost(None, f"{loaded.how}, before the call")
            if isinstance(loaded, _FunctionRaised):
                return loaded
            self._loaded.add(work.function)
        self.calls += 1
        return await self._ask(work.order, work.limits.seconds, work.limits.output_bytes + SLACK_BYTES)

    async def _ask(self, order: bytes, seconds: float, most_bytes: int) -> _WorkerOutcome:
        token = secrets.token_bytes(16)
        try:
            async with self._talk, asyncio.timeout(seconds):
                await self._write(build_frame(token, order))
                answer = await self._read(token, most_bytes)
        except TimeoutError:
            return _WorkerLost("seconds", "it took too long")
        if isinstance(answer, _WorkerLost):
            return answer
        if answer.exceeded is not None:
            return _WorkerLost(answer.exceeded, "it was refused more")
        return _FunctionRaised(answer.fault) if answer.fault is not None else _Done(answer.result)

    async def _write(self, message: bytes) -> None:
        with suppress(ConnectionError):  # it is dead, which reading tells in more detail
            self._writer.write(message)
            await self._writer.drain()

    async def _read(self, token: bytes, most_bytes: int) -> _WorkerAnswer | _WorkerLost:
        try:
            size, answered = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            if answered != token:
                return _WorkerLost(None, "it answered something else")
            if size > most_bytes:
                return _WorkerLost("output_bytes", "it said too much")
            return _ANSWER.validate_json(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return await self._kill_and_find_cause()
        except ValidationError:
            return _WorkerLost(None, "it answered what cannot be read")

    async def _kill_and_find_cause(self) -> _WorkerLost:
        """The cause of its end, after it closed its stream. If it is still running, it is killed here."""
        await self._reap()
        status = self._process.returncode or 0
        if status == -signal.SIGXCPU:
            return _WorkerLost("cpu_seconds", "the kernel ended it")
        return _WorkerLost(None, f"it died of signal {-status}" if status < 0 else f"it ended with status {status}")

    def kill(self) -> None:
        """Kills it and its process group."""
        self._writer.transport.abort()
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kills the worker and waits for its end, after the answer of a current call."""
        self.kill()
        async with self._talk:
            await self._reap()

    async def _reap(self) -> None:
        self.kill()
        await self._process.wait()
        with suppress(OSError):
            await self._writer.wait_closed()


def _dump_module_path() -> str:
    """This process's `sys.path` as absolute paths in JSON, so that a worker finds the same modules."""
    return json.dumps([os.path.abspath(folder) for folder in sys.path])  # noqa: PTH100  # also of ""


# The pool

CALLS_OF_A_WORKER: Final = 1000
"""A worker is replaced after this many calls, to free what it has accumulated."""

_LARGE: Final = 1024 * 1024
"""Characters from which on a thread encodes arguments: tens of megabytes would hold the event loop for 0.3 s."""


def _are_large(arguments: Sequence[JsonValue]) -> bool:
    """Counted no further than needed, with eight characters for what is neither a text nor holds others."""
    size, left = 0, list[JsonValue](arguments)
    while left and size < _LARGE:
        one = left.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            size += sum(map(len, one)) + 8
            left += one.values()
        elif isinstance(one, list):
            size += 8
            left += one
        else:
            size += 8
    return size >= _LARGE


ObserveCall = Callable[[str, str, float], None]
"""Called for each attempt: function, outcome (`done`, `broke`, `died`, `cancelled` or the limit), seconds."""


def choose_size(processes: int = 1) -> int:
    """The default number of workers: this process's processor cores, or its part of them where several processes
    serve; at least two, so that a slow call does not hold up every other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2, -(-cores // processes))


def _ignore_call(function: str, outcome: str, seconds: float) -> None:
    pass


class ProcessWorkers:
    """Workers start on demand. Concurrent callers take turns by key, and by function."""

    def __init__(self, size: int, observe: ObserveCall = _ignore_call) -> None:
        self.size = size
        self._turns = FairSemaphore(size)
        self._observe = observe
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
        build = partial(_build_call, function, arguments, limits)
        work = await run_in_turn("bodies", build) if _are_large(arguments) else build()
        async with self._turns.hold_place(work.function):
            outcome = await self._attempt(work, self._idle.pop() if self._idle else None)
            if isinstance(outcome, _WorkerLost):
                log.warning("%s: a worker was lost (%s: %s)", work.function, outcome.limit or "died", outcome.how)
            if isinstance(outcome, _WorkerLost) and (outcome.limit is None or limits.tries > 1):
                outcome = await self._attempt(work, None)
        return _unwrap_outcome(work, outcome)

    async def close(self) -> None:
        """Kills every worker; current and later calls fail."""
        self._closed = True
        for worker in [*self._all]:
            self._discard(worker)
        self._idle.clear()
        await asyncio.gather(*self._ending)

    async def _attempt(self, work: _WorkerCall, worker: Worker | None) -> _WorkerOutcome:
        """Makes one attempt in this worker or a new one."""
        worker = worker or await self._start_worker()
        began = time.perf_counter()
        what = "cancelled"
        try:
            outcome = await worker.call(work)
            what = _name_outcome(outcome)
        finally:
            self._observe(work.function, what, time.perf_counter() - began)
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
        if self._closed:  # while it started
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


def _name_outcome(outcome: _WorkerOutcome) -> str:
    if isinstance(outcome, _WorkerLost):
        return outcome.limit or "died"
    return "done" if isinstance(outcome, _Done) else "broke"


# A part of the workers


class WorkersPart:
    """A part of the workers, for calls that may be slow and whose callers can wait. Once it has ended, its calls fail
    at once, those under way too."""

    def __init__(self, workers: Workers, places: int) -> None:
        self._workers = workers
        self._turns = FairSemaphore(places)
        self._calls: set[asyncio.Task[JsonValue]] = set()
        self._ended = False

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        async with self._turns.hold_place():
            if self._ended:
                raise WorkerFailed("the service is stopping")
            call = asyncio.ensure_future(self._workers.run(function, *arguments, limits=limits))
            self._calls.add(call)
            try:
                await asyncio.wait([call])
            finally:  # also where the caller is cancelled
                call.cancel()
                self._calls.discard(call)
            if call.cancelled():
                raise WorkerFailed("the service is stopping")
            return call.result()

    def end(self) -> None:
        """Kills the workers of its calls. Who waits for a place is refused, each by the one before."""
        self._ended = True
        for call in self._calls:
            call.cancel()


# Calls in the current process

_RESULT: TypeAdapter[JsonValue] = TypeAdapter(FiniteJson)


class InProcessWorkers:
    """Calls the function directly and blocks. Only the limit on output is enforced, so it must never get untrusted
    text."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        work = _build_call(function, arguments, limits)
        return _unwrap_outcome(work, _call_function(work, function, *arguments))


def _call_function(work: _WorkerCall, function: Callable[..., JsonValue], *arguments: JsonValue) -> _WorkerOutcome:
    try:
        result = encode_json(function(*arguments))
    except Exception as error:
        return _FunctionRaised(f"{type(error).__name__}: {error}")
    if len(result) > work.limits.output_bytes:
        return _WorkerLost("output_bytes", "it was refused more")
    try:
        return _Done(_RESULT.validate_json(result))
    except ValidationError:
        return _WorkerLost(None, "it answered what cannot be read")
