"""Which system calls a process may still make, for good. Standard library only.

A filter is a program for the kernel's classic BPF machine: it looks at architecture, number and arguments of each call
and answers allow, fail or kill. There is one for programs of strangers, which may do what is listed, and one for
workers, which may do all but what is listed.
"""

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
"""What a kernel answers that has no such call: the C library then takes an older one."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
X32: Final = 0x40000000
"""From here on numbers mean the same calls by another table."""

CLONE_THREAD: Final = 0x00010000
NEW_CONTENT: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | 0o20000000
"""Whoever opens with none of these can only read; the last one is O_TMPFILE."""
PLAIN_FCNTL: Final = (0, 1, 2, 3, 4, 1030)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC: no locks and leases, by which two could speak."""
PLAIN_IOCTL: Final = (0x5401, 0x541B, 0x5450, 0x5451)
"""TCGETS, by which Python asks whether it writes to a terminal; FIONREAD, FIONCLEX, FIOCLEX."""


@dataclass(frozen=True)
class Rule:
    """What is answered to one call. With `argument` only where that argument is one of `values`, or has one of `bits`;
    else `otherwise`. Only its lower half is looked at: all that are checked here are of 32 bits for the kernel."""

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
    """All that is not listed fails: no sockets, processes, threads, signals to anybody. Without `writing` nothing can
    be opened but to read. OSError on another architecture."""
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
    """All but new sockets and processes, other programs, other processes and the kernel's own affairs. For the process
    that asks: its own id is in it. OSError on another architecture."""
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
    """For this thread and all that it starts, until it ends. OSError where the kernel refuses."""

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
