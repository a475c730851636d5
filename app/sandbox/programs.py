"""Programs of models on the service's side: a pool of jails, reused between programs and replaced when killed.

A jail runs one program at a time. The service gives it a program with all of its calls, collects the answers, and kills
it when the program's time is up. What comes from a jail is read as a stranger's: a message that makes no sense is the
service's failure, never a result. A program that something other than its own limits killed is run once more; the
second time there is no score.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import sys
import time
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError
from structlog.contextvars import get_contextvars

import app
from app.domain.errors import WorkerFailed
from app.domain.fair_semaphore import FairSemaphore
from app.domain.tasks import CallResult, Ending, Execution, Program, ProgramLimits
from app.domain.values import FiniteJson, Frozen
from app.ports.tracing import Span, open_span
from app.sandbox.confinement import MEBIBYTE
from app.sandbox.frames import encode_json
from app.sandbox.supervisor import (
    ANSWERS,
    BEGUN,
    DIED,
    ENDED,
    EXITED,
    FINISHED,
    LENGTH,
    MEMORY,
    MESSAGE,
    NO_FUNCTION,
    RAISED,
    REPORT,
    TOO_MUCH,
    VALUE,
    WALLS,
    build_order,
)
from app.sandbox.workers import ENVIRONMENT

log = logging.getLogger(__name__)

# A jail, a process group that can be killed with the program in it

_START_SECONDS: Final = 60.0
"""For starting Python and confining it: only our own code can be slow here."""
_GRACE_SECONDS: Final = 5.0
"""For a program to exit after its channel is closed."""
_CPU_LIMIT_SHARE: Final = 0.75
"""A killed program that used this share of its CPU limit was killed by that limit. Where the supervisor cannot read the
ticks by which the kernel enforces it, it reports the exact time, which differs."""
_STEP_SECONDS: Final = 0.1
"""Between two looks at the time that a program has taken."""
_MAX_REPORT_BYTES: Final = 4096
_LARGE: Final = 64 * 1024
"""Bytes from which JSON is parsed in a thread, so that it does not block the event loop."""
BOOT: Final = (
    "import sys\n"
    "sys.path.insert(0, sys.argv[4])\n"
    "from app.sandbox.supervisor import hide_source, serve\n"
    "del sys.path[0]\n"
    "hide_source()\n"
    "serve(int(sys.argv[1]), sys.argv[2], sys.argv[3].split(','))\n"
)


class ConfinementReport(Frozen):
    """The protections that a supervisor found to work."""

    namespaces: str = ""
    landlock: bool = False
    seccomp: bool = False
    failed: str = ""
    """Why the required namespaces are not available."""

    @property
    def words(self) -> str:
        walls = {"namespaces": self.namespaces, "Landlock": self.landlock, "seccomp": self.seccomp}
        return ", ".join([*(name for name, works in walls.items() if works), "resource limits"])


@dataclass(frozen=True)
class JailLost:
    """The jail is unusable, and this is not known to be the program's fault."""

    how: str
    suspect: bool = False
    """Whether the program may have done it: nothing kept it from signals to itself and new limits."""


class _WardenBroken(Exception):
    """The warden sent what it never sends."""


_VALUE: TypeAdapter[FiniteJson] = TypeAdapter(FiniteJson)
_DIALOGUE_ENDINGS: Final[dict[bytes, Ending]] = {
    FINISHED: "finished",
    DIED: "died",
    NO_FUNCTION: "no_function",
    MEMORY: "memory_mb",
    TOO_MUCH: "output_bytes",
}


