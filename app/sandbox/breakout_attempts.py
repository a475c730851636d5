"""The program that probes the isolation: it attempts what no program may do. Read as text, never imported.

`attempt(threat, …)` returns descriptions of the attempts that succeeded; an empty list means that the isolation holds.
"""

import ctypes
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from posix import environ as inherited  # of its own process, which is not the service
from typing import Any

REFUSALS = (OSError, RuntimeError, MemoryError, ImportError, subprocess.SubprocessError)
"""Exceptions by which a blocked attempt fails."""
PTRACE_SEIZE = 0x4206

Deed = Callable[[], Any]
"""An attempt. It fails by raising one of REFUSALS or returning False."""


def attempt(threat: str, *arguments: Any) -> list[str]:
    return [words for words, deed in DEEDS[threat](*arguments).items() if has_succeeded(deed)]


def has_succeeded(deed: Deed) -> bool:
    try:
        return deed() is not False
    except REFUSALS:
        return False


def build_network_deeds(host: str, tcp: int, udp: int, unix: str) -> dict[str, Deed]:
    """Attempts on addresses where the service listens during the probe."""
    return {
        "a TCP connection was made": lambda: socket.create_connection((host, tcp), timeout=1),
        "a datagram was answered": lambda: await_answer(host, udp),
        "a Unix socket was reached": lambda: socket.socket(socket.AF_UNIX).connect(unix),
    }


def await_answer(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(1)
        sender.connect((host, port))
        sender.send(b"there")
        sender.recv(16)


def build_file_deeds(readable: dict[str, str], folder: str) -> dict[str, Deed]:
    """Attempts on files: paths by their description, and a folder that everyone may write to."""
    read = {f"{name} was read": Path(path).read_bytes for name, path in readable.items()}
    return read | {
        "a folder of everybody was listed": lambda: [*Path(folder).iterdir()],
        "a file was left outside": lambda: Path(folder, "left").write_text("x"),
        "a file outside was removed": lambda: Path(folder, "there").unlink(),
        "a file outside was emptied": lambda: os.truncate(Path(folder, "full"), 0),
        "a link was made outside": lambda: Path(folder, "link").symlink_to("/"),
    }


def build_process_breakouts() -> dict[str, Deed]:
    return {
        "it forked": fork_child,
        "a program was started": lambda: subprocess.run(["/bin/true"], check=True),
        "a thread was started": lambda: threading.Thread(target=int).start(),
    }


def fork_child() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def build_memory_deeds(megabytes: int) -> dict[str, Deed]:
    return {f"{megabytes} MB were allocated": lambda: bytearray(megabytes << 20)}


def build_service_deeds(process: int, variables: list[str]) -> dict[str, Deed]:
    other = process != os.getpid()  # in a world of its own it may have the same number, and is then itself
    return {
        "the service was signalled": lambda: other and send_signal(process),
        "every process was signalled": lambda: send_signal(-1),
        "the service's variables were read": Path(f"/proc/{process}/environ").read_bytes,
        "the service's memory was opened": lambda: Path(f"/proc/{process}/mem").open("rb"),
        "the service was traced": lambda: other and ctypes.CDLL(None).ptrace(PTRACE_SEIZE, process, 0, 0) == 0,
        "variables were inherited": lambda: not {*inherited} <= {name.encode() for name in variables},
        "a descriptor was inherited": lambda: any(is_open(number) for number in range(4, 256)),
    }


def send_signal(process: int) -> bool:
    os.kill(process, 0)
    return True


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


DEEDS: dict[str, Callable[..., dict[str, Deed]]] = {
    "network": build_network_deeds,
    "files": build_file_deeds,
    "processes": build_process_breakouts,
    "memory": build_memory_deeds,
    "service": build_service_deeds,
}


def outlast(seconds: float) -> str:
    """Ignores every signal that can be ignored and keeps running."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except REFUSALS:
            continue
    threading.Event().wait(seconds)
    return "awake"
