"""Atropos' trajectory API: this service beside the original's `run-api`, the same requests in the same run.

Groups of 8 x 512 tokens with logprobs. The two take turns, request batch by request batch, so that whatever else the
machine does meets both. The original keeps everything in memory; this service answers when a group is on the disk.
"""

import contextlib
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.load import post, send_all
from tests.atropos import TRAINER, large_group
from tests.serving import ROOT, free_port, serving

RUN_API = ROOT / ".cache" / "trainers" / "bin" / "run-api"
"""`make test-trainers` puts it there."""

BATCH_SEQUENCES = 64
ROUNDS = 8
GROUPS_A_ROUND = 64
CONNECTIONS = 32
POLLS_A_ROUND = 4
QUEUED = 2_000
"""Groups that are queued for the memory figure; what 10,000 take is a multiple of it."""


@dataclass
class Side:
    """One of the two: `pid` is the process whose memory counts."""

    url: str
    pid: int
    post_seconds: float = 0.0
    posted: int = 0
    poll_seconds: float = 0.0
    polled: int = 0
    stalls: list[float] = field(default_factory=list)
    bytes_a_group: float = 0.0

    @property
    def posts_per_second(self) -> float:
        return self.posted / self.post_seconds

    @property
    def batches_per_second(self) -> float:
        return self.polled / self.poll_seconds


@dataclass(frozen=True)
class Compared:
    ours: Side
    original: Side

    @property
    def post_ratio(self) -> float:
        return self.ours.posts_per_second / self.original.posts_per_second

    @property
    def batch_ratio(self) -> float:
        return self.ours.batches_per_second / self.original.batches_per_second

    @property
    def memory_ratio(self) -> float:
        return self.ours.bytes_a_group / self.original.bytes_a_group


def compare(run_api: Path = RUN_API) -> Compared:
    with tempfile.TemporaryDirectory() as folder, _original(run_api) as original:
        port = free_port()
        with serving(Path(folder), settings={"ATROPOS_ENVS_ATROPOS_PORT": str(port)}) as gateway:
            ours = Side(f"http://127.0.0.1:{port}", gateway.process.pid)
            for side in (ours, original):
                httpx.post(f"{side.url}/register", json={**TRAINER, "batch_size": BATCH_SEQUENCES})
            _throughput((ours, original))
            for side in (ours, original):
                _memory(side)
    return Compared(ours, original)


@contextlib.contextmanager
def _original(run_api: Path) -> Iterator[Side]:
    port = free_port()
    command = [str(run_api), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    side = Side(f"http://127.0.0.1:{port}", process.pid)
    try:
        _wait(side.url)
        yield side
    finally:
        process.kill()
        process.wait()


def _wait(url: str) -> None:
    for _ in range(600):
        with contextlib.suppress(httpx.TransportError):
            httpx.get(url)
            return
        time.sleep(0.1)
    raise RuntimeError("run-api did not start")


def _throughput(sides: tuple[Side, ...]) -> None:
    for round_ in range(-1, ROUNDS):
        first = (round_ + 1) * GROUPS_A_ROUND
        requests = [post("/scored_data", large_group(first + n)) for n in range(GROUPS_A_ROUND)]
        for side in sides:
            with _watched(side):
                load = send_all(side.url, requests, CONNECTIONS)
                polling = _poll(side)
            if round_ >= 0:  # the first one warms both up
                side.post_seconds += load.seconds
                side.posted += len(requests)
                side.poll_seconds += polling
                side.polled += POLLS_A_ROUND


def _poll(side: Side) -> float:
    """Seconds for as many batches, as aiohttp and requests ask for them: gzip is welcome."""
    with httpx.Client(base_url=side.url, timeout=60) as client:
        client.get("/info")
        began = time.perf_counter()
        for _ in range(POLLS_A_ROUND):
            reply = client.get("/batch", headers={"Accept-Encoding": "gzip, deflate"})
            if len(reply.content) < BATCH_SEQUENCES * 512:
                raise RuntimeError(f"no batch: {reply.text[:200]}")
        return time.perf_counter() - began


@contextlib.contextmanager
def _watched(side: Side) -> Iterator[None]:
    """How long the smallest question takes meanwhile: its event loop was not there for as long."""
    ended = threading.Event()

    def watch() -> None:
        with httpx.Client(base_url=side.url, timeout=60) as client:
            while not ended.is_set():
                began = time.perf_counter()
                client.get("/")
                side.stalls.append(time.perf_counter() - began)
                time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _memory(side: Side) -> None:
    before = _resident(side.pid)
    for first in range(0, QUEUED, 100):
        groups = [post("/scored_data", large_group(1_000_000 + first + n)) for n in range(100)]
        send_all(side.url, groups, CONNECTIONS)
    side.bytes_a_group = max(0, _resident(side.pid) - before) / QUEUED
    gc.collect()


def _resident(pid: int) -> int:
    """Bytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def report(run_api: Path = RUN_API) -> None:
    if not run_api.exists():
        print("Atropos' trajectory API: not compared, since run-api is not installed (make test-trainers does it)")
        return
    found = compare(run_api)
    ours, original = found.ours, found.original
    print(f"groups of 8 x 512 tokens with logprobs, {len(json.dumps(large_group(0)))} bytes each; ours / run-api")
    print(
        f"  POST /scored_data, groups/s   {ours.posts_per_second:8.0f} / {original.posts_per_second:.0f}"
        f"   ratio {found.post_ratio:.2f}   (at least 2 is wanted)"
    )
    print(
        f"  GET /batch of {BATCH_SEQUENCES}, a second{ours.batches_per_second:8.1f} / {original.batches_per_second:.1f}"
        f"   ratio {found.batch_ratio:.2f}   (at least 3 is wanted)"
    )
    print(
        f"  memory of a queued group, kB  {ours.bytes_a_group / 1e3:8.1f} / {original.bytes_a_group / 1e3:.1f}"
        f"   ratio {found.memory_ratio:.3f}   (at most 0.1 is wanted)"
    )
    print(
        f"  longest wait for GET /, ms    {max(ours.stalls) * 1e3:8.0f} / {max(original.stalls) * 1e3:.0f}"
        "   (at most 100 is wanted)"
    )


if __name__ == "__main__":
    report(Path(sys.argv[1]) if len(sys.argv) > 1 else RUN_API)