class Jail:
    """Created by `start`. Runs one program at a time; unusable once it was killed or lost."""

    def __init__(self, process: Process, reader: StreamReader, writer: StreamWriter, walls: ConfinementReport) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.walls = walls
        self.programs = 0
        """Number of programs that it has run."""
        self.usable = True

    @classmethod
    async def start(cls, namespaces: str, locks: Sequence[str]) -> "Jail":
        """Starts a jail with this kind of namespaces (`user`, `root` or none) and those of `locks` that work here.
        Raises OSError or TimeoutError without the namespaces."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            try:
                process = await asyncio.create_subprocess_exec(
                    # Programs are forks of this Python, so it has no installed packages, nor writes any bytecode.
                    *(sys.executable, "-s", "-S", "-P", "-B", "-c", BOOT),
                    *(str(os.getpid()), namespaces, ",".join(locks), str(Path(app.__file__).parents[1])),
                    stdin=theirs.fileno(),
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    cwd="/",
                    env=ENVIRONMENT,
                    start_new_session=True,
                )
            except BaseException:
                writer.transport.abort()
                raise
        jail = cls(process, reader, writer, ConfinementReport())
        try:
            async with asyncio.timeout(_START_SECONDS):
                jail.walls = ConfinementReport.model_validate_json(await jail._receive(WALLS, _MAX_REPORT_BYTES))
        except BaseException as error:
            await jail.end()
            if isinstance(error, ValidationError | _WardenBroken):
                raise OSError("its warden cannot be understood") from error
            raise
        if jail.walls.failed:
            await jail.end()
            raise OSError(jail.walls.failed)
        return jail

    @property
    def id(self) -> int:
        return self._process.pid

    async def run(self, program: Program) -> Execution | JailLost:
        """Runs a program. Raises only on cancellation; then the jail must be killed."""
        self.programs += 1
        self.usable = False  # until its process is reported to have ended, also when this is cancelled
        collected = _Answers(program)
        try:
            self._writer.write(_write_order(program))
            async with asyncio.timeout(_START_SECONDS):
                await self._receive(BEGUN, 0)
            ending = await self._watch_time(program.limits, asyncio.ensure_future(self._collect(collected)))
            outcome = await self._find_ending(ending, program)
        except (OSError, EOFError, _WardenBroken) as error:
            return JailLost(f"its warden was lost: {error}")
        if isinstance(outcome, JailLost):
            return outcome
        return Execution(ending=outcome, returned=await collected.parse())

    async def _collect(self, collected: "_Answers") -> Ending:
        while True:
            kind, body = await self._receive_any(collected.most_bytes)
            if kind == ANSWERS:
                collected.add(body)
            elif kind == ENDED and (ending := _DIALOGUE_ENDINGS.get(body[:1])):
                collected.add(body[1:])
                return ending
            else:
                raise _WardenBroken(kind)

    async def _watch_time(self, limits: ProgramLimits, collecting: asyncio.Future[Ending]) -> Ending:
        """Waits for the end of the dialogue, or until a limit on time is met. Counts in small steps, so that time in
        which the service itself could not run is not the program's."""
        elapsed, idle = 0.0, _IdleMeter(self.id)
        try:
            while elapsed < limits.seconds:
                step = min(_STEP_SECONDS, limits.seconds - elapsed)
                if (await asyncio.wait([collecting], timeout=step))[0]:
                    return collecting.result()
                elapsed += step
                if elapsed >= limits.idle_seconds and idle.measure(elapsed) >= limits.idle_seconds:
                    return "idle_seconds"
            return "seconds"
        finally:
            collecting.cancel()

    async def _find_ending(self, ending: Ending, program: Program) -> Ending | JailLost:
        """After the last message: how its process ended. If it has not ended, it is killed with the jail."""
        if ending in ("seconds", "idle_seconds"):
            return ending
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                report = await self._receive(EXITED, REPORT.size)
        except TimeoutError:  # it keeps running behind a closed channel
            return "died" if ending == "finished" else ending
        if len(report) != REPORT.size:
            raise _WardenBroken(EXITED)
        status, thousandths = REPORT.unpack(report)
        self.usable = True
        cause = _classify_ending(ending, status, thousandths / 1000, program)
        return cause or JailLost("it was killed from outside", suspect=not self.walls.seccomp)

    async def _receive(self, expected: bytes, most_bytes: int) -> bytes:
        kind, body = await self._receive_any(most_bytes)
        if kind != expected:
            raise _WardenBroken(kind)
        return body

    async def _receive_any(self, most_bytes: int) -> tuple[bytes, bytes]:
        kind, size = MESSAGE.unpack(await self._reader.readexactly(MESSAGE.size))
        if size > most_bytes:
            raise _WardenBroken(kind)
        return kind, await self._reader.readexactly(size)

    def kill(self) -> None:
        """Kills the supervisor and everything that it runs."""
        self.usable = False
        self._writer.transport.abort()  # the supervisor exits on this, even if it cannot be signalled
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kills the jail and waits for its end."""
        self.kill()
        await self._process.wait()


class _Answers:
    """What the calls of a program returned, as the warden sends it: not more than was allowed."""

    def __init__(self, program: Program) -> None:
        self._calls = len(program.calls)
        self.most_bytes = program.limits.output_bytes + (LENGTH.size + 1) * self._calls + 1
        """Of further messages."""
        self._answers: list[bytes] = []

    def add(self, body: bytes) -> None:
        self.most_bytes -= len(body)
        start = 0
        while start < len(body):
            size = int.from_bytes(body[start : start + LENGTH.size])
            start += LENGTH.size
            self._answers.append(body[start : start + size])
            start += size
        if start != len(body) or len(self._answers) > self._calls:
            raise _WardenBroken(ANSWERS)

    async def parse(self) -> tuple[CallResult, ...]:
        if sum(map(len, self._answers)) > _LARGE:
            return await asyncio.to_thread(_parse_answers, self._answers)
        return _parse_answers(self._answers)


def _write_order(program: Program) -> bytes:
    limits = program.limits
    order = {"source": program.source, "function": program.function, "output_bytes": limits.output_bytes}
    return build_order(
        (math.ceil(limits.cpu_seconds), limits.memory_mb * MEBIBYTE, limits.file_bytes, limits.output_bytes),
        [encode_json(order), *(encode_json(list(call)) for call in program.calls)],
    )


def _parse_answers(answers: Sequence[bytes]) -> tuple[CallResult, ...]:
    return tuple(map(_parse_answer, answers))


def _parse_answer(answer: bytes) -> CallResult:
    kind, body = answer[:1], answer[1:]
    if kind == RAISED:
        return CallResult(fault="raised")
    if kind != VALUE:
        return CallResult(fault="no_json")
    try:
        # The value was just validated; validating it again as a field would cost as much.
        return CallResult.model_construct(value=_VALUE.validate_json(body))
    except ValidationError:
        return CallResult(fault="no_json")


def _classify_ending(ending: Ending, status: int, cpu_seconds: float, program: Program) -> Ending | None:
    """How the program ended if it did not report that itself; None if it was killed from outside. A kill comes from the
    kernel's CPU limit or from outside, because behind seccomp a program can neither send signals nor change limits, not
    even its own."""
    if ending not in ("finished", "died") or (ending == "finished" and status == 0):
        return ending
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        if cpu_seconds >= math.ceil(program.limits.cpu_seconds) * _CPU_LIMIT_SHARE:
            return "cpu_seconds"
        return None
    return "died"


# The pool

KINDS: Final = ("user", "root", "")
"""Kinds of namespaces, best first."""
LOCKS: Final = ("landlock", "seccomp")
"""Additional protections."""
_PROGRAMS_OF_A_JAIL: Final = 10_000
"""A jail is replaced after this many programs."""


ObserveEnding = Callable[[str, float], None]
"""Called for each attempt: its ending (that of an `Execution`, or `lost`, `cancelled`) and seconds."""


def _ignore_ending(ending: str, seconds: float) -> None:
    pass


class JailedPrograms:
    """Jails start on demand. The kind of namespaces is found once, by trying; later jails that cannot have it fail.
    Keys have equal shares, and requests within a key, so that one with many slow programs does not hold up another."""

    def __init__(
        self,
        size: int,
        kinds: tuple[str, ...] = KINDS,
        locks: tuple[str, ...] = LOCKS,
        observe: ObserveEnding = _ignore_ending,
    ) -> None:
        """`kinds` and `locks` are what is tried; tests pass fewer to simulate a weaker machine."""
        self._turns = FairSemaphore(size)
        self._observe = observe
        self._kinds = kinds
        self._locks = locks
        self._kind: str | None = None
        self._choosing = asyncio.Lock()
        """Held while the first jail tries the kinds, so that several first programs agree on one."""
        self._idle: list[Jail] = []
        self._all: set[Jail] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self.missing = ""
        """Why namespaces, or user namespaces, are not available."""
        self.walls = ConfinementReport()
        """The protections that the first jail found to work."""

    @property
    def waiting(self) -> int:
        """Programs that wait for a jail."""
        return self._turns.waiting

    @property
    def longest_wait(self) -> float:
        """Seconds that the oldest of them has waited."""
        return self._turns.longest_wait

    @property
    def ids(self) -> tuple[int, ...]:
        """Process ids of the supervisors."""
        return tuple(sorted(jail.id for jail in self._all))

    async def prepare(self) -> None:
        """Starts a jail in advance. Raises WorkerFailed if that fails."""
        async with self._turns.hold_place():
            self._idle.append(self._idle.pop() if self._idle else await self._start_jail())

    async def run(self, program: Program) -> Execution:
        with open_span("run program", {"atropos.language": "python", "atropos.calls": len(program.calls)}) as span:
            execution = await self._run_in_turn(program, span)
            span.describe({"atropos.ending": execution.ending})
            return execution

    async def _run_in_turn(self, program: Program, span: Span) -> Execution:
        requested = time.perf_counter()
        async with self._turns.hold_place(str(get_contextvars().get("request_id", ""))):
            began = time.perf_counter()
            outcome = await self._attempt(program, self._idle.pop() if self._idle else None)
            if isinstance(outcome, JailLost):
                log.warning("a program was lost: %s", outcome.how)
            if isinstance(outcome, JailLost) or outcome.ending == "seconds":  # which a busy machine may have taken
                outcome = await self._attempt(program, None)
            ran = time.perf_counter() - began
        span.describe({"atropos.seconds_waited": began - requested, "atropos.seconds_run": ran})
        if isinstance(outcome, JailLost) and outcome.suspect:
            return Execution(ending="died")  # in doubt: else a failing program could choose to have no score
        if isinstance(outcome, JailLost):
            raise WorkerFailed(f"a program was lost twice, the last time because {outcome.how}")
        return outcome

    async def close(self) -> None:
        """Kills every jail; current and later programs fail."""
        self._closed = True
        for jail in [*self._all]:
            self._discard(jail)
        self._idle.clear()
        await asyncio.gather(*self._ending)

    async def _attempt(self, program: Program, jail: Jail | None) -> Execution | JailLost:
        jail = jail or await self._start_jail()
        began, ending = time.perf_counter(), "cancelled"
        try:
            outcome = await jail.run(program)
            ending = "lost" if isinstance(outcome, JailLost) else outcome.ending
            return outcome
        finally:
            self._observe(ending, time.perf_counter() - began)
            if jail.usable and jail.programs < _PROGRAMS_OF_A_JAIL and not self._closed:
                self._idle.append(jail)
            else:
                self._discard(jail)

    async def _start_jail(self) -> Jail:
        if self._closed:
            raise WorkerFailed("the jails are closed")
        try:
            jail = await (self._start_first_jail() if self._kind is None else Jail.start(self._kind, self._locks))
        except (OSError, EOFError, TimeoutError) as error:
            log.exception("no jail could be started")
            raise WorkerFailed("no jail could be started; see the log") from error
        self._all.add(jail)
        if self._closed:  # while it started
            self._discard(jail)
            raise WorkerFailed("the jails are closed")
        return jail

    async def _start_first_jail(self) -> Jail:
        async with self._choosing:
            if self._kind is not None:
                return await Jail.start(self._kind, self._locks)
            for kind in self._kinds:
                try:
                    jail = await Jail.start(kind, self._locks)
                except OSError as error:
                    self.missing = self.missing or str(error)
                    continue
                self._kind, self.walls = kind, jail.walls
                return jail
        raise OSError(self.missing)

    def _discard(self, jail: Jail) -> None:
        """Kills it at once and waits for its end in the background."""
        self._all.discard(jail)
        jail.kill()
        ending = asyncio.get_running_loop().create_task(jail.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


# Idle time, by the kernel's own accounts of a process

_NANOSECONDS: Final = 1e9


class _IdleMeter:
    """Measures the program of one jail. On a busy machine a program waits for a processor, which is not its fault: only
    what it sleeps is idle. Where the kernel does not tell, nothing is."""

    def __init__(self, warden: int) -> None:
        self._warden = warden

    def measure(self, elapsed: float) -> float:
        """The idle seconds of a program that has been running for `elapsed` seconds."""
        try:
            return elapsed - _read_busy_seconds(self._find_program())
        except (OSError, ValueError):
            return 0.0

    def _find_program(self) -> int:
        """The program is the only child of the supervisor, which is the only child of the warden."""
        process = self._warden
        for _ in range(2):
            (child,) = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
            process = int(child)
        return process


def _read_busy_seconds(process: int) -> float:
    """The time that a process has been running, and that it has been ready to run."""
    running, waiting, _ = Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()
    return (int(running) + int(waiting)) / _NANOSECONDS
