"""Tasks handed out per second over HTTP, leased and by cursor, in turns with `GET /livez`, which does nothing."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import post, send_all
from benchmarks.results import BenchmarkFigure, run
from tests.support.serving import serving

BATCH_SIZE = 32
REQUESTS = 60
ROUNDS = 5
CONNECTIONS = 4
LIVEZ_FACTOR = 5
NOTHING = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True)
class HandOut:
    """Requests a second."""

    leased: float
    by_cursor: float
    livez: float


def measure() -> list[BenchmarkFigure]:
    path = "/envs/gsm8k/next-batch"
    lease = post(path, {"batch_size": BATCH_SIZE, "run": "bench"})
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), python=sys.executable) as gateway:
        send_all(gateway.url, [lease] * 5, CONNECTIONS)
        rounds = []
        for number in range(ROUNDS):
            first = number * REQUESTS
            cursors = [
                post(path, {"batch_size": BATCH_SIZE, "cursor": (first + one) * BATCH_SIZE}) for one in range(REQUESTS)
            ]
            leased = send_all(gateway.url, [lease] * REQUESTS, CONNECTIONS).seconds
            by_cursor = send_all(gateway.url, cursors, CONNECTIONS).seconds
            livez = send_all(gateway.url, [NOTHING] * REQUESTS * LIVEZ_FACTOR, CONNECTIONS).seconds
            rounds.append(HandOut(REQUESTS / leased, REQUESTS / by_cursor, REQUESTS * LIVEZ_FACTOR / livez))
    return list(_list_figures(rounds))


def _list_figures(rounds: Sequence[HandOut]) -> Iterator[BenchmarkFigure]:
    what = f"`next-batch`, {BATCH_SIZE} tasks a request"
    leased, by_cursor = ([getattr(one, name) * BATCH_SIZE for one in rounds] for name in ("leased", "by_cursor"))
    yield BenchmarkFigure.of(f"{what}, leased and durable", leased, "tasks/s")
    yield BenchmarkFigure.of(f"{what}, by cursor, tasks seen for the first time", by_cursor, "tasks/s")
    ratios = [one.leased / one.livez for one in rounds]
    yield BenchmarkFigure.of("leased requests over those of `GET /livez`", ratios)


if __name__ == "__main__":
    run("dispatch", measure)
