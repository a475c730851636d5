"""The supervisor process of a jail: forks a process for each program, waits for it and reports how it ended.

It never runs a program itself, and holds nothing that a program must not see: no environment variables, no files of
ours, no expected results, no tokens. Standard library only."""

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final, NoReturn

from app.sandbox import landlock, namespaces, seccomp
from app.sandbox.confinement import (
    CHANNEL,
    MEBIBYTE,
    OPEN_FILES,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    Confinement,
    ConfinementPlan,
    bar_capabilities,
    prepare_to_drop_capabilities,
)
from app.sandbox.descriptors import take_socket
from app.sandbox.runner import run_program
from app.sandbox.seccomp import PR_SET_NO_NEW_PRIVS
from app.sandbox.syscalls import detect_architecture, prctl, prepare_call
from app.sandbox.warden import LIMITS, REPORT, WALLS, send_message, serve_orders

CPUCLOCK_PROF: Final = 0
"""User and system time, in the clock ids of processes."""
DEFAULT_ROOM: Final = MEBIBYTE
"""Size of the directory that is there before the first program; for other sizes it is replaced."""
JAIL: Final = "<jail>"
"""The file of our functions, for programs that look."""
PRELOADED: Final = """
abc array bisect bz2 collections.abc contextlib copy ctypes dataclasses datetime decimal enum functools gc hashlib
heapq io itertools json lzma math operator os random re string struct sys time types typing unicodedata uuid
warnings zlib
"""
"""Modules that programs import most often, and those that need libraries outside of Python's own folder. Each makes
every fork slower: twenty more of them took 0.3 ms, and importing one of those when it is needed takes 0.5 to 2 ms."""


def serve(service: int, wanted: str, locks: Sequence[str]) -> None:
    """Runs the warden, and the supervisor as its child. `wanted` is the required kind of namespaces (`user`, `root` or
    none). Those of `locks` that work here are applied."""
    control = socket.socket(fileno=take_socket())
    few = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    preload_modules()
    library = _find_library()
    processes = -1
    if sys.platform == "linux":
        processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _prefer_for_oom()
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    try:
        _enter_namespaces(wanted, library, processes)
    except OSError as error:
        _leave_with_failure(control, error)
    _die_with_parent()
    if os.getppid() != service:
        os._exit(0)
    forker, orders = socket.socketpair()
    if os.fork():
        orders.close()
        _become_warden(control, forker, locks, processes)
    forker.close()
    _die_with_parent()
    try:
        walls = _find_working_walls(wanted, locks, library)
        confinement = Confinement(walls)
        confinement.make_room(DEFAULT_ROOM)
    except OSError as error:
        _leave_with_failure(control, error)
    _supervise(control, orders, walls, confinement, processes)


def _leave_with_failure(control: socket.socket, error: OSError) -> NoReturn:
    send_message(control, WALLS, json.dumps({"failed": str(error)}).encode("ascii"))
    os._exit(0)


def _become_warden(control: socket.socket, forker: socket.socket, locks: Sequence[str], processes: int) -> NoReturn:
    """Gives up what the warden does not need, as far as that works here, and serves. Not by Landlock: it would keep the
    signal of the warden's death from the supervisor."""
    if processes >= 0:
        os.close(processes)
        bar_capabilities()
    if detect_architecture() is not None:
        prepare_to_drop_capabilities()()
        prctl(PR_SET_DUMPABLE, 0)
    with contextlib.suppress(OSError):
        if "seccomp" in locks:
            seccomp.install_filter(seccomp.build_warden_filter())
    with contextlib.suppress(OSError, EOFError):
        serve_orders(control, forker)
    os._exit(0)


def _supervise(
    control: socket.socket, orders: socket.socket, walls: ConfinementPlan, confinement: Confinement, processes: int
) -> None:
    """Runs a program for each order. `control` only tells when the service is gone."""
    fork = _prepare_fork(walls, processes)
    _forget_modules()
    found = {"namespaces": walls.namespaces, "landlock": walls.landlock, "seccomp": bool(walls.seccomp)}
    send_message(control, WALLS, json.dumps(found).encode("ascii"))
    size = _measure_address_space(processes)
    if processes >= 0:
        os.close(processes)
        bar_capabilities()
        prctl(PR_SET_DUMPABLE, 0)  # nobody of the same user may look into it
    gc.collect()
    gc.freeze()
    while True:
        order, channels, _, _ = socket.recv_fds(orders, LIMITS.size, 1)
        if len(order) < LIMITS.size or len(channels) != 1:
            os._exit(0)
        cpu_seconds, memory, files = LIMITS.unpack(order)
        try:
            confinement.make_room(files)
            child = fork()
            if child == 0:
                _become_program(confinement, channels[0], (cpu_seconds, size + memory, files))
            os.close(channels[0])
            status, used = _wait_for_child(child, (control, orders))
            orders.sendall(REPORT.pack(status, int(used * 1000)))
            confinement.clear_room()
        except OSError:
            os._exit(1)


def _wait_for_child(child: int, masters: Sequence[socket.socket]) -> tuple[int, float]:
    """Waits for a child; returns its status and CPU time. Kills it if the service or the warden disconnects."""
    counted = 0.0
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        gone = os.pidfd_open(child)
        if gone not in select.select([gone, *(master.fileno() for master in masters)], [], [])[0]:
            os.kill(child, signal.SIGKILL)
        os.close(gone)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        counted = _read_cpu_clock(child)
    _, status, usage = os.wait4(child, 0)
    return status, max(counted, usage.ru_utime + usage.ru_stime)


