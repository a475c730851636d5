"""One jail, on the service's side: a supervisor process that runs one program at a time and can be killed with it."""

import asyncio
import json
import math
import os
import secrets
import signal
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

import app
from app.domain.programs import CallResult, Ending, Execution, Program, ProgramLimits
from app.domain.values import FiniteJson, Frozen
from app.sandbox.confinement import MEBIBYTE
from app.sandbox.frames import HEAD, STARTED, build_frame, encode_json
from app.sandbox.idle_time import IdleMeter
from app.sandbox.process import ENVIRONMENT
from app.sandbox.runner import LOADED, MEMORY, NO_FUNCTION, NO_JSON, RAISED, TOO_MUCH, VALUE
from app.sandbox.supervisor import MESSAGE_HEAD, ORDER, REPORT

START_SECONDS: Final = 60.0
"""For starting Python and confining it: only our own code can be slow here."""
GRACE_SECONDS: Final = 5.0
"""For a program to exit after its channel is closed."""
CPU_LIMIT_SHARE: Final = 0.75
"""A killed program that used this share of its CPU limit was killed by that limit. Where the supervisor cannot read the
ticks by which the kernel enforces it, it reports the exact time, which differs."""
STEP_SECONDS: Final = 0.1
"""Between two looks at the time that a program has taken."""
MAX_REPORT_BYTES: Final = 4096
LARGE: Final = 64 * 1024
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
        there = {"namespaces": self.namespaces, "Landlock": self.landlock, "seccomp": self.seccomp}
        return ", ".join([*(name for name, held in there.items() if held), "resource limits"])


@dataclass(frozen=True)
class JailLost:
    """The jail is unusable, and this is not known to be the program's fault."""

    how: str
    suspect: bool = False
    """Whether the program may have done it: nothing kept it from signals to itself and new limits."""


class _ProgramBroken(Exception):
    """The program has ended, or sent an invalid message."""


class _ProgramStopped(Exception):
    """The program ends here, by its own message or by a limit."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending


_VALUE: TypeAdapter[FiniteJson] = TypeAdapter(FiniteJson)
_CLAIMS: Final[dict[bytes, Ending]] = {NO_FUNCTION: "no_function", MEMORY: "memory_mb", TOO_MUCH: "output_bytes"}


class Jail:
    """Created by `start`. Runs one program at a time; unusable once it was killed or lost."""

    def __init__(self, process: Process, control: socket.socket, walls: ConfinementReport) -> None:
        self._process = process
        self._control = control
        self.walls = walls
        self.programs = 0
        """Number of programs that it has run."""
        self.usable = True

    @classmethod
    async def start(cls, namespaces: str, locks: Sequence[str]) -> "Jail":
        """Starts a jail with this kind of namespaces (`user`, `root` or none) and those of `locks` that work here.
        Raises OSError or TimeoutError without the namespaces."""
        ours, its = socket.socketpair()
        ours.setblocking(False)
        with its:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-s", "-S", "-P", "-B", "-c", BOOT),
                    *(str(os.getpid()), namespaces, ",".join(locks), str(Path(app.__file__).parents[1])),
                    stdin=its.fileno(),
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    cwd="/",
                    env=ENVIRONMENT,
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        jail = cls(process, ours, ConfinementReport())
        try:
            async with asyncio.timeout(START_SECONDS):
                jail.walls = await jail._receive_walls()
        except BaseException:
            await jail.end()
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
        self.usable = False
        try:
            reader, writer = await self._send_order(program)
            talk = _Dialogue(reader, writer, program.limits.output_bytes)
            try:
                await talk.begin()
                ending = await talk.run_program(program, IdleMeter(self.id, 2 if self.walls.namespaces else 1))
            finally:
                writer.transport.abort()
            after = await self._find_ending(ending, program)
        except (OSError, EOFError, _ProgramBroken) as error:
            return JailLost(f"its warden was lost: {error}")
        return after if isinstance(after, JailLost) else Execution(ending=after, returned=tuple(talk.returned))

    async def _find_ending(self, ending: Ending, program: Program) -> Ending | JailLost:
        """After the last message: how its process ended. If it has not ended, it is killed with the jail."""
        if ending in ("seconds", "idle_seconds"):
            return ending
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                status, cpu_seconds = await self._receive_report()
        except TimeoutError:
            return "died" if ending == "finished" else ending
        self.usable = True
        after = _classify_ending(ending, status, cpu_seconds, program)
        return after or JailLost("it was killed from outside", suspect=not self.walls.seccomp)

    async def _send_order(self, program: Program) -> tuple[StreamReader, StreamWriter]:
        limits = program.limits
        order = ORDER.pack(math.ceil(limits.cpu_seconds), limits.memory_mb * MEBIBYTE, limits.file_bytes)
        ours, its = socket.socketpair()
        with its:
            streams = await asyncio.open_unix_connection(sock=ours)
            try:
                socket.send_fds(self._control, [order], [its.fileno()])
            except BaseException:
                streams[1].transport.abort()
                raise
        return streams

    async def _receive_report(self) -> tuple[int, float]:
        status, thousandths = REPORT.unpack(await self._receive_exactly(REPORT.size))
        return status, thousandths / 1000

    async def _receive_walls(self) -> ConfinementReport:
        (size,) = MESSAGE_HEAD.unpack(await self._receive_exactly(MESSAGE_HEAD.size))
        return ConfinementReport.model_validate(json.loads(await self._receive_exactly(min(size, MAX_REPORT_BYTES))))

    async def _receive_exactly(self, size: int) -> bytes:
        message = b""
        while len(message) < size:
            part = await asyncio.get_running_loop().sock_recv(self._control, size - len(message))
            if not part:
                raise EOFError("its warden ended")
            message += part
        return message

    def kill(self) -> None:
        """Kills the supervisor and everything that it runs."""
        self.usable = False
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # the supervisor exits on this, even if it cannot be signalled
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kills the jail and waits for its end."""
        self.kill()
        self._control.close()
        await self._process.wait()


