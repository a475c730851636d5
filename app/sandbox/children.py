"""Foreign programs on the service's side: each in its jail (`app.sandbox.enclosure`), in a process group that is killed
as one."""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import app
from app.domain.errors import HostFailed
from app.ports.children import MOST_LINE, ChildProgram
from app.sandbox.enclosure import NO_JAIL, ROOM

_BOOT: Final = (
    "import sys\n"
    "sys.path.insert(0, sys.argv[2])\n"
    "from app.sandbox.enclosure import enclose\n"
    "enclose(int(sys.argv[1]), sys.argv[3])\n"
)
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


class JailedChild:
    """Made by `JailedChildren`."""

    def __init__(self, process: Process, streams: "_Streams", room: "tempfile.TemporaryDirectory[str] | None") -> None:
        self._process = process
        self._streams = streams
        self._room = room

    @property
    def writer(self) -> StreamWriter:
        return self._streams.orders[1]

    @property
    def reader(self) -> StreamReader:
        return self._streams.answers[0]

    @property
    def log(self) -> StreamReader:
        return self._streams.log[0]

    @property
    def id(self) -> int:
        return self._process.pid

    async def wait(self) -> str:
        status = await self._process.wait()
        if status == NO_JAIL:
            return "this machine has no jail that would hold it; `trusted: true` runs it without one"
        return f"it was killed by signal {-status}" if status < 0 else f"it ended with status {status}"

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        self.kill()
        await self._process.wait()
        self._streams.close()
        if self._room is not None:
            await asyncio.to_thread(self._room.cleanup)


@dataclass(frozen=True)
class _Streams:
    """Sockets of their own, so that all ends can be closed."""

    orders: tuple[StreamReader, StreamWriter]
    answers: tuple[StreamReader, StreamWriter]
    log: tuple[StreamReader, StreamWriter]

    def close(self) -> None:
        for _, writer in (self.orders, self.answers, self.log):
            writer.transport.abort()


class JailedChildren:
    def __init__(self, read_variable: Callable[[str], str | None]) -> None:
        """`read_variable` gives the value of a variable of the service."""
        self._read_variable = read_variable

    async def start(self, program: ChildProgram) -> JailedChild:
        try:
            return await self._start(program)
        except OSError as error:
            raise HostFailed(f"{program.interpreter} could not be started: {error}") from error

    async def _start(self, program: ChildProgram) -> JailedChild:
        if not program.interpreter.is_file():
            raise HostFailed(f"there is no interpreter {program.interpreter}")
        interpreter = str(program.interpreter.absolute())  # not resolved: the name is what finds its packages
        file, folders = program.file.absolute(), [folder.absolute() for folder in program.folders]
        room = tempfile.TemporaryDirectory(prefix="child-") if program.trusted else None
        home = ROOM if room is None else room.name
        order = {
            "command": [interpreter, "-s", "-P", "-B", str(file)],
            "readable": [str(path) for path in (*list_interpreter(program.interpreter), file, *folders)],
            "trusted": program.trusted,
            "memory_mb": program.memory_mb,
            "file_mb": program.file_mb,
        }
        command = [sys.executable, "-s", "-S", "-P", "-B", "-c", _BOOT]
        command += [str(os.getpid()), str(Path(app.__file__).parents[1]), json.dumps(order)]
        with ExitStack() as theirs, ExitStack() as undone:
            if room is not None:
                undone.callback(room.cleanup)
            pairs = [socket.socketpair() for _ in range(3)]
            for _, end in pairs:
                theirs.enter_context(end)
            connections = list[tuple[StreamReader, StreamWriter]]()
            for ours, _ in pairs:
                connections.append(await asyncio.open_unix_connection(sock=ours, limit=MOST_LINE))
                undone.callback(connections[-1][1].transport.abort)
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=pairs[0][1].fileno(),
                stdout=pairs[1][1].fileno(),
                stderr=pairs[2][1].fileno(),
                cwd=home if room is not None else "/",
                env=None if program.trusted and program.inherits else self._list_variables(program, home),
                start_new_session=True,
            )
            undone.pop_all()
        return JailedChild(process, _Streams(*connections), room)

    def _list_variables(self, program: ChildProgram, home: str) -> dict[str, str]:
        named = {name: value for name in program.variables if (value := self._read_variable(name)) is not None}
        return {
            "PATH": _PATH,
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join(str(folder.absolute()) for folder in program.folders),
            "MALLOC_ARENA_MAX": "2",  # each further one reserves address space, which is limited
            **program.settings,
            **named,
        }


def list_interpreter(interpreter: Path) -> list[Path]:
    """The folders that an interpreter is made of: its virtual environment, and the Python that this was made from. They
    are read from `pyvenv.cfg`, since to run the interpreter is to run its packages."""
    interpreter = interpreter.absolute()
    roots = [interpreter.parents[1], interpreter.resolve().parents[1]]
    config = interpreter.parents[1] / "pyvenv.cfg"
    if config.is_file():
        roots += [Path(home).parent for home in _read_homes(config)]
    # `/usr` holds more than Python, and its libraries are shown anyway.
    return [root for root in dict.fromkeys(roots) if root not in (Path("/"), Path("/usr"))]


def _read_homes(config: Path) -> Iterator[str]:
    for line in config.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            yield value.strip()
