"""seccomp filters: irrevocably restrict the system calls of a process. Standard library only.

A filter is a classic BPF program: it checks the architecture, number and arguments of each call and answers allow, fail
or kill. The filter for untrusted programs is an allow list, the filter for workers is a deny list."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.sandbox.syscalls import CHECKED, FOREIGN, NEEDED, WRITING, architecture, numbers, prctl

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


@dataclass(frozen=True)
class Rule:
    """The answer to one call. With `argument`, `answer` applies if that argument is one of `values` or has one of
    `bits`, else `otherwise`. Only the lower 32 bits are checked; the kernel uses no more of these arguments."""

    answer: int
    argument: int | None = None
    values: tuple[int, ...] = ()
    bits: int = 0
    otherwise: int = REFUSE

    def code(self) -> list[bytes]:
        if self.argument is None:
            return [_step(ANSWER, self.answer)]
        tests = [_step(EQUAL, value, 0, 1) + _step(ANSWER, self.answer) for value in self.values]
        if self.bits:
            tests.append(_step(ANY_BIT, self.bits, 0, 1) + _step(ANSWER, self.answer))
        return [_step(LOAD, ARGUMENTS + 8 * self.argument), *tests, _step(ANSWER, self.otherwise)]


def for_programs(*, writing: bool) -> bytes:
    """The filter for programs: everything that is not listed fails, such as sockets, processes, threads and signals.
    Without `writing`, files can be opened only for reading. Raises OSError on other architectures."""
    allowed = {number: Rule(ALLOW) for number in numbers(NEEDED + (WRITING if writing else "")).values()}
    special = numbers(CHECKED)
    opening = Rule(ALLOW) if writing else Rule(REFUSE, argument=2, bits=NEW_CONTENT, otherwise=ALLOW)
    allowed[special["openat"]] = opening
    if "open" in special:
        allowed[special["open"]] = opening if writing else Rule(REFUSE, argument=1, bits=NEW_CONTENT, otherwise=ALLOW)
    allowed[special["fcntl"]] = Rule(ALLOW, argument=1, values=PLAIN_FCNTL)
    allowed[special["ioctl"]] = Rule(ALLOW, argument=1, values=PLAIN_IOCTL)
    allowed[special["prlimit64"]] = Rule(ALLOW, argument=0, values=(0,))
    allowed[special["clone3"]] = Rule(UNKNOWN)
    return _filter(allowed, REFUSE)


def for_workers() -> bytes:
    """The filter for workers: refuses new sockets and processes, exec, access to other processes, and system
    management. Contains the id of the calling process. Raises OSError on other architectures."""
    rules = {number: Rule(REFUSE) for number in numbers(FOREIGN).values()}
    special = numbers(CHECKED)
    own = (os.getpid(),)
    rules[special["clone"]] = Rule(ALLOW, argument=0, bits=CLONE_THREAD)
    rules[special["clone3"]] = Rule(UNKNOWN)
    for signalling in ("kill", "tkill", "tgkill"):
        rules[special[signalling]] = Rule(ALLOW, argument=0, values=own)
    rules[special["prlimit64"]] = Rule(ALLOW, argument=0, values=(0, *own))
    return _filter(rules, ALLOW)


def install(code: bytes) -> None:
    """Installs a filter for this thread and everything that it starts. Raises OSError if the kernel refuses."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, Program(len(code) // 8, code))


def _filter(rules: dict[int, Rule], default: int) -> bytes:
    known = architecture()
    assert known is not None  # noqa: S101  # else there were no numbers
    start = [
        _step(LOAD, ARCHITECTURE),
        _step(EQUAL, known, 1, 0),
        _step(ANSWER, KILL),
        _step(LOAD, NUMBER),
        _step(AT_LEAST, X32, 0, 1),
        _step(ANSWER, UNKNOWN),
    ]
    return b"".join([*start, *_looked_up(sorted(rules.items())), _step(ANSWER, default)])


def _looked_up(rules: Iterable[tuple[int, Rule]]) -> Iterable[bytes]:
    for number, rule in rules:
        code = b"".join(rule.code())
        yield _step(EQUAL, number, 0, len(code) // 8) + code


def _step(what: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", what, if_so, if_not, value)
