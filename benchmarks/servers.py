"""Servers in processes of their own, and what their whole family takes.

`python -m benchmarks.servers PORT` is a bare FastAPI route that takes a JSON object and returns it: what is left of a
route without its work, under uvicorn with the settings of this service.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from app.cli.serve import tune_garbage_collection
from benchmarks.load import Load, send_all
from tests.support.serving import Served, free_port, serving

START_SECONDS = 90.0
ECHO_PATH = "/echo"

app = FastAPI()


@app.post(ECHO_PATH)
async def echo(body: dict[str, Any]) -> dict[str, Any]:
    return body


@contextlib.contextmanager
def serving_echo() -> Iterator[tuple[str, int]]:
    """Its URL, and the id of its process."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    with serving_command([sys.executable, "-m", "benchmarks.servers", str(port)], url) as pid:
        yield url, pid


@contextlib.contextmanager
def serving_gateway(settings: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Under an interpreter and with a store of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), settings=settings, python=sys.executable) as gateway,
    ):
        yield gateway


@contextlib.contextmanager
def serving_command(
    command: Sequence[str | Path], url: str, folder: Path | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[int]:
    """The process id of a server that answers at `url`, with whatever status. RuntimeError if it never does."""
    environment = None if variables is None else {"PATH": os.environ["PATH"], **variables}
    hushed = subprocess.DEVNULL
    process = subprocess.Popen([*map(str, command)], cwd=folder, env=environment, stdout=hushed, stderr=hushed)
    try:
        end = time.monotonic() + START_SECONDS
        while not _answers(url):
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError(f"nothing answers at {url}")
            time.sleep(0.1)
        yield process.pid
    finally:
        for pid in reversed(list_family(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, timeout=30).status_code > 0
    return False


def list_family(pid: int) -> list[int]:
    """The process and those that it started."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = [child for one in threads for child in one.read_text(encoding="utf-8").split()]
    return [pid, *(one for child in children for one in list_family(int(child)))]


def read_processor_seconds(pid: int) -> float:
    """Of its family, to the nanosecond, by the clocks that glibc's clock_getcpuclockid finds on Linux."""
    return sum(time.clock_gettime((~one << 3) | 2) for one in list_family(pid))


def send_measured(
    url: str, pid: int, requests: Sequence[bytes], connections: int, pause: float = 0.0
) -> tuple[Load, float]:
    """As `send_all`, with the processor seconds that the process took meanwhile."""
    before = read_processor_seconds(pid)
    load = send_all(url, requests, connections, pause)
    return load, read_processor_seconds(pid) - before


def read_resident_bytes(pid: int) -> int:
    """Of its family too."""
    return round(sum(read_megabytes(one)["VmRSS"] for one in list_family(pid)) * 1024 * 1024)


def read_megabytes(pid: int, told: str = "status") -> dict[str, float]:
    """What that file of the process itself, without its family, says in kilobytes."""
    lines = Path(f"/proc/{pid}/{told}").read_text(encoding="utf-8").splitlines()
    parts = (line.split() for line in lines if line.endswith(" kB"))
    return {name.removesuffix(":"): int(size) / 1024 for name, size, _ in parts}


if __name__ == "__main__":
    tune_garbage_collection()
    uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False, server_header=False)
