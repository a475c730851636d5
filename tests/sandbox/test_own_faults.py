"""No program can make its own result ours: whatever it does to itself ends as its fault, never as a lost program."""

from collections.abc import Iterator

import pytest

from app.domain.tasks import ProgramLimits
from tests.support.jailed import GUARDS, STRENGTHS, Jails, jails

LIMITS = ProgramLimits(seconds=20, cpu_seconds=1, memory_mb=64, output_bytes=10_000, file_bytes=100_000)


@pytest.fixture(scope="module", params=GUARDS)
def jailed(request: pytest.FixtureRequest) -> Iterator[Jails]:
    with jails(request.param) as made:
        yield made


HEAD = """
import ctypes, mmap, os, resource, select, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def loop():
    while True: pass
def execute(code):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
def nest(times):
    held = []
    for _ in range(times): held = [held]
    return held
def recurse(): return recurse()
CALLED_BACK = ctypes.CFUNCTYPE(None)(lambda: CALLED_BACK())
"""
REFUSED = "raised"
ALIVE = "alive"
"""What is returned where a raw call was refused."""
NUMBERS = {"setrlimit": (160, 164), "prlimit64": (302, 261), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138)}
RAW = "number = {0}[os.uname().machine == 'aarch64']\nif libc.syscall(number, {1}) == 0: loop()\nreturn 'alive'"
SOFT = "resource.setrlimit(resource.{}, (0, resource.getrlimit(resource.{})[1]))\nloop()"


def build_raw_call(name: str, arguments: str) -> str:
    return RAW.format(NUMBERS[name], arguments)


DEEDS: list[tuple[str, str, str]] = [
    ("processor limit", "resource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nloop()", REFUSED),
    ("soft processor limit", SOFT.format("RLIMIT_CPU", "RLIMIT_CPU"), REFUSED),
    ("prlimit", "resource.prlimit(0, resource.RLIMIT_CPU, (0, 0))\nloop()", REFUSED),
    ("raw setrlimit", build_raw_call("setrlimit", "0, ctypes.create_string_buffer(16)"), ALIVE),
    ("raw prlimit", build_raw_call("prlimit64", "0, 0, ctypes.create_string_buffer(16), 0"), ALIVE),
    (
        "prlimit with an address whose lower half is zero",
        "place = libc.mmap(ctypes.c_void_p(1 << 32), 4096, 3, 0x100022, -1, 0)\nassert place == 1 << 32\n"
        + build_raw_call("prlimit64", "0, 0, ctypes.c_void_p(place), 0"),
        ALIVE,
    ),
    ("memory limit", SOFT.format("RLIMIT_AS", "RLIMIT_AS"), REFUSED),
    ("stack limit", SOFT.format("RLIMIT_STACK", "RLIMIT_STACK"), REFUSED),
    ("limits can be read", "return resource.getrlimit(resource.RLIMIT_CPU)[0]", "1"),
    *(
        (f"{name} to itself", f"os.kill(os.getpid(), signal.{name})\nloop()", REFUSED)
        for name in ("SIGKILL", "SIGSTOP")
    ),
    ("SIGKILL to its group", "os.killpg(0, signal.SIGKILL)\nloop()", REFUSED),
    ("SIGXCPU raised", "signal.raise_signal(signal.SIGXCPU)\nloop()", REFUSED),
    ("SIGKILL to its thread", "signal.pthread_kill(threading.get_ident(), signal.SIGKILL)\nloop()", REFUSED),
    ("raw tkill", build_raw_call("tkill", "os.getpid(), 9"), ALIVE),
    ("queued signal", build_raw_call("rt_sigqueueinfo", "os.getpid(), 9, ctypes.create_string_buffer(128)"), ALIVE),
    ("timer", "if libc.timer_create(1, None, ctypes.byref(ctypes.c_int())) == 0: loop()\nreturn 'alive'", ALIVE),
    ("timers of signals", "signal.alarm(1)\nsignal.setitimer(signal.ITIMER_PROF, 0.01)\nloop()", "cpu_seconds or died"),
    ("strict seccomp", "if libc.prctl(22, 1, 0) == 0: os.getpid()\nreturn 'alive'", ALIVE),
    ("abort", "os.abort()", "died"),
    ("null pointer", "ctypes.string_at(0)", "died"),
    ("illegal instruction", "execute(bytes(4096) if os.uname().machine == 'aarch64' else bytes([15, 11]))", "died"),
    ("32-bit call", "execute(bytes.fromhex('b801000000cd80c3'))", "died"),
    ("memory", "held = []\nwhile True: held.append(bytearray(1 << 20))", "memory_mb"),
    ("memory of C", "while libc.malloc(1 << 20): pass\nlibc.abort()", "died"),
    ("size of a file", "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nopen('x', 'wb').write(bytes(1 << 20))", REFUSED),
    ("result channel closed", "os.close(3)\nloop()", "cpu_seconds"),
    ("every descriptor closed", "os.closerange(0, 64)", "died"),
    ("result channel replaced", "os.dup2(0, 3)\nreturn 'right'", "died"),
    ("result channel written to", "os.write(3, bytes(99))\nos._exit(0)", "died"),
    ("processes", "while True: os.fork()", REFUSED),
    ("threads", "while True: threading.Thread(target=loop).start()", REFUSED),
    ("deep recursion", "sys.setrecursionlimit(10**9)\nrecurse()", "raised or died or memory_mb or cpu_seconds"),
    ("deep recursion through C", "sys.setrecursionlimit(10**9)\nCALLED_BACK()", "died"),
    ("deep repr", "sys.setrecursionlimit(10**9)\nrepr(nest(10**6))", "raised or died or memory_mb or cpu_seconds"),
    ("deep result", "return nest(10**5)", "no_json"),
    ("exit", "sys.exit(0)", REFUSED),
    ("exit at once", "os._exit(0)", "died"),
    ("the status of one that was killed", "os._exit(137)", "died"),
    ("raw exit", "libc._exit(9)", "died"),
    ("exec", "os.execv('/bin/true', ['true'])", REFUSED),
    ("endless output", "while True: os.write(3, bytes(65536))", "died"),
    ("large result", "return 'x' * 10**6", "output_bytes"),
]


