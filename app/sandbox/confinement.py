"""Irrevocable confinement of a process before it loads a program. Standard library only."""

import ctypes
import os
import resource
import signal
import sys
from dataclasses import dataclass
from typing import Final

from app.sandbox import landlock, namespaces, seccomp
from app.sandbox.syscalls import call_kernel, detect_architecture, prctl

CHANNEL: Final = 3
"""The only open descriptor besides the standard ones, which are /dev/null."""
OPEN_FILES: Final = 64
MEBIBYTE: Final = 1024 * 1024
CAPABILITIES: Final = 64
"""More than any kernel has."""
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 1, 4, 24, 47, 4
CAPABILITY_VERSION: Final = 0x20080522


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


def confine(walls: ConfinementPlan, channel: int, cpu_seconds: int, memory_bytes: int, file_bytes: int) -> None:
    """Confines this process. Raises OSError or ValueError if a step fails."""
    rules = _close_other_descriptors(channel, walls.rules)
    os.chdir(namespaces.WORK_DIRECTORY if walls.writing else "/")
    _set_limits(cpu_seconds, memory_bytes, file_bytes if walls.writing else 0)
    if walls.nobody:
        namespaces.become_nobody()
    if walls.landlock and walls.writing:
        rules = landlock.create_ruleset(walls.library, (namespaces.WORK_DIRECTORY,))
    if sys.platform == "linux":
        _drop_capabilities()
        prctl(PR_SET_DUMPABLE, 0)  # anew: becoming another user may set it
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if walls.landlock:
        landlock.restrict(rules)
        os.close(rules)
    if walls.seccomp:
        seccomp.install_filter(walls.seccomp)


def _close_other_descriptors(channel: int, rules: int) -> int:
    """Moves the channel to CHANNEL, closes all other descriptors except the ruleset, and returns the ruleset's new
    number."""
    os.dup2(channel, CHANNEL, inheritable=False)
    last = CHANNEL
    if rules >= 0:
        last = CHANNEL + 1
        os.dup2(rules, last, inheritable=False)
    os.closerange(last + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    return last if rules >= 0 else -1


def bar_capabilities() -> None:
    """Empties the bounding set: no program that this process or its children start can gain capabilities."""
    for capability in range(CAPABILITIES):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # there are no more, or this process may not, and then has none
            break
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)


def _drop_capabilities() -> None:
    """Drops all current capabilities."""
    if detect_architecture() is None:
        return
    head = CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4)
    call_kernel("capset", ctypes.create_string_buffer(head), ctypes.create_string_buffer(24))


def _set_limits(cpu_seconds: int, memory_bytes: int, file_bytes: int) -> None:
    """Sets soft and hard limits, so that the kernel kills at once instead of sending a signal that can be handled."""
    bounds = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    for what, bound in bounds.items():
        hard = resource.getrlimit(what)[1]
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(what, (bound, bound))
