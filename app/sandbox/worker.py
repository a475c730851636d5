"""The worker process: calls our functions, one at a time. Standard library only.

It bounds what a function may take; it is no jail. A text that takes over this process can still read files, since
modules are imported late, and it may forge later answers, so the service reads them as a stranger's.
"""

import contextlib
import importlib
import math
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from app.sandbox.confinement import (
    MEBIBYTE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    build_worker_filter,
    install_filter,
    prctl,
)
from app.sandbox.frames import STARTED, build_frame, encode_json, read_frame, take_socket

_OPEN_FILES: Final = 32
_FAULT_CHARACTERS: Final = 1500


def serve(service: int) -> None:
    """Answers calls until the stream ends. `service` is the id of the parent process."""
    orders, answers = _open_streams()
    _confine()
    _die_with(service)
    _install_filter()
    _send_answer(answers, STARTED, encode_json({"ready": True}))
    functions: dict[str, Callable[..., object]] = {}
    while (order := read_frame(orders)) is not None:
        token, message = order
        _send_answer(answers, token, _answer_message(functions, message))


def _answer_message(functions: dict[str, Callable[..., object]], message: dict[str, object]) -> bytes:
    """Answers a call, or a request to import a function before its call."""
    name = str(message["function"])
    try:
        if name not in functions:
            functions[name] = _import_function(name)
    except Exception as error:
        return encode_json({"fault": _describe_fault(error)})
    if "arguments" not in message:
        return encode_json({"result": None})
    return _call_function(functions[name], message["arguments"], message["limits"])


def _call_function(function: Callable[..., object], arguments: Any, limits: Any) -> bytes:
    try:
        with _limit_resources(limits["cpu_seconds"], limits["memory_mb"]):
            result = encode_json(function(*arguments))
    except MemoryError:
        return encode_json({"exceeded": "memory_mb"})
    except BaseException as error:  # whatever it raised, SystemExit too, this process still answers
        return encode_json({"fault": _describe_fault(error)})
    if len(result) > limits["output_bytes"]:
        return encode_json({"exceeded": "output_bytes"})
    return b'{"result":' + result + b"}"


def _import_function(name: str) -> Callable[..., object]:
    module, _, path = name.partition(":")
    function = importlib.import_module(module)
    for part in path.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise TypeError(f"{name} cannot be called")
    return function


@contextlib.contextmanager
def _limit_resources(cpu_seconds: float, memory_mb: int) -> Iterator[None]:
    """Sets soft limits: too much CPU time ends the process, too much memory raises MemoryError."""
    # The kernel counts for the life of the process, so what earlier calls have used is added to the limit.
    used = resource.getrusage(resource.RUSAGE_SELF)
    before = {what: resource.getrlimit(what) for what in (resource.RLIMIT_CPU, resource.RLIMIT_AS)}
    _lower_limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + cpu_seconds))
    _lower_limit(resource.RLIMIT_AS, _measure_address_space() + memory_mb * MEBIBYTE)
    try:
        yield
    finally:
        for what, limits in before.items():
            resource.setrlimit(what, limits)


def _lower_limit(what: int, value: int, *, for_good: bool = False) -> None:
    hard = resource.getrlimit(what)[1]
    lower = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (lower, lower if for_good else hard))


def _measure_address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def _open_streams() -> tuple[BinaryIO, BinaryIO]:
    """The read and write ends of the socket that the process was started with."""
    orders = take_socket()
    return os.fdopen(orders, "rb"), os.fdopen(os.dup(orders), "wb")


def _confine() -> None:
    """Sets permanent limits that the process cannot raise again."""
    _lower_limit(resource.RLIMIT_CORE, 0, for_good=True)
    _lower_limit(resource.RLIMIT_FSIZE, 0, for_good=True)
    _lower_limit(resource.RLIMIT_NOFILE, _OPEN_FILES, for_good=True)
    _lower_limit(resource.RLIMIT_NPROC, 0, for_good=True)  # neither threads nor processes, unless it runs as root
    with contextlib.suppress(OSError):  # where memory runs out, this goes before the service does
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _die_with(service: int) -> None:
    if sys.platform == "linux":
        for option, value in ((PR_SET_NO_NEW_PRIVS, 1), (PR_SET_PDEATHSIG, int(signal.SIGKILL))):
            with contextlib.suppress(OSError):
                prctl(option, value)
    if os.getppid() != service:  # it died before this could be asked for
        os._exit(0)


def _install_filter() -> None:
    """Installs the seccomp filter where it is available: a text that takes over this process gets no sockets, processes
    or exec, no access to other processes, and no system management. Files stay readable, because modules are imported
    late."""
    with contextlib.suppress(OSError):
        install_filter(build_worker_filter())


def _describe_fault(error: BaseException) -> str:
    """The error and its last code locations on one line, for the log."""
    lines = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__}: {error} at {' > '.join(lines[-6:])}"[:_FAULT_CHARACTERS]


def _send_answer(answers: BinaryIO, token: bytes, body: bytes) -> None:
    answers.write(build_frame(token, body))
    answers.flush()