def write_program(body: str) -> str:
    return HEAD + "def f():\n  " + body.replace("\n", "\n  ")


@pytest.mark.parametrize(("body", "endings"), [deed[1:] for deed in DEEDS], ids=[deed[0] for deed in DEEDS])
def test_what_a_program_does_to_itself_is_its_fault(jailed: Jails, body: str, endings: str) -> None:
    """`said` raises WorkerFailed where the program was lost, which would leave it without a score."""
    assert str(jailed.said(write_program(body), limits=LIMITS)) in endings.split(" or ")


AT_TICKS = """
def read_ticks(): return time.clock_gettime(-8)
def run_at(phase, times):
    for _ in range(times):
        time.sleep(0.004 - (time.monotonic() - phase) % 0.004)
        until = time.perf_counter() + 0.0002
        while time.perf_counter() < until: pass
def f():
    def count(phase):
        before = read_ticks()
        run_at(phase, 10)
        return read_ticks() - before
    while True:
        phase = max([step * 0.0001 for step in range(40)], key=count)
        run_at(phase, 300)
"""


def test_one_that_runs_only_when_the_clock_ticks_was_not_killed_from_outside(jailed: Jails) -> None:
    """It is charged whole ticks and killed at its limit after a fraction of the time."""
    limits = ProgramLimits(seconds=8, idle_seconds=8, cpu_seconds=1)
    assert jailed.said(HEAD + AT_TICKS, limits=limits) in ("cpu_seconds", "seconds")


@pytest.mark.parametrize("kinds", [("user",), ("",)])
def test_without_seccomp_one_that_has_itself_killed_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]
) -> None:
    monkeypatch.setitem(STRENGTHS, "no seccomp", (kinds, ("landlock",)))
    with jails("no seccomp") as weaker:
        said = [weaker.said(write_program(body), limits=LIMITS) for _, body, _ in (DEEDS[0], DEEDS[2])]
    assert said == ["died", "died"]
