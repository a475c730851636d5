"""Atropos' trajectory API: this service beside the original's `run-api`, the same requests in the same run."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx

from benchmarks.load import post, send_all
from benchmarks.results import BenchmarkFigure, count_rounds, run
from benchmarks.servers import read_resident_bytes, send_measured, serving_command, serving_gateway
from tests.support.atropos import TRAINER, large_group
from tests.support.serving import ROOT, free_port

RUN_API = ROOT / ".cache" / "trainers" / "bin" / "run-api"
"""`make bench-peers` puts it there."""

BATCH_SEQUENCES = 64
ROUNDS = 5
GROUPS_A_ROUND = 256
"""Enough that a round is mostly neither beginning nor end."""
CONNECTIONS = 32
POLLS_A_ROUND = 4
ASK = """
import sys, threading, time, httpx
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
longest = 0.0
with httpx.Client(timeout=300) as client:
    client.get(sys.argv[1])
    print("asking", flush=True)
    while not over.is_set():
        began = time.perf_counter()
        client.get(sys.argv[1])
        longest = max(longest, time.perf_counter() - began)
        time.sleep(0.005)
print(longest)
"""
"""Asks until its input ends, and tells the longest wait. In a process of its own no wait is the load generator's."""
QUEUED = 500
"""Groups that are queued for the memory figure; the original takes half a megabyte for each."""


@dataclass
class Side:
    """One of the two: `pid` is the process whose memory and processor time count, with those that it started."""

    url: str
    pid: int
    rounds: list[tuple[float, float, float, float]] = field(default_factory=list)
    """Posts a second, milliseconds of processor time of a post, batches a second, the longest wait in seconds."""
    bytes_a_group: float = 0.0
    drained_wait: float = 0.0
    """The longest wait while the first batch is made of a long queue."""

    def list_rounds(self, place: int) -> list[float]:
        return [one[place] for one in self.rounds]


def compare() -> tuple[Side, Side]:
    """Ours, and the original."""
    original_url = f"http://127.0.0.1:{(original_port := free_port())}"
    command = [str(RUN_API), "--host", "127.0.0.1", "--port", str(original_port)]
    settings = {"ATROPOS_ENVS_ATROPOS_PORT": str(port := free_port())}
    with serving_command(command, original_url) as original_pid, serving_gateway(settings) as gateway:
        ours = Side(f"http://127.0.0.1:{port}", gateway.process.pid)
        original = Side(original_url, original_pid)
        for side in (ours, original):
            httpx.post(f"{side.url}/register", json={**TRAINER, "batch_size": BATCH_SEQUENCES})
        _throughput((ours, original))
        for side in (ours, original):
            _queue(side)
            _drain(side)
    return ours, original


def _throughput(sides: tuple[Side, ...]) -> None:
    likes = _build_likes(GROUPS_A_ROUND)
    for number in count_rounds("Atropos' API", ROUNDS + 1):
        requests = _differ_from(likes, number)
        for side in sides:
            with _watching(f"{side.url}/") as longest:
                load, used = send_measured(side.url, side.pid, requests, CONNECTIONS)
                polling = _poll(side)
            if number:  # the first one warms both up
                rates = len(requests) / load.seconds, used / len(requests) * 1e3, POLLS_A_ROUND / polling
                side.rounds.append((*rates, longest()))


@contextlib.contextmanager
def _watching(url: str) -> Iterator[Callable[[], float]]:
    """Gives, once it is left, the longest wait in seconds."""
    command = [sys.executable, "-c", ASK, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()  # it has asked for the first time
    longest: list[float] = []
    try:
        yield lambda: longest[0]
    finally:
        told, _ = process.communicate()
        longest.append(float(told or "nan"))


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


def _queue(side: Side) -> None:
    likes = _build_likes(GROUPS_A_ROUND, 1_000_000)
    before = read_resident_bytes(side.pid)
    for start in range(0, QUEUED, len(likes)):
        send_all(side.url, _differ_from(likes[: QUEUED - start], 1 + start // len(likes)), CONNECTIONS)
    side.bytes_a_group = max(0, read_resident_bytes(side.pid) - before) / QUEUED


def _build_likes(count: int, first: int = 0) -> list[bytes]:
    """Posts to be told apart by `_differ_from`: encoding 128 kB takes longer than answering them."""
    return [post("/scored_data", large_group(first + n, first=100_000)) for n in range(count)]


def _differ_from(likes: list[bytes], number: int) -> list[bytes]:
    """The same posts with another token in each."""
    return [like.replace(b"100000", str(100_000 + number).encode(), 1) for like in likes]


def _drain(side: Side) -> None:
    with _watching(f"{side.url}/status") as longest, httpx.Client(timeout=300) as client:
        client.get(f"{side.url}/batch").raise_for_status()
    side.drained_wait = longest()


def measure() -> list[BenchmarkFigure]:
    if not RUN_API.exists():
        print("Atropos' trajectory API: not compared, since run-api is not installed (make bench-peers does it)")
        return []
    return list(_list_figures(*compare()))


def _list_figures(ours: Side, original: Side) -> Iterator[BenchmarkFigure]:
    for who, side in (("ours, durable", ours), ("`run-api`, kept in memory", original)):
        yield BenchmarkFigure.of(f"`POST /scored_data`: {who}", side.list_rounds(0), "groups/s")
        yield BenchmarkFigure.of(f"the same: {who}: processor time of a group", side.list_rounds(1), "ms")
        yield BenchmarkFigure.of(f"`GET /batch` of {BATCH_SEQUENCES}: {who}", side.list_rounds(2), "a second")
        yield BenchmarkFigure.of(f"memory of a group, {QUEUED} queued: {who}", [side.bytes_a_group / 1e3], "kB")
        yield BenchmarkFigure.of(f"longest wait for `/status` meanwhile: {who}", [side.drained_wait * 1e3], "ms")
    for what, place, wanted in (("groups in", 0, 2.0), ("batches out", 2, 6.0)):
        pairs = zip(ours.list_rounds(place), original.list_rounds(place), strict=True)
        yield BenchmarkFigure.of(f"{what} over `run-api`", [mine / theirs for mine, theirs in pairs], at_least=wanted)
    memory = ours.bytes_a_group / original.bytes_a_group
    yield BenchmarkFigure.of("memory of a queued group over `run-api`", [memory], at_most=0.1)
    waits = [seconds * 1e3 for seconds in ours.list_rounds(3)]
    yield BenchmarkFigure.of("longest wait for `GET /` of ours", waits, "ms", at_most=100)


if __name__ == "__main__":
    run("atropos", measure)
