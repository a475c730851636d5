"""What runs inside a jail: the warden, the supervisor, and the program's own process. Standard library only.

The service starts one process, which enters the namespaces and becomes two. The *warden* gets a program with its calls
from the service, asks one call after the other, and returns the answers. The *supervisor*, its child, forks a process
for each program, confines it, waits for it and reports how it ended; it never runs a program itself.

Memory of a process that forks is copied into every program, freed memory too. So the supervisor holds nothing that a
program must not see: no variables, files, calls, results or tokens. The warden holds the calls, and forks nothing once
the supervisor exists. It trusts nothing that a program sends, and the service trusts nothing that the warden sends.

Nothing in the program's process can be trusted once its first line has run, since it shares the interpreter. So nothing
is decided there: each call comes with a new random token, and any answer with that token counts as what the call
returned. Calls are asked one by one: else one message would hold all inputs, and `finished` would mean nothing.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NoReturn

from app.sandbox.confinement import (
    CHANNEL,
    MEBIBYTE,
    NEWIPC,
    NEWPID,
    OPEN_FILES,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    THIRD_PARTY_FOLDERS,
    Confinement,
    ConfinementPlan,
    bar_capabilities,
    become_nobody,
    build_library_tree,
    build_program_filter,
    build_warden_filter,
    can_do,
    create_ruleset,
    detect_architecture,
    enter_namespaces_as_root,
    enter_namespaces_as_user,
    install_filter,
    prctl,
    prepare_call,
    prepare_to_drop_capabilities,
    restrict_files,
)
from app.sandbox.frames import HEAD, STARTED, build_frame, take_socket

# Messages between the service, the warden, the supervisor and a program

VALUE, RAISED, _NO_JSON, _LOADED, NO_FUNCTION, MEMORY, TOO_MUCH = b"V", b"R", b"J", b"L", b"N", b"M", b"O"
"""The first byte of an answer."""
_ORDER: Final = struct.Struct(">IQQII")
"""Seconds of CPU time, bytes of additional memory, bytes of files, bytes of answers, number of messages. Their lengths
follow, and then they themselves: the program, and the arguments of each call."""
_LIMITS: Final = struct.Struct(">IQQ")
"""The first three of these, for the process that forks. The program's channel is sent with them."""
REPORT: Final = struct.Struct(">iI")
"""The status from `wait`; CPU time in milliseconds, as the kernel counts it against the limit."""
LENGTH: Final = struct.Struct(">I")
MESSAGE: Final = struct.Struct(">cI")
"""Kind and length of a message to the service."""
WALLS, BEGUN, ANSWERS, ENDED, EXITED = b"W", b"B", b"A", b"E", b"X"
"""Protections in JSON; the process is confined; some answers; the last of them, after how the dialogue ended; how the
process ended."""
FINISHED, DIED = b"F", b"D"
"""Endings besides those that a program can report itself."""
_CLAIMS: Final = (NO_FUNCTION, MEMORY, TOO_MUCH)
_ANSWERED: Final = (VALUE, RAISED, _NO_JSON)


def build_order(limits: tuple[int, int, int, int], messages: Sequence[bytes]) -> bytes:
    lengths = struct.pack(f">{len(messages)}I", *map(len, messages))
    return b"".join([_ORDER.pack(*limits, len(messages)), lengths, *messages])


def _send_message(service: socket.socket, kind: bytes, body: bytes = b"") -> None:
    service.sendall(MESSAGE.pack(kind, len(body)) + body)


# The supervisor

_CPUCLOCK_PROF: Final = 0
"""User and system time, in the clock ids of processes."""
_DEFAULT_ROOM: Final = MEBIBYTE
"""Size of the directory that is there before the first program; for other sizes it is replaced."""
_JAIL: Final = "<jail>"
"""The file of our functions, for programs that look."""
_PRELOADED: Final = """
abc array bisect bz2 collections.abc contextlib copy ctypes dataclasses datetime decimal enum functools gc hashlib
heapq io itertools json lzma math operator os random re string struct sys time types typing unicodedata uuid
warnings zlib
"""
"""Modules that programs import most often, and those that need libraries outside of Python's own folder. Each makes
every fork slower: twenty more of them took 0.3 ms, and importing one of those when it is needed takes 0.5 to 2 ms."""


