"""Atropos' trajectory API: this service beside the original's `run-api`, the same requests in the same run.

Groups of 8 x 512 tokens with logprobs. The two take turns, request batch by request batch, so that whatever else the
machine does meets both. The original keeps everything in memory; this service answers when a group is on the disk.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.load import post, send_all
from benchmarks.null_server import doing_nothing
from benchmarks.waiting import watched
from tests.support.atropos import TRAINER, large_group
from tests.support.serving import ROOT, free_port, serving

RUN_API = ROOT / ".cache" / "trainers" / "bin" / "run-api"
"""`make test-trainers` puts it there."""

BATCH_SEQUENCES = 64
ROUNDS = 8
GROUPS_A_ROUND = 256
"""Enough that a round is mostly neither beginning nor end."""
CONNECTIONS = 32
POLLS_A_ROUND = 4
QUEUED = 10_000
"""Groups that are queued for the memory figure; the original takes half a megabyte for each."""


@dataclass
class Side:
    """One of the two: `pid` is the process whose memory and processor time count."""

    url: str
    pid: int
    post_seconds: float = 0.0
    post_cpu: float = 0.0
    posted: int = 0
    poll_seconds: float = 0.0
    polled: int = 0
    longest_wait: float = 0.0
    bytes_a_group: float = 0.0
    drained_wait: float = 0.0
    """The longest wait while the first batch is made of a long queue."""

    @property
    def posts_per_second(self) -> float:
        return self.posted / self.post_seconds

    @property
    def cpu_a_post(self) -> float:
        return self.post_cpu / self.posted

    @property
    def batches_per_second(self) -> float:
        return self.polled / self.poll_seconds


@dataclass(frozen=True)
class Compared:
    ours: Side
    original: Side
    sendable: float
    """Posts a second that the load generator sends to a server which does nothing with them."""


def compare(run_api: Path = RUN_API, queued: int = QUEUED) -> Compared:
    with tempfile.TemporaryDirectory() as folder, _original(run_api) as original:
        port = free_port()
        with serving(Path(folder), python=sys.executable, settings={"ATROPOS_ENVS_ATROPOS_PORT": str(port)}) as gateway:
            ours = Side(f"http://127.0.0.1:{port}", gateway.process.pid)
            for side in (ours, original):
                httpx.post(f"{side.url}/register", json={**TRAINER, "batch_size": BATCH_SEQUENCES})
            _throughput((ours, original))
            for side in (ours, original):
                _queue(side, queued)
                _drain(side)
    return Compared(ours, original, _sendable())


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
            with watched(f"{side.url}/") as longest:
                before = _cpu(side.pid)
                load = send_all(side.url, requests, CONNECTIONS)
                cpu = _cpu(side.pid) - before
                polling = _poll(side)
            if round_ >= 0:  # the first one warms both up
                side.post_seconds += load.seconds
                side.post_cpu += cpu
                side.posted += len(requests)
                side.poll_seconds += polling
                side.polled += POLLS_A_ROUND
                side.longest_wait = max(side.longest_wait, longest())


def _sendable() -> float:
    requests = [post("/scored_data", large_group(n)) for n in range(GROUPS_A_ROUND)] * ROUNDS
    with doing_nothing() as url:
        send_all(url, requests, CONNECTIONS)
        return len(requests) / send_all(url, requests, CONNECTIONS).seconds


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


def _queue(side: Side, count: int) -> None:
    """Groups that differ in one token."""
    likes = [post("/scored_data", large_group(1_000_000 + n, first=100_000)) for n in range(100)]
    before = _resident(side.pid)
    for start in range(0, count, len(likes)):
        token = str(100_001 + start // len(likes)).encode()
        send_all(side.url, [like.replace(b"100000", token, 1) for like in likes[: count - start]], CONNECTIONS)
    side.bytes_a_group = max(0, _resident(side.pid) - before) / count


def _drain(side: Side) -> None:
    with watched(f"{side.url}/status") as longest, httpx.Client(timeout=300) as client:
        client.get(f"{side.url}/batch").raise_for_status()
    side.drained_wait = longest()


def _family(pid: int) -> list[int]:
    """The process and those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return [pid, *(one for child in children for one in _family(int(child)))]


def _cpu(pid: int) -> float:
    """Seconds, of its family too."""
    told = [Path(f"/proc/{one}/stat").read_text(encoding="utf-8").rpartition(")")[2].split() for one in _family(pid)]
    return sum(int(one[11]) + int(one[12]) for one in told) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    """Bytes, of its family too."""
    told = [Path(f"/proc/{one}/status").read_text(encoding="utf-8") for one in _family(pid)]
    lines = [next(line for line in status.splitlines() if line.startswith("VmRSS:")) for status in told]
    return sum(int(line.split()[1]) for line in lines) * 1024


def report(run_api: Path = RUN_API) -> None:
    if not run_api.exists():
        print("Atropos' trajectory API: not compared, since run-api is not installed (make test-trainers does it)")
        return
    found = compare(run_api)
    ours, original = found.ours, found.original
    print(f"groups of 8 x 512 tokens with logprobs, {len(json.dumps(large_group(0)))} bytes each; ours / run-api")
    _row("POST /scored_data, groups/s", ours.posts_per_second, original.posts_per_second, "at least 2 is wanted")
    _row("CPU of a post, ms", ours.cpu_a_post * 1e3, original.cpu_a_post * 1e3)
    _row(
        f"GET /batch of {BATCH_SEQUENCES}, a second", ours.batches_per_second, original.batches_per_second, "at least 3"
    )
    _row(f"memory, kB a group, {QUEUED} queued", ours.bytes_a_group / 1e3, original.bytes_a_group / 1e3, "at most 0.1")
    _row("longest wait for GET /, ms", ours.longest_wait * 1e3, original.longest_wait * 1e3, "ours at most 100 ms")
    _row(f"for /status, batch of {QUEUED}, ms", ours.drained_wait * 1e3, original.drained_wait * 1e3)
    print(f"  the load generator sends {found.sendable:.0f} a second to a server that does nothing with them")


def _row(what: str, ours: float, original: float, wanted: str = "") -> None:
    print(f"  {what:38}{ours:9.1f} / {original:<9.1f}ratio {ours / original:6.3f}   {wanted}")


if __name__ == "__main__":
    report(Path(sys.argv[1]) if len(sys.argv) > 1 else RUN_API)
