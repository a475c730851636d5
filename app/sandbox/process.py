"""One worker, on the service's side: a process that calls functions and is killed when one takes too long."""

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress

from pydantic import TypeAdapter, ValidationError

from app.domain.values import FiniteJson, Frozen
from app.domain.work import Limit
from app.sandbox.frames import HEAD, SLACK_BYTES, STARTED, build_frame, encode_json
from app.sandbox.work import Done, FunctionRaised, WorkerCall, WorkerLost, WorkerOutcome

START_SECONDS = 120.0
"""For starting Python and importing a function's module: generous, because only our own code can be slow here."""
BOOT = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[2])\n"
    "from app.sandbox.worker import serve\n"
    "serve(int(sys.argv[1]))\n"
)
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
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
        ours, its = socket.socketpair()
        with its:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-s", "-P", "-B", "-c", BOOT, str(os.getpid()), _dump_module_path()),
                    stdin=its.fileno(),
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
            async with asyncio.timeout(START_SECONDS):
                answer = await worker._read(STARTED, SLACK_BYTES)
        except BaseException:
            worker.kill()
            raise
        if isinstance(answer, WorkerLost) or not answer.ready:
            worker.kill()
            raise OSError("a worker did not start")
        return worker

    @property
    def id(self) -> int:
        return self._process.pid

    async def call(self, work: WorkerCall) -> WorkerOutcome:
        """Runs a call. Raises only on cancellation; then the worker must be killed."""
        if work.function not in self._loaded:
            found = await self._ask(encode_json({"function": work.function}), START_SECONDS, SLACK_BYTES)
            if isinstance(found, WorkerLost):
                return WorkerLost(None, f"{found.how}, before the call")
            if isinstance(found, FunctionRaised):
                return found
            self._loaded.add(work.function)
        self.calls += 1
        return await self._ask(work.order, work.limits.seconds, work.limits.output_bytes + SLACK_BYTES)

    async def _ask(self, order: bytes, seconds: float, most_bytes: int) -> WorkerOutcome:
        token = secrets.token_bytes(16)
        try:
            async with self._talk, asyncio.timeout(seconds):
                await self._write(build_frame(token, order))
                answer = await self._read(token, most_bytes)
        except TimeoutError:
            return WorkerLost("seconds", "it took too long")
        if isinstance(answer, WorkerLost):
            return answer
        if answer.exceeded is not None:
            return WorkerLost(answer.exceeded, "it was refused more")
        return FunctionRaised(answer.fault) if answer.fault is not None else Done(answer.result)

    async def _write(self, message: bytes) -> None:
        with suppress(ConnectionError):  # it is dead, which reading tells in more detail
            self._writer.write(message)
            await self._writer.drain()

    async def _read(self, token: bytes, most_bytes: int) -> _WorkerAnswer | WorkerLost:
        try:
            size, answered = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            if answered != token:
                return WorkerLost(None, "it answered something else")
            if size > most_bytes:
                return WorkerLost("output_bytes", "it said too much")
            return _ANSWER.validate_json(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return await self._kill_and_find_cause()
        except ValidationError:
            return WorkerLost(None, "it answered what cannot be read")

    async def _kill_and_find_cause(self) -> WorkerLost:
        """The cause of its end, after it closed its stream. If it is still running, it is killed here."""
        await self._reap()
        status = self._process.returncode or 0
        if status == -signal.SIGXCPU:
            return WorkerLost("cpu_seconds", "the kernel ended it")
        return WorkerLost(None, f"it died of signal {-status}" if status < 0 else f"it ended with status {status}")

    def kill(self) -> None:
        """Kills it and its process group."""
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
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()


def _dump_module_path() -> str:
    """This process's `sys.path` as absolute paths in JSON, so that a worker finds the same modules."""
    return json.dumps([os.path.abspath(place) for place in sys.path])  # noqa: PTH100  # "" is a place too