def serve(service: int, namespaces: str, locks: Sequence[str]) -> None:
    """Runs the warden, and the supervisor as its child. `namespaces` is the required kind (`user`, `root` or none).
    Those of `locks` that work here are applied."""
    control = socket.socket(fileno=take_socket())
    few = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    preload_modules()  # before the namespaces hide installed libraries that some of these need
    library = _find_library()
    processes = -1
    if sys.platform == "linux":
        # The new file tree has no /proc; this descriptor outlives the change and is closed before programs run.
        processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _prefer_for_oom()
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    try:
        _enter_namespaces(namespaces, library, processes)
    except OSError as error:
        _leave_with_failure(control, error)
    _die_with_parent()  # after becoming another user, which undoes it
    if os.getppid() != service:  # the service ended before this could be asked for
        os._exit(0)
    forker, orders = socket.socketpair()
    if os.fork():
        orders.close()
        _become_warden(control, forker, locks, processes)
    forker.close()
    _die_with_parent()
    try:
        plan = _plan_confinement(namespaces, locks, library)
        confinement = Confinement(plan)
        confinement.make_room(_DEFAULT_ROOM)
    except OSError as error:
        _leave_with_failure(control, error)
    _supervise(control, orders, plan, confinement, processes)


def _leave_with_failure(control: socket.socket, error: OSError) -> NoReturn:
    _send_message(control, WALLS, json.dumps({"failed": str(error)}).encode("ascii"))
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
            install_filter(build_warden_filter())
    with contextlib.suppress(OSError, EOFError):
        _serve_orders(control, forker)
    os._exit(0)


def _supervise(
    control: socket.socket, orders: socket.socket, plan: ConfinementPlan, confinement: Confinement, processes: int
) -> None:
    """Runs a program for each order. `control` only tells when the service is gone."""
    fork = _prepare_fork(plan, processes)
    _forget_modules()
    walls = {"namespaces": plan.namespaces, "landlock": plan.landlock, "seccomp": bool(plan.seccomp)}
    _send_message(control, WALLS, json.dumps(walls).encode("ascii"))
    size = _measure_address_space(processes)
    if processes >= 0:
        os.close(processes)
        bar_capabilities()
        prctl(PR_SET_DUMPABLE, 0)  # nobody of the same user may look into it
    gc.collect()
    gc.freeze()  # a collection in a program would write to the objects of ours, and so copy their pages
    while True:
        order, channels, _, _ = socket.recv_fds(orders, _LIMITS.size, 1)
        if len(order) < _LIMITS.size or len(channels) != 1:
            os._exit(0)
        cpu_seconds, memory, files = _LIMITS.unpack(order)
        try:
            confinement.make_room(files)
            child = fork()
            if child == 0:
                _become_program(confinement, channels[0], (cpu_seconds, size + memory, files))
            os.close(channels[0])
            status, used = _wait_for_child(child, (control, orders))
            orders.sendall(REPORT.pack(status, int(used * 1000)))
            confinement.clear_room()  # after the report, so that nobody waits for it
        except OSError:  # the service sees the jail's end and replaces it
            os._exit(1)


def _wait_for_child(child: int, masters: Sequence[socket.socket]) -> tuple[int, float]:
    """Waits for a child; returns its status and CPU time. Kills it if the service or the warden disconnects."""
    counted = 0.0
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        gone = os.pidfd_open(child)
        if gone not in select.select([gone, *(master.fileno() for master in masters)], [], [])[0]:
            os.kill(child, signal.SIGKILL)
        os.close(gone)
        # Not reaped yet: a process that is reaped has no clock to read.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        counted = _read_cpu_clock(child)
    _, status, usage = os.wait4(child, 0)
    return status, max(counted, usage.ru_utime + usage.ru_stime)


