"""seccomp filters: irrevocably restrict the system calls of a process. Standard library only.

A filter is a classic BPF program: it checks the architecture, number and arguments of each call and answers allow, fail
or kill. The filter for untrusted programs is an allow list, the filter for workers is a deny list."""

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.sandbox.syscalls import (
    CHECKED,
    FOREIGN,
    NEEDED,
    TALKING,
    WRITING,
    detect_architecture,
    look_up_numbers,
    prctl,
    prepare_prctl,
)

PR_SET_SECCOMP: Final = 22
PR_SET_NO_NEW_PRIVS: Final = 38
SECCOMP_MODE_FILTER: Final = 2

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
FAIL: Final = 0x00050000
REFUSE: Final = FAIL | errno.EPERM
UNKNOWN: Final = FAIL | errno.ENOSYS
"""The answer of a kernel without the call, so that the C library falls back to an older one."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
X32: Final = 0x40000000
"""Numbers from here on are the x32 table of the same calls."""

CLONE_THREAD: Final = 0x00010000
NEW_CONTENT: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | 0o20000000
"""Without these flags a file is opened only for reading; the last one is O_TMPFILE."""
PLAIN_FCNTL: Final = (0, 1, 2, 3, 4, 1030)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; no locks or leases, by which programs could
communicate."""
PLAIN_IOCTL: Final = (0x5401, 0x541B, 0x5450, 0x5451)
"""TCGETS, by which Python asks whether it writes to a terminal; FIONREAD, FIONCLEX, FIOCLEX."""


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


@dataclass(frozen=True)
class SyscallRule:
    """The answer to one call. With `argument`, `answer` applies if that argument is one of `values` or has one of
    `bits`, else `otherwise`. Only the lower 32 bits are checked; the kernel uses no more of these arguments.
    `otherwise` also applies if the pointer in the argument `null` is not null."""

    answer: int
    argument: int | None = None
    values: tuple[int, ...] = ()
    bits: int = 0
    null: int | None = None
    otherwise: int = REFUSE

    def compile_steps(self) -> list[bytes]:
        if self.argument is None:
            return [_pack_step(ANSWER, self.answer)]
        tests = [_pack_step(EQUAL, value, 0, 1) + _pack_step(ANSWER, self.answer) for value in self.values]
        if self.bits:
            tests.append(_pack_step(ANY_BIT, self.bits, 0, 1) + _pack_step(ANSWER, self.answer))
        choice = [_pack_step(LOAD, ARGUMENTS + 8 * self.argument), *tests, _pack_step(ANSWER, self.otherwise)]
        return [*self._compile_null_tests(), *choice]

    def _compile_null_tests(self) -> list[bytes]:
        """Tests both halves of the pointer: a program can choose an address whose lower half is zero."""
        places = () if self.null is None else (ARGUMENTS + 8 * self.null, ARGUMENTS + 8 * self.null + 4)
        refusal = _pack_step(ANY_BIT, 0xFFFFFFFF, 0, 1) + _pack_step(ANSWER, self.otherwise)
        return [_pack_step(LOAD, place) + refusal for place in places]


def build_program_filter(*, writing: bool) -> bytes:
    """The filter for programs: everything that is not listed fails, such as sockets, processes, threads, signals and
    new resource limits, by which a program could have itself killed. Without `writing`, files can be opened only for
    reading. Raises OSError on other architectures."""
    allowed = {number: SyscallRule(ALLOW) for number in look_up_numbers(NEEDED + (WRITING if writing else "")).values()}
    special = look_up_numbers(CHECKED)
    opening = SyscallRule(ALLOW) if writing else SyscallRule(REFUSE, argument=2, bits=NEW_CONTENT, otherwise=ALLOW)
    allowed[special["openat"]] = opening
    if "open" in special:
        allowed[special["open"]] = (
            opening if writing else SyscallRule(REFUSE, argument=1, bits=NEW_CONTENT, otherwise=ALLOW)
        )
    allowed[special["fcntl"]] = SyscallRule(ALLOW, argument=1, values=PLAIN_FCNTL)
    allowed[special["ioctl"]] = SyscallRule(ALLOW, argument=1, values=PLAIN_IOCTL)
    allowed[special["prlimit64"]] = SyscallRule(ALLOW, argument=0, values=(0,), null=2)  # reading its own
    allowed[special["clone3"]] = SyscallRule(UNKNOWN)
    return _build_filter(allowed, REFUSE)


def build_warden_filter() -> bytes:
    """The filter for wardens: reading, writing and handing over sockets that have no address. Raises OSError on other
    architectures."""
    return _build_filter({number: SyscallRule(ALLOW) for number in look_up_numbers(NEEDED + TALKING).values()}, REFUSE)


def build_worker_filter() -> bytes:
    """The filter for workers: refuses new sockets and processes, exec, access to other processes, and system
    management. Contains the id of the calling process. Raises OSError on other architectures."""
    rules = {number: SyscallRule(REFUSE) for number in look_up_numbers(FOREIGN).values()}
    special = look_up_numbers(CHECKED)
    own = (os.getpid(),)
    rules[special["clone"]] = SyscallRule(ALLOW, argument=0, bits=CLONE_THREAD)
    rules[special["clone3"]] = SyscallRule(UNKNOWN)
    for signalling in ("kill", "tkill", "tgkill"):
        rules[special[signalling]] = SyscallRule(ALLOW, argument=0, values=own)
    rules[special["prlimit64"]] = SyscallRule(ALLOW, argument=0, values=(0, *own))
    return _build_filter(rules, ALLOW)


def install_filter(code: bytes) -> None:
    """Installs a filter for this thread and everything that it starts. Raises OSError if the kernel refuses."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prepare_filter(code)()


def prepare_filter(code: bytes) -> Callable[[], None]:
    """`install_filter`, for a process that may gain no privileges any more."""
    return prepare_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, _FilterProgram(len(code) // 8, code))


def _build_filter(rules: dict[int, SyscallRule], default: int) -> bytes:
    known = detect_architecture()
    assert known is not None  # noqa: S101  # else there were no numbers
    start = [
        _pack_step(LOAD, ARCHITECTURE),
        _pack_step(EQUAL, known, 1, 0),
        _pack_step(ANSWER, KILL),
        _pack_step(LOAD, NUMBER),
        _pack_step(AT_LEAST, X32, 0, 1),
        _pack_step(ANSWER, UNKNOWN),
    ]
    return b"".join([*start, _compile_choice(_list_ranges(rules, SyscallRule(default)))])


def _list_ranges(rules: Mapping[int, SyscallRule], default: SyscallRule) -> list[tuple[int, SyscallRule]]:
    """Where each range of numbers with the same rule begins."""
    edges = sorted({0} | {edge for number in rules for edge in (number, number + 1)})
    begun: list[tuple[int, SyscallRule]] = []
    for edge in edges:
        rule = rules.get(edge, default)
        if not begun or begun[-1][1] != rule:
            begun.append((edge, rule))
    return begun


def _compile_choice(ranges: Sequence[tuple[int, SyscallRule]]) -> bytes:
    """A search by halves: the kernel tries a filter with every number when a process installs it."""
    if len(ranges) == 1:
        return b"".join(ranges[0][1].compile_steps())
    middle = len(ranges) // 2
    lower, upper = _compile_choice(ranges[:middle]), _compile_choice(ranges[middle:])
    return _pack_step(AT_LEAST, ranges[middle][0], len(lower) // 8, 0) + lower + upper


def _pack_step(what: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", what, if_so, if_not, value)
