"""The process that becomes a foreign program: it builds the jail around itself, and loads the program into it. Standard
library only.

Foreign programs need more than those of models: packages, threads, processes and sockets. So their jail is another one,
of the same parts:

namespaces  its own file tree with nothing but system libraries, its interpreter and packages, and the folders that it
            was given, all read-only; a directory of limited size in memory, which is gone with it; no processes but its
            own; a network that is nothing but its own loopback
seccomp     no namespaces, mounts, tracing, kernel keys, modules and the like
limits      address space of each process, size of files, number of processes and open files
user        nobody, without capabilities

It keeps away the network, the files of the service with its database, settings and secrets, the service's processes and
its variables. It does not keep a foreign program from its own tasks and answers, from time on the processor, or from
lying about a reward. There is no Landlock: what the tree does not hold needs no rule.

Without namespaces and seccomp there is no such jail, and the program is not loaded. A trusted one gets the limits
alone.
"""

import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from app.sandbox.confinement import (
    MEBIBYTE,
    NOBODY,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    bar_capabilities,
    become_nobody,
    begin_tree,
    build_child_filter,
    can_do,
    end_tree,
    enter_namespaces_as_root,
    enter_namespaces_as_user,
    install_filter,
    mount_room,
    prctl,
    prepare_to_drop_capabilities,
    show_path,
)

NO_JAIL: Final = 86
"""Exit status where this machine has no jail that holds."""
ROOM: Final = "/child"
"""The program's own directory in its tree."""
_KINDS: Final = ("user", "root")
_SYSTEM: Final = (
    *("/lib", "/lib32", "/lib64", "/bin", "/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/bin"),
    *("/usr/share/zoneinfo", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/etc/ssl", "/etc/pki"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/alternatives"),
)
"""Libraries and programs of the system; what a machine has not is skipped."""
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OWN_FILES: Final = {
    "/etc/passwd": f"nobody:x:{NOBODY}:{NOBODY}::{ROOM}:/bin/sh\n",
    "/etc/group": f"nogroup:x:{NOBODY}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
}
_ROOMS: Final = (ROOM, "/tmp", "/dev/shm")  # noqa: S108  # in a tree of its own
"""Where it may write."""
_OPEN_FILES: Final = 4096
_PROCESSES: Final = 1024
_FILES: Final = 65536
_SET_FLAGS: Final = 0x8914
"""SIOCSIFFLAGS"""
_UP_AND_RUNNING: Final = 0x41


def enclose(service: int, text: str) -> NoReturn:
    """Becomes the program of the order. `service` is the id of the parent process."""
    order: dict[str, Any] = json.loads(text)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    _die_with_parent()
    if os.getppid() != service:
        os._exit(0)
    _prefer_for_oom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if order["trusted"]:
        _limit(order)
        _load(order)
    kind = next((kind for kind in _KINDS if can_do(partial(_enter, kind, order))), None)
    if kind is None:
        os._exit(NO_JAIL)
    _enter(kind, order)
    _die_with_parent()  # becoming another user undid it
    _raise_loopback()
    child = os.fork()
    if child == 0:
        _become(kind, order)
    _end_as(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _end_as(code: int) -> NoReturn:
    """As the program did: by its status, or by the signal that killed it."""
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def _become(kind: str, order: Mapping[str, Any]) -> NoReturn:
    """The first process of its namespace: all others end with it."""
    try:
        os.chdir(ROOM)
        _limit(order)
        _lower(resource.RLIMIT_NPROC, _PROCESSES)
        if kind == "root":
            become_nobody()
        bar_capabilities()
        prepare_to_drop_capabilities()()
        _die_with_parent()
        install_filter(build_child_filter())
    except OSError:
        os._exit(NO_JAIL)
    _load(order)


def _load(order: Mapping[str, Any]) -> NoReturn:
    if sys.platform == "linux":
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.execv(order["command"][0], order["command"])  # noqa: S606  # what this process is for


def _enter(kind: str, order: Mapping[str, Any]) -> None:
    build = partial(_build_tree, order["readable"], order["file_mb"])
    if kind == "user":
        processes = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        enter_namespaces_as_user(build, processes)
        os.close(processes)
    else:
        enter_namespaces_as_root(build)


def _build_tree(readable: Sequence[str], file_mb: int) -> None:
    shown = _leave_out_inner([path for path in (*_SYSTEM, *readable) if Path(path).exists()])
    root = begin_tree((*shown, *map(os.path.realpath, shown), *_DEVICES))
    for room in _ROOMS:  # first: what is shown may lie in one of them
        Path(root + room).mkdir(parents=True)
        mount_room(root + room, file_mb * MEBIBYTE, NOBODY, files=_FILES, executable=True)
    for path in shown:
        show_path(root, path)
    for device in _DEVICES:
        show_path(root, device, device=True)
    for name, text in _OWN_FILES.items():
        Path(root + name).parent.mkdir(exist_ok=True)
        Path(root + name).write_text(text, encoding="ascii")
    end_tree(root)


def _leave_out_inner(paths: Sequence[str]) -> list[str]:
    """Without those that lie in another one."""
    distinct = sorted(set(paths))
    return [one for one in distinct if not any(one.startswith(other + "/") for other in distinct)]


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))


def _limit(order: Mapping[str, Any]) -> None:
    _lower(resource.RLIMIT_AS, order["memory_mb"] * MEBIBYTE)
    _lower(resource.RLIMIT_FSIZE, order["file_mb"] * MEBIBYTE)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _lower(resource.RLIMIT_CORE, 0)


def _lower(what: int, bound: int) -> None:
    hard = resource.getrlimit(what)[1]
    lower = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
    resource.setrlimit(what, (lower, lower))


def _die_with_parent() -> None:
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _prefer_for_oom() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    except OSError:
        return  # where memory runs out, the kernel chooses
