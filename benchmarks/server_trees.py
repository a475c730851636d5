"""Servers in processes of their own: started, waited for, and what their whole family takes."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx

START_SECONDS = 90.0


@contextlib.contextmanager
def serving_command(
    command: Sequence[str | Path],
    url: str,
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """The process id of a server that answers at `url`, with whatever status. RuntimeError if it never does."""
    environment = None if variables is None else {"PATH": os.environ["PATH"], **variables}
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(url, process)
        yield process.pid
    finally:
        for pid in reversed(list_family(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(url, timeout=30)
            return
        time.sleep(0.1)
    raise RuntimeError(f"nothing answers at {url}")


def list_family(pid: int) -> list[int]:
    """The process and those that it started."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = [child for one in threads for child in one.read_text(encoding="utf-8").split()]
    return [pid, *(one for child in children for one in list_family(int(child)))]


def read_processor_seconds(pid: int) -> float:
    """Of its family, to the nanosecond."""
    return sum(time.clock_gettime(_find_clock(one)) for one in list_family(pid))


def _find_clock(pid: int) -> int:
    """The processor time clock of another process, as glibc's clock_getcpuclockid finds it on Linux."""
    return (~pid << 3) | 2


def read_resident_bytes(pid: int) -> int:
    """Of its family too."""
    told = [Path(f"/proc/{one}/status").read_text(encoding="utf-8") for one in list_family(pid)]
    lines = [next(line for line in status.splitlines() if line.startswith("VmRSS:")) for status in told]
    return sum(int(line.split()[1]) for line in lines) * 1024