def _read_cpu_clock(child: int) -> float:
    """The CPU time of a process that was not reaped yet, in the ticks by which the kernel enforces the limit.

    It may exceed the time that was really used: a program that only runs when the clock ticks is charged whole ticks.
    Without it, one that is killed at its limit would look as if it had been killed from outside."""
    try:
        return time.clock_gettime(~child << 3 | _CPUCLOCK_PROF)
    except OSError:
        return 0.0


def _become_program(confinement: Confinement, channel: int, bounds: tuple[int, int, int]) -> NoReturn:
    """Runs the program and exits without cleanup, so that no exit handler of the program runs."""
    leave = os._exit  # looked up now: the program may replace it
    try:
        confinement.apply(channel, *bounds)
        _run_program(CHANNEL)
    except BaseException:
        leave(1)
    leave(0)


def _prepare_fork(plan: ConfinementPlan, processes: int) -> Callable[[], int]:
    """How to fork. With namespaces, the child is the only process in a new one; where System V's objects are not
    refused, it also has these to itself."""
    if not plan.namespaces:
        return os.fork
    own = os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=processes)
    others = NEWPID | (0 if plan.seccomp else NEWIPC)
    enter, leave = prepare_call("unshare", others), prepare_call("setns", own, NEWPID)

    def fork() -> int:
        enter()
        child = os.fork()
        if child:
            leave()
        return child

    return fork


def _enter_namespaces(kind: str, library: tuple[str, ...], processes: int) -> None:
    if kind == "user":
        enter_namespaces_as_user(partial(build_library_tree, library), processes)
    elif kind == "root":
        enter_namespaces_as_root(partial(build_library_tree, library))


def _die_with_parent() -> None:
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _plan_confinement(namespaces: str, locks: Sequence[str], library: tuple[str, ...]) -> ConfinementPlan:
    """Plans the protections that work here, which only trying tells: none of them can be undone, so a child tries."""
    attempts = {"landlock": lambda: restrict_files(create_ruleset(library)), "seccomp": _try_filter}
    works = {name: name in locks and can_do(attempt) for name, attempt in attempts.items()}
    return ConfinementPlan(
        namespaces=namespaces,
        landlock=works["landlock"],
        seccomp=build_program_filter(writing=bool(namespaces)) if works["seccomp"] else b"",
        nobody=can_do(lambda: _try_nobody(library)),
        library=library,
        rules=create_ruleset(_list_own_modules(library)) if works["landlock"] and not namespaces else -1,
    )


def _try_nobody(library: tuple[str, ...]) -> None:
    become_nobody()
    for folder in library:
        next(Path(folder).glob("*.py"))


def _try_filter() -> None:
    install_filter(build_program_filter(writing=True))


def _find_library() -> tuple[str, ...]:
    """The folders of Python's standard library."""
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("DESTSHARED")]
    real = {os.path.realpath(folder) for folder in folders if folder and Path(folder).is_dir()}
    return tuple(sorted(one for one in real if not any(one != other and one.startswith(other + "/") for other in real)))


def _list_own_modules(library: tuple[str, ...]) -> list[str]:
    """The contents of the library's folders without third-party packages; the folders themselves cannot be listed."""
    parts = (part for folder in library for part in Path(folder).iterdir())
    return [str(part) for part in parts if part.name not in THIRD_PARTY_FOLDERS]


def preload_modules() -> None:
    """Imports what most programs need, once for all forks."""
    for name in _PRELOADED.split():
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def hide_source() -> None:
    """Removes the paths of our files from our code, since a program sees it in the frames of its stack. Called before
    `serve`, because a frame keeps the code with which it began."""
    for item in gc.get_objects():
        if isinstance(item, FunctionType) and _is_ours(item.__module__):
            item.__code__ = _without_path(item.__code__)