def _read_cpu_clock(child: int) -> float:
    """The CPU time of a process that was not reaped yet, in the ticks by which the kernel enforces the limit.

    It may exceed the time that was really used: a program that only runs when the clock ticks is charged whole ticks.
    Without it, one that is killed at its limit would look as if it had been killed from outside."""
    try:
        return time.clock_gettime(~child << 3 | CPUCLOCK_PROF)
    except OSError:
        return 0.0


def _become_program(confinement: Confinement, channel: int, bounds: tuple[int, int, int]) -> NoReturn:
    """Runs the program and exits without cleanup, so that no exit handler of the program runs."""
    leave = os._exit
    try:
        confinement.apply(channel, *bounds)
        run_program(CHANNEL)
    except BaseException:
        leave(1)
    leave(0)


def _prepare_fork(walls: ConfinementPlan, processes: int) -> Callable[[], int]:
    """How to fork. With namespaces, the child is the only process in a new one; where System V's objects are not
    refused, it also has these to itself."""
    if not walls.namespaces:
        return os.fork
    own = os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=processes)
    others = namespaces.NEWPID | (0 if walls.seccomp else namespaces.NEWIPC)
    enter, leave = prepare_call("unshare", others), prepare_call("setns", own, namespaces.NEWPID)

    def fork() -> int:
        enter()
        child = os.fork()
        if child:
            leave()
        return child

    return fork


def _enter_namespaces(wanted: str, library: tuple[str, ...], processes: int) -> None:
    if wanted == "user":
        namespaces.enter_as_user(library, processes)
    elif wanted == "root":
        namespaces.enter_namespaces_as_root(library)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _find_working_walls(wanted: str, locks: Sequence[str], library: tuple[str, ...]) -> ConfinementPlan:
    """Finds the protections that work here."""
    works = {"landlock": lambda: landlock.restrict(landlock.create_ruleset(library)), "seccomp": _try_filter}
    held = {name: name in locks and _can_do(deed) for name, deed in works.items()}
    return ConfinementPlan(
        namespaces=wanted,
        landlock=held["landlock"],
        seccomp=seccomp.build_program_filter(writing=bool(wanted)) if held["seccomp"] else b"",
        nobody=_can_do(lambda: _try_nobody(library)),
        library=library,
        rules=landlock.create_ruleset(_list_own_modules(library)) if held["landlock"] and not wanted else -1,
    )


def _try_nobody(library: tuple[str, ...]) -> None:
    namespaces.become_nobody()
    for place in library:
        next(Path(place).glob("*.py"))


def _can_do(deed: Callable[[], None]) -> bool:
    """Whether an action works, tried in a child process."""
    child = os.fork()
    if child == 0:
        try:
            deed()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _try_filter() -> None:
    seccomp.install_filter(seccomp.build_program_filter(writing=True))


def _find_library() -> tuple[str, ...]:
    """The folders of Python's standard library."""
    places = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("DESTSHARED")]
    real = {os.path.realpath(place) for place in places if place and Path(place).is_dir()}
    return tuple(sorted(one for one in real if not any(one != other and one.startswith(other + "/") for other in real)))


def _list_own_modules(library: tuple[str, ...]) -> list[str]:
    """The contents of the library's folders without third-party packages; the folders themselves cannot be listed."""
    parts = (part for place in library for part in Path(place).iterdir())
    return [str(part) for part in parts if part.name not in namespaces.THIRD_PARTY_FOLDERS]


def preload_modules() -> None:
    for name in PRELOADED.split():
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def hide_source() -> None:
    """Removes the paths of our files from our code, since a program sees it in the frames of its stack. Called before
    `serve`, because a frame keeps the code with which it began."""
    for held in gc.get_objects():
        if isinstance(held, FunctionType) and _is_ours(held.__module__):
            held.__code__ = _without_path(held.__code__)


def _without_path(code: CodeType) -> CodeType:
    inner = (_without_path(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=JAIL, co_consts=tuple(inner))


def _forget_modules() -> None:
    """Removes what would tell a program where and by what it is run."""
    for name in [name for name in sys.modules if name == "__main__" or _is_ours(name)]:
        module = sys.modules.pop(name)
        for path in ("__file__", "__cached__", "__spec__", "__loader__", "__path__"):
            module.__dict__.pop(path, None)
    sys.modules["__main__"] = ModuleType("__main__")
    sys.meta_path[:] = [finder for finder in sys.meta_path if not _is_ours(type(finder).__module__)]
    for folder in [folder for folder in sys.path_importer_cache if folder not in sys.path]:
        del sys.path_importer_cache[folder]
    sys.argv, sys.orig_argv, sys.executable = [""], [""], ""


def _is_ours(module: str | None) -> bool:
    return (module or "").split(".")[0] == "app"


def _prefer_for_oom() -> None:
    """Makes the kernel's OOM killer prefer this process over the service."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800", encoding="ascii")


def _measure_address_space(processes: int) -> int:
    if processes < 0:
        return 1 << 40
    file = os.open("self/statm", os.O_RDONLY, dir_fd=processes)
    pages = int(os.read(file, 256).split()[0])
    os.close(file)
    return pages * resource.getpagesize()
