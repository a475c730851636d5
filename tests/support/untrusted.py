"""What checking a text can do to a worker: functions that tests have called there."""

import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import JsonValue


def echoed(*arguments: JsonValue) -> JsonValue:
    return list(arguments)


def broken(text: str) -> JsonValue:
    raise ValueError(f"no\nnumber: {text}")


def out_of_the_house(status: int) -> JsonValue:
    sys.exit(status)


def no_json() -> JsonValue:
    return float("nan")


def too_deep() -> JsonValue:
    nested: JsonValue = []
    for _ in range(100):
        nested = [nested]
    return nested


def much(count: int) -> JsonValue:
    return "x" * count


def printed(text: str) -> JsonValue:
    sys.stdout.write(text)
    sys.stdout.flush()
    os.write(1, text.encode())
    return [sys.stdin.read(), "said"]


def asleep(seconds: float) -> JsonValue:
    time.sleep(seconds)
    return "awake"


def asleep_after_telling(pipe: str) -> JsonValue:
    """Which process this is, to whoever reads from `pipe`."""
    with Path(pipe).open("w", encoding="ascii") as told:
        told.write(f"{os.getpid()}\n")
    time.sleep(600)
    return None


def busy() -> JsonValue:
    while True:
        pass


def hoarding(megabytes: int) -> JsonValue:
    hoard = bytearray(megabytes * 1024 * 1024)
    return len(hoard)


def gone(status: int) -> JsonValue:
    os._exit(status)


def killed(signal_number: int) -> JsonValue:
    os.kill(os.getpid(), signal_number)
    return "alive"


def silent() -> JsonValue:
    """Closes every way out but stays."""
    os.closerange(3, 64)
    time.sleep(600)
    return None


def forged(body: str) -> JsonValue:
    """Writes what it likes to the stream that answers go to."""
    for stream in range(3, 8):
        try:
            os.write(stream, body.encode())
        except OSError:
            continue
    return "forged"


def flooding() -> JsonValue:
    """As above, without end."""
    while True:
        forged("x" * 65536)


def gone_the_first_time(trace: str) -> JsonValue:
    """Dies unless the folder `trace` is there, and makes it."""
    if not Path(trace).exists():
        Path(trace).mkdir()
        os.kill(os.getpid(), signal.SIGKILL)
    return "second time"


def surroundings(file: str) -> JsonValue:
    """What the process can see and do."""
    return {
        "environment": [*sorted(os.environ)],
        "working_directory": str(Path.cwd()),
        "leads_its_session": os.getsid(0) == os.getpid() == os.getpgrp(),
        "core": list(resource.getrlimit(resource.RLIMIT_CORE)),
        "file_size": list(resource.getrlimit(resource.RLIMIT_FSIZE)),
        "processes": list(resource.getrlimit(resource.RLIMIT_NPROC)),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "written": _attempted(lambda: Path(file).write_text("x", encoding="ascii")),
        "descriptors": _attempted(lambda: [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]),
        "socket": _attempted(socket.socket),
        "forked": _attempted(os.fork),
        "started": _attempted(lambda: os.execv("/bin/true", ["true"])),  # noqa: S606
        "signalled": _attempted(lambda: os.kill(os.getppid(), 0)),
        "traced": _attempted(lambda: os.pidfd_open(os.getppid())),
    }


def _attempted(deed: Callable[[], object]) -> JsonValue:
    try:
        deed()
    except OSError as error:
        return error.strerror
    return "done"


def process_id() -> JsonValue:
    return os.getpid()


def open_descriptors() -> list[int]:
    """Those that are open in this process, but the three that lead nowhere."""
    return [number for number in range(3, 300) if _is_open(number)]


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
