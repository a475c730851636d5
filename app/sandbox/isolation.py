"""The isolation of programs on this machine, measured: a program attempts everything that is forbidden.

Whether the kernel has a protection says little about what it holds: distributions and container runtimes take parts of
them away. So each threat is attempted, and what succeeds is a breach. `GET /envs/{env}` shows the result: for each
threat whether it is blocked, and by what.
"""

import asyncio
import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from pydantic import JsonValue

import app
from app.domain.errors import WorkerFailed
from app.domain.tasks import Execution, Isolation, Program, ProgramLimits, Protection, Threat
from app.domain.values import FiniteJson
from app.sandbox.programs import ConfinementReport, JailedPrograms
from app.sandbox.workers import ENVIRONMENT

log = logging.getLogger(__name__)

_ATTEMPTS_FILE: Final = Path(__file__).with_name("breakout_attempts.py")
_LIMITS: Final = ProgramLimits(seconds=5, cpu_seconds=2, memory_mb=64)
_TOO_MUCH_MB: Final = 256
_OUTLAST_LIMITS: Final = ProgramLimits(seconds=0.2)
_HOST: Final = "127.0.0.1"

_LAYERS: Final[dict[Threat, tuple[str, ...]]] = {
    "network": ("seccomp", "namespaces", "landlock"),
    "files": ("namespaces", "landlock", "seccomp"),
    "processes": ("seccomp", "limits"),
    "memory": ("limits",),
    "time": ("clock", "limits"),
    "service": ("namespaces", "seccomp", "landlock"),
}
"""The protections against each threat."""
_LAYER_TEXTS: Final = {
    "seccomp": "seccomp, which refuses new sockets, processes, threads and signals",
    "namespaces": "own namespaces without network or other processes and with only Python's library",
    "landlock": "Landlock, which allows reading only Python's library",
    "limits": "kernel resource limits",
    "clock": "a timeout that kills the process from outside",
}


@dataclass(frozen=True)
class _BreakoutTargets:
    """Targets that a program could reach without isolation."""

    folder: Path
    tcp: int
    udp: int
    unix: str


async def probe_isolation(programs: JailedPrograms) -> Isolation:
    """Probes the isolation in a second or less and logs the result on one line. If no program can run, nothing counts
    as blocked."""
    try:
        isolation = await _run_probe(programs)
    except Exception:
        log.exception("the isolation of programs could not be measured")
        return Isolation(protections=())
    if isolation.strong:
        log.info("programs of models are isolated: %s", programs.walls.words)
    else:
        log.warning("programs of models are not isolated well enough: %s", isolation.weaknesses)
    return isolation


async def _run_probe(programs: JailedPrograms) -> Isolation:
    try:
        with _open_targets() as targets:
            breaches = await _find_breaches(programs, targets)
            stays = await programs.run(_build_program("outlast", ((600.0,),), _OUTLAST_LIMITS))
    except WorkerFailed as error:
        return Isolation(
            protections=tuple(Protection(against=one, held=False, by=error.detail) for one in _list_threats())
        )
    breaches["time"] = [] if stays.ending == "seconds" else [f"it was not ended in time ({stays.ending})"]
    return Isolation(protections=tuple(_describe_protection(one, breaches[one], programs) for one in _list_threats()))


async def _find_breaches(programs: JailedPrograms, targets: _BreakoutTargets) -> dict[Threat, list[str]]:
    readable: dict[str, JsonValue] = {
        "/etc/passwd": "/etc/passwd",
        "/proc": "/proc/self/environ",
        "the service's source": app.__file__,
        "a file of everybody": str(targets.folder / "full"),
    }
    attempts: dict[Threat, tuple[FiniteJson, ...]] = {
        "network": (_HOST, targets.tcp, targets.udp, targets.unix),
        "files": (readable, str(targets.folder)),
        "processes": (),
        "memory": (_TOO_MUCH_MB,),
        "service": (os.getpid(), [*ENVIRONMENT]),
    }
    calls = tuple((threat, *arguments) for threat, arguments in attempts.items())
    execution = await programs.run(_build_program("attempt", calls, _LIMITS))
    breaches = dict(zip(attempts, _read_achievements(execution, len(attempts)), strict=True))
    # The program's own word is not enough: it may have failed after the deed.
    if not (targets.folder / "there").exists() or not (targets.folder / "full").stat().st_size:
        breaches["files"].append("a foreign file was changed")
    return breaches


def _read_achievements(execution: Execution, expected: int) -> list[list[str]]:
    """The successes that each attempt reports. Attempts after the program's end could not be tested."""
    achievements = [
        [str(words) for words in one.value] if isinstance(one.value, list) else ["it could not be tested"]
        for one in execution.returned
    ]
    return achievements + [
        [f"it could not be tested ({execution.ending})"] for _ in range(expected - len(achievements))
    ]


def _describe_protection(threat: Threat, breaches: list[str], programs: JailedPrograms) -> Protection:
    present, missing = _split_walls(programs.walls, programs.missing)
    if breaches:
        lacking = [missing[wall] for wall in _LAYERS[threat] if wall in missing]
        return Protection(against=threat, held=False, by="; ".join([*breaches, *lacking]))
    return Protection(
        against=threat, held=True, by="; ".join(_LAYER_TEXTS[one] for one in _LAYERS[threat] if one in present)
    )


def _split_walls(walls: ConfinementReport, why: str) -> tuple[set[str], dict[str, str]]:
    works = {"namespaces": bool(walls.namespaces), "landlock": walls.landlock, "seccomp": walls.seccomp}
    missing = {wall: f"{wall} is not available here" for wall, there in works.items() if not there}
    if "namespaces" in missing and why:
        missing["namespaces"] += f" ({why})"
    return {"limits", "clock", *(wall for wall, there in works.items() if there)}, missing


def _build_program(function: str, calls: tuple[tuple[FiniteJson, ...], ...], limits: ProgramLimits) -> Program:
    return Program(source=_ATTEMPTS_FILE.read_text(encoding="utf-8"), function=function, calls=calls, limits=limits)


def _list_threats() -> tuple[Threat, ...]:
    return get_args(Threat)


@contextlib.contextmanager
def _open_targets() -> Iterator[_BreakoutTargets]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isolation-")))
        for name in ("there", "full"):
            (folder / name).write_text("kept", encoding="ascii")
            (folder / name).chmod(0o666)
        folder.chmod(0o777)
        tcp = stack.enter_context(socket.create_server((_HOST, 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind((_HOST, 0))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(folder / "socket"))
        unix.listen()
        loop = asyncio.get_running_loop()
        loop.add_reader(udp, _answer_datagram, udp)
        stack.callback(loop.remove_reader, udp)
        yield _BreakoutTargets(folder, tcp.getsockname()[1], udp.getsockname()[1], str(folder / "socket"))


def _answer_datagram(udp: socket.socket) -> None:
    """Answers, so that a sender knows that it got through."""
    with contextlib.suppress(OSError):
        udp.sendto(b"here", udp.recvfrom(64)[1])