def _without_path(code: CodeType) -> CodeType:
    inner = (_without_path(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=_JAIL, co_consts=tuple(inner))


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


# The warden

_TOKEN_BYTES: Final = 16
_HOLD_SECONDS: Final = 0.01
"""Answers are held back for this long, since the service is woken by each message. It may kill a program at any time,
and then has what it was sent."""
_RECEIVE_TIMEOUT: Final = struct.pack("ll", 0, int(_HOLD_SECONDS * 1e6))
"""_HOLD_SECONDS as a `timeval`: a time limit of the socket, in place of a `select` before each read."""


class _Broken(Exception):
    """The program sent an invalid message."""


class _Stopped(Exception):
    """The program ends here, by its own message or by the limit on output."""

    def __init__(self, ending: bytes) -> None:
        self.ending = ending


def _serve_orders(service: socket.socket, forker: socket.socket) -> None:
    """Runs programs until the service or the process that forks is gone."""
    while True:
        *limits, output_bytes, count = _ORDER.unpack(_receive_exactly(service, _ORDER.size))
        lengths = struct.unpack(f">{count}I", _receive_exactly(service, LENGTH.size * count))
        messages = _receive_exactly(service, sum(lengths))
        channel, theirs = socket.socketpair()
        with channel:
            with theirs:
                socket.send_fds(forker, [_LIMITS.pack(*limits)], [theirs.fileno()])
            dialogue = _Dialogue(channel, output_bytes, service)
            dialogue.await_start()
            _send_message(service, BEGUN)
            ending = dialogue.run(_split(messages, lengths))
            _send_message(service, ENDED, ending + dialogue.take_answers())
        _send_message(service, EXITED, _receive_exactly(forker, REPORT.size))


class _Dialogue:
    """The exchange with a program, which is untrusted from its first line."""

    def __init__(self, channel: socket.socket, output_bytes: int, service: socket.socket) -> None:
        self._channel = channel
        self._service = service
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _RECEIVE_TIMEOUT)
        self._left = output_bytes
        self._unread = bytearray()
        self._held: list[bytes] = []
        self._sent_at = time.monotonic()

    def await_start(self) -> None:
        """Waits until the process is confined, before the program is loaded. Raises EOFError if it is not."""
        try:
            self._receive_answer(STARTED)
        except (OSError, _Broken) as error:
            raise EOFError from error

    def run(self, messages: Sequence[bytes]) -> bytes:
        """How it ended."""
        try:
            self._exchange(messages)
        except _Stopped as stopped:
            return stopped.ending
        except (OSError, EOFError, _Broken):
            return DIED
        return FINISHED

    def _exchange(self, messages: Sequence[bytes]) -> None:
        """Each message under a token that the program has not seen before."""
        program, *calls = messages
        if self._ask(program) != _LOADED:
            raise _Broken
        for arguments in calls:
            answer = self._ask(arguments)
            if answer[:1] not in _ANSWERED:
                raise _Broken
            self._held.append(answer)
            # A quick program never lets the socket's time limit pass, so the clock is looked at here too.
            if time.monotonic() - self._sent_at > _HOLD_SECONDS:
                self._send_answers()
        # Nothing left to call: the program's process closes its end, and only then has it finished.
        self._channel.sendall(build_frame(os.urandom(_TOKEN_BYTES), b"null"))
        self._receive_part()

    def _ask(self, message: bytes) -> bytes:
        token = os.urandom(_TOKEN_BYTES)
        self._channel.sendall(build_frame(token, message))
        return self._receive_answer(token)

    def _receive_answer(self, token: bytes) -> bytes:
        size, answered = HEAD.unpack(self._receive(HEAD.size))
        if answered != token:
            raise _Broken
        # Before the answer is read, so that no length that it claims makes us hold more.
        self._left -= max(size - 1, 0)
        if self._left < 0:
            raise _Stopped(TOO_MUCH)
        answer = self._receive(size)
        if answer in _CLAIMS:
            raise _Stopped(answer)
        return answer

    def take_answers(self) -> bytes:
        """The answers that the service has not been sent yet, each after its length."""
        held, self._held = self._held, []
        return b"".join(LENGTH.pack(len(answer)) + answer for answer in held)

    def _send_answers(self) -> None:
        if self._held:
            _send_message(self._service, ANSWERS, self.take_answers())
        self._sent_at = time.monotonic()

    def _receive(self, size: int) -> bytes:
        while len(self._unread) < size:
            part = self._receive_part()
            if not part:
                raise EOFError
            self._unread += part
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken

    def _receive_part(self) -> bytes:
        while True:
            try:
                return self._channel.recv(_PART_BYTES)
            except BlockingIOError:  # after _HOLD_SECONDS
                self._send_answers()


