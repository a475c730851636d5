"""Irrevocable confinement of a process before it loads a program. Standard library only."""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.sandbox import landlock, namespaces, seccomp
from app.sandbox.syscalls import detect_architecture, prctl, prepare_call, prepare_prctl

CHANNEL: Final = 3
"""The only open descriptor besides the standard ones, which are /dev/null."""
OPEN_FILES: Final = 64
MEBIBYTE: Final = 1024 * 1024
CAPABILITIES: Final = 64
"""More than any kernel has."""
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 1, 4, 24, 47, 4
CAPABILITY_VERSION: Final = 0x20080522
LIMITED: Final = (
    resource.RLIMIT_CPU,
    resource.RLIMIT_AS,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_CORE,
    resource.RLIMIT_MEMLOCK,
)


@dataclass(frozen=True)
class ConfinementPlan:
    """The protections that work on this machine. Each is applied to every program, or the program is not run."""

    namespaces: str = ""
    """`user`, `root` or none."""
    landlock: bool = False
    seccomp: bytes = b""
    """The seccomp filter, if it works."""
    nobody: bool = False
    """Whether the process runs as root and can become `nobody` and still read the library."""
    library: tuple[str, ...] = ()
    """Paths that programs may read."""
    rules: int = -1
    """A descriptor of the Landlock ruleset, if it is the same for all programs."""

    @property
    def owner(self) -> int:
        """The user id of programs inside the namespace."""
        return namespaces.NOBODY if self.nobody else os.geteuid()

    @property
    def writing(self) -> bool:
        """Whether programs have a writable directory of limited size."""
        return bool(self.namespaces)


class Confinement:
    """Confines processes that are forked for programs. Whatever can be is made ready before the fork, since each page
    of memory that a new process touches is copied."""

    def __init__(self, walls: ConfinementPlan) -> None:
        self._walls = walls
        self._rules = walls.rules
        self._room_bytes = -1
        self._most = {what: resource.getrlimit(what)[1] for what in LIMITED}
        self._restrict = landlock.prepare_restriction(walls.rules) if walls.rules >= 0 else _do_nothing
        self._install_filter = seccomp.prepare_filter(walls.seccomp) if walls.seccomp else _do_nothing
        self._drops = _prepare_drops() if sys.platform == "linux" else []

    def make_room(self, file_bytes: int) -> None:
        """Sees to it that there is an empty directory of this size, which no program has had."""
        if self._walls.writing and file_bytes != self._room_bytes:
            self._replace_room(file_bytes)

    def clear_room(self) -> None:
        """Replaces the directory that a program has had."""
        if self._walls.writing:
            self._replace_room(self._room_bytes)

    def _replace_room(self, file_bytes: int) -> None:
        if self._room_bytes >= 0:
            namespaces.unmount_room()
        namespaces.mount_room(file_bytes, self._walls.owner)
        self._room_bytes = file_bytes
        if self._walls.landlock:
            if self._rules >= 0:
                os.close(self._rules)
            self._rules = landlock.create_ruleset(self._walls.library, (namespaces.WORK_DIRECTORY,))
            self._restrict = landlock.prepare_restriction(self._rules)

    def apply(self, channel: int, cpu_seconds: int, memory_bytes: int, file_bytes: int) -> None:
        """Confines this process. Raises OSError or ValueError if a step fails."""
        writing = self._walls.writing
        self._restrict()
        _close_other_descriptors(channel)
        os.chdir(namespaces.WORK_DIRECTORY if writing else "/")
        self._set_limits(cpu_seconds, memory_bytes, file_bytes if writing else 0)
        if self._walls.nobody:
            namespaces.become_nobody()
        for drop in self._drops:
            drop()
        self._install_filter()

    def _set_limits(self, cpu_seconds: int, memory_bytes: int, file_bytes: int) -> None:
        """Sets soft and hard limits, so that the kernel kills at once instead of sending a signal that can be
        handled."""
        for what, bound in zip(LIMITED, (cpu_seconds, memory_bytes, file_bytes, OPEN_FILES, 0, 0, 0), strict=True):
            most = self._most[what]
            least = bound if most == resource.RLIM_INFINITY else min(bound, most)
            resource.setrlimit(what, (least, least))


def _do_nothing() -> None:
    pass


def _prepare_drops() -> list[Callable[[], None]]:
    """No capabilities; nobody of the same user may look into it; it dies with its parent. The last two in this order
    and after becoming another user, which may undo them."""
    last = [prepare_prctl(PR_SET_DUMPABLE, 0), prepare_prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))]
    return last if detect_architecture() is None else [prepare_to_drop_capabilities(), *last]


def _close_other_descriptors(channel: int) -> None:
    """Moves the channel to CHANNEL, where the parent has its socket, and closes all other descriptors."""
    os.dup2(channel, CHANNEL, inheritable=False)
    os.closerange(CHANNEL + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def prepare_to_drop_capabilities() -> Callable[[], None]:
    head = ctypes.create_string_buffer(CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4))
    return prepare_call("capset", head, ctypes.create_string_buffer(24))


def bar_capabilities() -> None:
    """Empties the bounding set: no program that this process or its children start can gain capabilities."""
    for capability in range(CAPABILITIES):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # there are no more, or this process may not, and then has none
            break
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