class _Dialogue:
    """The exchange with a program, which is untrusted from its first line."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, output_bytes: int) -> None:
        self._reader = reader
        self._writer = writer
        self._left = output_bytes
        self._asked = False
        """Whether it is the program's turn to answer."""
        self.returned: list[CallResult] = []

    async def begin(self) -> None:
        """Waits until the process is confined, before the program is loaded. Raises EOFError or TimeoutError if it is
        not."""
        async with asyncio.timeout(START_SECONDS):
            await self._receive_answer(STARTED)

    async def run_program(self, program: Program, idle: IdleMeter) -> Ending:
        exchange = asyncio.ensure_future(self._exchange_calls(program))
        try:
            ending = await self._watch_time(exchange, program.limits, idle)
            return ending or exchange.result()
        finally:
            exchange.cancel()

    async def _watch_time(
        self, exchange: asyncio.Future[Ending], limits: ProgramLimits, idle: IdleMeter
    ) -> Ending | None:
        """Waits for the end; the limit on time that was met before. Counts in small steps, so that time in which the
        service itself could not run is not the program's."""
        elapsed = 0.0
        while elapsed < limits.seconds:
            step = min(STEP_SECONDS, limits.seconds - elapsed)
            if (await asyncio.wait([exchange], timeout=step))[0]:
                return None
            elapsed += step if self._asked else 0.0
            if elapsed >= limits.idle_seconds and idle.measure(elapsed) >= limits.idle_seconds:
                return "idle_seconds"
        return "seconds"

    async def _exchange_calls(self, program: Program) -> Ending:
        try:
            await self._make_calls(program)
        except _ProgramStopped as stopped:
            return stopped.ending
        except (OSError, EOFError, _ProgramBroken):
            return "died"
        return "finished"

    async def _make_calls(self, program: Program) -> None:
        order = {"source": program.source, "function": program.function, "output_bytes": program.limits.output_bytes}
        if await self._ask(order) != LOADED:
            raise _ProgramBroken
        for call in program.calls:
            self.returned.append(await _parse_answer(await self._ask(list(call))))
        self._write(secrets.token_bytes(16), None)
        self._asked = True
        await self._reader.read(1)

    async def _ask(self, message: object) -> bytes:
        token = secrets.token_bytes(16)
        self._write(token, message)
        self._asked = True
        try:
            return await self._receive_answer(token)
        finally:
            self._asked = False

    def _write(self, token: bytes, message: object) -> None:
        self._writer.write(build_frame(token, encode_json(message)))

    async def _receive_answer(self, token: bytes) -> bytes:
        size, answered = HEAD.unpack(await self._reader.readexactly(HEAD.size))
        if answered != token:
            raise _ProgramBroken
        self._left -= max(size - 1, 0)
        if self._left < 0:
            raise _ProgramStopped("output_bytes")
        answer = await self._reader.readexactly(size)
        if claimed := _CLAIMS.get(answer):
            raise _ProgramStopped(claimed)
        return answer


async def _parse_answer(answer: bytes) -> CallResult:
    kind, body = answer[:1], answer[1:]
    if kind == RAISED:
        return CallResult(fault="raised")
    if kind == NO_JSON:
        return CallResult(fault="no_json")
    if kind != VALUE:
        raise _ProgramBroken
    try:
        value = await asyncio.to_thread(_VALUE.validate_json, body) if len(body) > LARGE else _VALUE.validate_json(body)
    except ValidationError:
        return CallResult(fault="no_json")
    return CallResult(value=value)


def _classify_ending(ending: Ending, status: int, cpu_seconds: float, program: Program) -> Ending | None:
    """How the program ended if it did not report that itself; None if it was killed from outside. A kill comes from the
    kernel's CPU limit or from outside, because behind seccomp a program can neither send signals nor change limits, not
    even its own."""
    if ending not in ("finished", "died") or (ending == "finished" and status == 0):
        return ending
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        if cpu_seconds >= math.ceil(program.limits.cpu_seconds) * CPU_LIMIT_SHARE:
            return "cpu_seconds"
        return None
    return "died"
