"""Filters of system calls, read as the kernel reads them, for both architectures."""

import errno
import os
import platform
import struct
from typing import Final

import pytest

from app.sandbox import confinement
from app.sandbox.confinement import CHECKED, FOREIGN, NEEDED, TALKING, WRITING, detect_architecture, look_up_numbers

ALLOWED, REFUSED, UNKNOWN, KILLED = "allowed", "refused", "unknown", "killed"
ANSWERS: Final = {
    confinement.ALLOW: ALLOWED,
    confinement.FAIL | errno.EPERM: REFUSED,
    confinement.FAIL | errno.ENOSYS: UNKNOWN,
    confinement.KILL: KILLED,
}


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(platform, "machine", lambda: request.param)
    monkeypatch.setattr("sys.platform", "linux")
    return str(request.param)


def answer(code: bytes, number: int, *arguments: int, arch: int | None = None) -> str:
    """Of a machine that knows the five instructions that filters are made of."""
    words = [number, detect_architecture() if arch is None else arch, 0, 0]
    words += [half for value in arguments + (0,) * 6 for half in (value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF)]
    steps = [*struct.iter_unpack("=HBBI", code)]
    place = register = 0
    while True:
        what, if_so, if_not, value = steps[place]
        place += 1
        if what == confinement.ANSWER:
            return ANSWERS[value]
        if what == confinement.LOAD:
            register = words[value // 4] or 0
            continue
        tests = {
            confinement.EQUAL: register == value,
            confinement.AT_LEAST: register >= value,
            confinement.ANY_BIT: bool(register & value),
        }
        place += if_so if tests[what] else if_not


def answers(code: bytes, table: str) -> set[str]:
    return {answer(code, number) for number in look_up_numbers(table).values()}


def test_a_program_may_do_what_is_listed_and_nothing_else(machine: str) -> None:
    code = confinement.build_program_filter(writing=True)
    listed = set(look_up_numbers(NEEDED + WRITING + CHECKED).values())
    others = {answer(code, number) for number in range(1000) if number not in listed}
    assert (answers(code, NEEDED), answers(code, WRITING), answers(code, FOREIGN), others) == (
        {ALLOWED},
        {ALLOWED},
        {REFUSED},
        {REFUSED},
    )


def test_a_worker_may_do_all_but_what_is_listed(machine: str) -> None:
    code = confinement.build_worker_filter()
    listed = set(look_up_numbers(FOREIGN + CHECKED).values())
    others = {answer(code, number) for number in range(1000) if number not in listed}
    assert (answers(code, FOREIGN), others) == ({REFUSED}, {ALLOWED})


def test_a_warden_may_read_write_and_hand_over_sockets(machine: str) -> None:
    code = confinement.build_warden_filter()
    listed = set(look_up_numbers(NEEDED + TALKING).values())
    others = {answer(code, number) for number in range(1000) if number not in listed}
    assert (answers(code, NEEDED + TALKING), others) == ({ALLOWED}, {REFUSED})


OWN: Final = os.getpid()
READ, WRITE = os.O_RDONLY | os.O_CLOEXEC, os.O_WRONLY
CASES: list[tuple[str, tuple[int, ...], tuple[str, str, str]]] = [
    # the call and its arguments; what a program gets that may write, one that may not, and a worker
    ("openat", (-100, 0, READ), (ALLOWED, ALLOWED, ALLOWED)),
    ("openat", (-100, 0, WRITE), (ALLOWED, REFUSED, ALLOWED)),
    ("openat", (-100, 0, READ | os.O_TRUNC), (ALLOWED, REFUSED, ALLOWED)),
    ("openat", (-100, 0, READ | os.O_CREAT), (ALLOWED, REFUSED, ALLOWED)),
    ("fcntl", (3, 3), (ALLOWED, ALLOWED, ALLOWED)),
    ("fcntl", (3, 6), (REFUSED, REFUSED, ALLOWED)),
    ("ioctl", (1, 0x5401), (ALLOWED, ALLOWED, ALLOWED)),
    ("ioctl", (1, 0x5412), (REFUSED, REFUSED, ALLOWED)),
    ("prlimit64", (0, 7), (ALLOWED, ALLOWED, ALLOWED)),
    ("prlimit64", (0, 7, 0x1000), (REFUSED, REFUSED, ALLOWED)),
    ("prlimit64", (0, 7, 1 << 32), (REFUSED, REFUSED, ALLOWED)),
    ("prlimit64", (1, 7), (REFUSED, REFUSED, REFUSED)),
    ("clone", (17,), (REFUSED, REFUSED, REFUSED)),
    ("clone", (confinement.CLONE_THREAD | 0xF00,), (REFUSED, REFUSED, ALLOWED)),
    ("clone3", (), (UNKNOWN, UNKNOWN, UNKNOWN)),
    ("kill", (OWN, 9), (REFUSED, REFUSED, ALLOWED)),
    ("kill", (1, 9), (REFUSED, REFUSED, REFUSED)),
    ("kill", (-1, 9), (REFUSED, REFUSED, REFUSED)),
    ("tgkill", (OWN, OWN, 6), (REFUSED, REFUSED, ALLOWED)),
    ("tgkill", (1, OWN, 6), (REFUSED, REFUSED, REFUSED)),
]


def test_some_calls_are_judged_by_their_arguments(machine: str) -> None:
    codes = (
        confinement.build_program_filter(writing=True),
        confinement.build_program_filter(writing=False),
        confinement.build_worker_filter(),
    )
    special = look_up_numbers(CHECKED)
    seen = [
        (name, arguments, tuple(answer(code, special[name], *arguments) for code in codes))
        for name, arguments, _ in CASES
    ]
    assert seen == CASES


def test_calls_by_another_table_are_refused(machine: str) -> None:
    """32-bit calls, whose numbers mean others, and those of x32."""
    code = confinement.build_worker_filter()
    other = answer(code, 1, arch=0x40000003)
    assert (other, answer(code, confinement.X32 | 59)) == (KILLED, UNKNOWN)


@pytest.mark.parametrize(("system", "known"), [("darwin", "x86_64"), ("linux", "riscv64")])
def test_where_the_numbers_do_not_hold_there_is_no_filter(
    monkeypatch: pytest.MonkeyPatch, system: str, known: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: known)
    monkeypatch.setattr("sys.platform", system)
    with pytest.raises(OSError, match="no system call numbers"):
        confinement.build_program_filter(writing=True)