def _split(joined: bytes, lengths: Sequence[int]) -> list[bytes]:
    parts, start = [], 0
    for length in lengths:
        parts.append(joined[start : start + length])
        start += length
    return parts


def _receive_exactly(sender: socket.socket, size: int) -> bytes:
    message = b""
    while len(message) < size:
        part = sender.recv(size - len(message), socket.MSG_WAITALL)
        if not part:
            raise EOFError
        message += part
    return message


# The program

_MAX_DEPTH: Final = 40
"""Slightly more than the service accepts, so that the service refuses."""
_MODULE: Final = "program"
_PART_BYTES: Final = 1 << 16
_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def _run_program(channel: int) -> None:
    """Answers calls until the service sends no more."""
    _send_answer(channel, STARTED, b"")
    token, order = _receive_message(channel)
    # The warden counts too; here a huge answer is not even sent.
    left = int(order["output_bytes"])
    function, trouble = _load_function(order["source"], order["function"])
    _send_answer(channel, token, trouble or _LOADED)
    while function is not None:
        token, arguments = _receive_message(channel)
        if arguments is None:
            return
        answer = _call_function(function, arguments)
        left -= len(answer) - 1
        _send_answer(channel, token, answer if left >= 0 else TOO_MUCH)


def _load_function(source: str, name: str) -> tuple[Callable[..., object] | None, bytes]:
    module = ModuleType(_MODULE)
    sys.modules[_MODULE] = module  # dataclasses and pickle look their classes' module up there
    try:
        exec(compile(source, "<program>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # what this is for
        function = module.__dict__[name]
    except MemoryError:
        return None, MEMORY
    except BaseException:  # also when it wants to leave: then there is no function
        return None, NO_FUNCTION
    return (function, b"") if callable(function) else (None, NO_FUNCTION)


def _call_function(function: Callable[..., object], arguments: list[Any]) -> bytes:
    try:
        value = function(*arguments)
    except MemoryError:
        return MEMORY
    except BaseException:  # SystemExit too: leaving is no answer
        return RAISED
    try:
        return VALUE + _ENCODER.encode(_to_plain_json(value, 0)).encode("ascii")
    except MemoryError:
        return MEMORY
    except BaseException:  # whatever its own methods raise
        return _NO_JSON


def _to_plain_json(value: object, depth: int) -> object:
    """Converts a value to plain JSON types, tuples to arrays. Raises ValueError for other types and non-text keys."""
    if value is None or type(value) in (bool, str, int):
        return value
    if depth > _MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(value, list | tuple):
        return [_to_plain_json(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_require_text(key): _to_plain_json(item, depth + 1) for key, item in value.items()}
    # Subclasses are converted by the plain types' own methods: theirs are the program's.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float) and math.isfinite(value):
        return float.__float__(value)
    raise ValueError("no JSON")


def _require_text(key: object) -> str:
    if not isinstance(key, str):
        raise ValueError("JSON's keys are texts")
    return str.__str__(key)


def _receive_message(channel: int) -> tuple[bytes, Any]:
    """One message is sent at a time, so all that there is to read is of this one."""
    message = _read_at_least(channel, b"", HEAD.size)
    size, token = HEAD.unpack_from(message)
    return token, json.loads(_read_at_least(channel, message, HEAD.size + size)[HEAD.size :])


def _read_at_least(channel: int, message: bytes, size: int) -> bytes:
    while len(message) < size:
        part = os.read(channel, max(size - len(message), _PART_BYTES))
        if not part:
            raise EOFError
        message += part
    return message


def _send_answer(channel: int, token: bytes, answer: bytes) -> None:
    message = memoryview(build_frame(token, answer))
    while message:
        message = message[os.write(channel, message) :]
