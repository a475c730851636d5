"""Attempts to get out of a jail, as programs; and what there is outside, to be reached."""

import os
import socket
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from app.sandbox.confinement import CHECKED, FOREIGN, look_up_numbers
from tests.architecture.test_house import ROOT
from tests.support.jailed import Jails

NETWORK: Final = {
    "tcp": "socket.create_connection(('127.0.0.1', given['tcp']), 2)",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', given['tcp']))",
    "unix": "socket.socket(socket.AF_UNIX).connect(given['unix'])",
    "abstract": "socket.socket(socket.AF_UNIX).connect(given['abstract'])",
    "listening": "socket.create_server(('127.0.0.1', 0))",
    "pair": "socket.socketpair()",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "raw call": "called(given['socket'], 2, 1, 0)",
}
FILES: Final = {
    "source": "Path(given['source']).read_text()",
    "password file": "Path('/etc/passwd').read_text()",
    "file of everybody": "Path(given['folder'], 'file').read_text()",
    "folder": "os.listdir(given['folder'])",
    "own process": "Path('/proc/self/environ').read_bytes()",
    "service's variables": "Path(f'/proc/{given[\"service\"]}/environ').read_bytes()",
    "service's memory": "open(f'/proc/{given[\"service\"]}/mem', 'rb')",
    "service's open files": "os.listdir(f'/proc/{given[\"service\"]}/fd')",
    "through its root": "Path(f'/proc/{given[\"service\"]}/' 'root' '/etc/passwd').read_bytes()",
    "up from here": "Path('../../../../../../etc/passwd').read_text()",
    "by descriptor": "os.open('etc/passwd', os.O_RDONLY, dir_fd=os.open('/', os.O_PATH))",
    "new file": "Path(given['folder'], 'new').write_text('x')",
    "emptied": "open(given['folder'] + '/empty', 'r+').truncate(0)",
    "emptied by name": "os.truncate(given['folder'] + '/empty', 0)",
    "emptied by opening": "os.open(given['folder'] + '/empty', os.O_RDONLY | os.O_TRUNC)",
    "permissions": "os.chmod(given['folder'] + '/file', 0o777)",
    "times": "os.utime(given['folder'] + '/file', (0, 0))",
    "link out": "(os.symlink(given['folder'] + '/file', 'out'), Path('out').read_text())",
    "hard link": "(os.link(given['folder'] + '/file', given['folder'] + '/two'))",
    "pipe": "os.mkfifo(given['folder'] + '/pipe')",
    "renamed": "os.rename(given['folder'] + '/moved', given['folder'] + '/away')",
    "removed": "os.unlink(given['folder'] + '/removed')",
    "a new root": "os.chroot('.')",
    "installed packages": "__import__('pydantic', sys.path.append(given['packages']))",
    "memory file": "os.memfd_create('x')",
    "lock between programs": "__import__('fcntl').flock(os.open(os.__file__, os.O_RDONLY), 2)",
}
PROCESSES: Final = {
    "fork": "os.fork() or os._exit(0)",
    "fork, raw": "called(given['clone'], 17, 0, 0) or os._exit(0)",
    "system": "os.system('true') == 0 or refused()",
    "subprocess": "__import__('subprocess').run(['true'], check=True)",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "exec": "os.execv('/bin/true', ['true'])",
    "multiprocessing": "__import__('multiprocessing').Process(target=int).start()",
    "thread": "__import__('threading').Thread(target=int).start()",
    "executor": "__import__('concurrent.futures').futures.ThreadPoolExecutor(1).submit(int).result()",
    "signal": "os.kill(given['service'], 0)",
    "parent": "os.kill(os.getppid() or given['service'], 0)",
    "everybody": "os.kill(-1, 0)",
    "group": "os.killpg(0, 0)",
    "trace": "called(given['ptrace'], 0x4206, given['service'], 0)",
    "another's descriptors": "os.pidfd_open(given['service'])",
    "another's limits": "__import__('resource').prlimit(given['service'], 7)",
    "higher limits": "__import__('resource').setrlimit(0, (1000, 1000))",
    "its own session": "os.setsid()",
    "priority": "os.nice(-5)",
    "namespaces": "called(given['unshare'], 0x10000000)",
    "kernel keys": "called(given['keyctl'], 0, -3)",
    "io_uring": "called(given['io_uring_setup'], 1, ctypes.create_string_buffer(200))",
    "bpf": "called(given['bpf'], 0, ctypes.create_string_buffer(200), 200)",
    "descriptors": "any(exists(number) for number in range(4, 200)) or refused()",
    "variables": "any('SECRET' in name for name in os.environ) or refused()",
    "its limits in prctl": "ctypes.CDLL(None, use_errno=True).prctl(1, 0) == 0 or refused()",
}
ATTEMPTS: Final = NETWORK | FILES | PROCESSES

NUMBERS: Final = look_up_numbers(FOREIGN + CHECKED)

PROGRAM: Final = """
import ctypes, os, socket, sys
from pathlib import Path

def refused(): raise PermissionError
def exists(number):
    try: return os.fstat(number)
    except OSError: return None
def called(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *arguments)
    return result if result >= 0 else refused()

def f(deed, given):
    try:
        eval(deed, globals() | {"given": given})
    except (OSError, RuntimeError, ImportError, ValueError):
        return "refused"
    return "done"
"""

STOPPED_BY_LESS: Final = {
    *("a new root", "bpf", "higher limits", "io_uring", "link out", "namespaces", "netlink", "new file", "priority"),
    *(
        "kernel keys",
        "service's memory",
        "service's variables",
        "through its root",
        "trace",
        "descriptors",
        "variables",
    ),
}
"""Limits or missing capabilities refuse these, or they are nothing that walls stop, so they fail without any too."""
STOPPED_FOR_USERS: Final = {
    *("executor", "fork", "fork, raw", "multiprocessing", "own process", "spawn", "subprocess", "system", "thread"),
}
"""The same for programs that root does not run."""

Given = dict[str, int | str]


@contextmanager
def within_reach() -> Iterator[Given]:
    """Files that anybody may read and change, and listening sockets."""
    with (
        tempfile.TemporaryDirectory(prefix="reach-") as folder,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as hidden,
    ):
        Path(folder).chmod(0o777)
        for name in ("file", "empty", "moved", "removed"):
            (Path(folder) / name).write_text("kept", encoding="ascii")
            (Path(folder) / name).chmod(0o666)
        unix.bind(f"{folder}/socket")
        hidden.bind(f"\0{folder}")
        for listener in (unix, hidden):
            listener.listen()
        yield {
            "tcp": tcp.getsockname()[1],
            "unix": f"{folder}/socket",
            "abstract": f"\0{folder}",
            "folder": folder,
            "source": str(ROOT / "app" / "main" / "application.py"),
            "packages": str(Path(pytest.__file__).parents[1]),
            "service": os.getpid(),
            **NUMBERS,
        }


def attained(jailed: Jails, given: Given, names: Collection[str] = tuple(ATTEMPTS)) -> set[str]:
    """Which attempts were not refused. Each is a program of its own, since one may spoil the next."""
    return {name for name in names if jailed.said(PROGRAM, ATTEMPTS[name], {**given}) != "refused"}
