"""No program can make its own result ours: whatever it does to itself ends as its fault, never as a lost program."""

import pytest

from app.domain.tasks import ProgramLimits
from app.domain.values import Frozen
from tests.support.jailed import STRENGTHS, Jails, jails
from tests.support.tables import read_table

LIMITS = ProgramLimits(seconds=20, cpu_seconds=1, memory_mb=64, output_bytes=10_000, file_bytes=100_000)


class Tables(Frozen):
    """The tables of own_faults.yaml, which says what each holds."""

    head: str
    at_ticks: str
    deeds: dict[str, dict[str, str]]


TABLES = read_table(__file__, "own_faults.yaml", Tables)
REFUSED = "raised"
ALIVE = "alive"
"""What is returned where a raw call was refused."""
NUMBERS = {"setrlimit": (160, 164), "prlimit64": (302, 261), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138)}
RAW = "number = {0}[os.uname().machine == 'aarch64']\nif libc.syscall(number, {1}) == 0: loop()\nreturn 'alive'"
SOFT = "resource.setrlimit(resource.{}, (0, resource.getrlimit(resource.{})[1]))\nloop()"


def build_raw_call(name: str, arguments: str) -> str:
    return RAW.format(NUMBERS[name], arguments)


DEEDS = {
    **{name: (body, end) for end, bodies in TABLES.deeds.items() for name, body in bodies.items()},
    "soft processor limit": (SOFT.format("RLIMIT_CPU", "RLIMIT_CPU"), REFUSED),
    "memory limit": (SOFT.format("RLIMIT_AS", "RLIMIT_AS"), REFUSED),
    "stack limit": (SOFT.format("RLIMIT_STACK", "RLIMIT_STACK"), REFUSED),
    "SIGKILL to itself": ("os.kill(os.getpid(), signal.SIGKILL)\nloop()", REFUSED),
    "SIGSTOP to itself": ("os.kill(os.getpid(), signal.SIGSTOP)\nloop()", REFUSED),
    "raw setrlimit": (build_raw_call("setrlimit", "0, ctypes.create_string_buffer(16)"), ALIVE),
    "raw prlimit": (build_raw_call("prlimit64", "0, 0, ctypes.create_string_buffer(16), 0"), ALIVE),
    "prlimit with an address whose lower half is zero": (
        "place = libc.mmap(ctypes.c_void_p(1 << 32), 4096, 3, 0x100022, -1, 0)\nassert place == 1 << 32\n"
        + build_raw_call("prlimit64", "0, 0, ctypes.c_void_p(place), 0"),
        ALIVE,
    ),
    "raw tkill": (build_raw_call("tkill", "os.getpid(), 9"), ALIVE),
    "queued signal": (build_raw_call("rt_sigqueueinfo", "os.getpid(), 9, ctypes.create_string_buffer(128)"), ALIVE),
}


def write_program(body: str) -> str:
    return TABLES.head + "def f():\n  " + body.replace("\n", "\n  ")


@pytest.mark.parametrize(("body", "endings"), DEEDS.values(), ids=DEEDS)
def test_what_a_program_does_to_itself_is_its_fault(jailed: Jails, body: str, endings: str) -> None:
    """`said` raises WorkerFailed where the program was lost, which would leave it without a score."""
    assert str(jailed.said(write_program(body), limits=LIMITS)) in endings.split(" or ")


def test_one_that_runs_only_when_the_clock_ticks_was_not_killed_from_outside(jailed: Jails) -> None:
    """It is charged whole ticks and killed at its limit after a fraction of the time."""
    limits = ProgramLimits(seconds=8, idle_seconds=8, cpu_seconds=1)
    assert jailed.said(TABLES.head + TABLES.at_ticks, limits=limits) in ("cpu_seconds", "seconds")


@pytest.mark.parametrize("kinds", [("user",), ("",)])
def test_without_seccomp_one_that_has_itself_killed_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]
) -> None:
    monkeypatch.setitem(STRENGTHS, "no seccomp", (kinds, ("landlock",)))
    with jails("no seccomp") as weaker:
        said = [
            weaker.said(write_program(body), limits=LIMITS) for body, _ in (DEEDS["processor limit"], DEEDS["prlimit"])
        ]
    assert said == ["died", "died"]
