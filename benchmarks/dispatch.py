"""Tasks handed out over HTTP: `python -m benchmarks.dispatch [--gsm8k FOLDER]`.

Leased batches of GSM8K beside `/livez`, and how long 32 trainers wait. Rounds of what is compared take turns. The
folder, with `train.jsonl` and `test.jsonl`, may stand in ATROPOS_ENVS_DATASETS__GSM8K too; without one, the word
problems that need no data set are handed out. Takes some two minutes."""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.load import Load, post, send_all
from benchmarks.results import BenchmarkFigure, count_rounds, run
from benchmarks.servers import send_measured, serving_gateway
from tests.support.serving import Served

DATASET: Final = "ATROPOS_ENVS_DATASETS__GSM8K"
PATH: Final = "/envs/gsm8k/next-batch"
LIVEZ: Final = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
BATCH_SIZE: Final = 64
CONNECTIONS: Final = 4
TRAINERS: Final = 32
TRAIN_SIZE: Final = 7_473
"""Rows of GSM8K. A run that leases more without answering gets none for now."""
BATCHES_OF_A_RUN: Final = 100
ROUNDS: Final = 7
REQUESTS: Final = 120
"""Of a round."""
LIVEZ_FACTOR: Final = 8
"""Requests to /livez for each that is compared with them: both take about as long."""
PAUSE_SECONDS: Final = 0.5


def lease(run: str) -> bytes:
    return post(PATH, {"batch_size": BATCH_SIZE, "run": run})


def measure_batches(dataset: str | None) -> Iterator[BenchmarkFigure]:
    with serving_gateway({DATASET: str(Path(dataset).absolute())} if dataset else {}) as gateway:
        names = map("run-{}".format, count())
        send_all(gateway.url, [LIVEZ, lease(next(names))] * 5, CONNECTIONS)
        whole = TRAIN_SIZE // BATCH_SIZE
        _, seconds = _send_whole(gateway, [lease("first")] * whole, CONNECTIONS)
        found = [_take_round(gateway, names) for _ in count_rounds("batches", ROUNDS)]

    def of(
        what: str, name: str, unit: str = "", least: float | None = None, most: float | None = None
    ) -> BenchmarkFigure:
        return BenchmarkFigure.of(what, [one[name] for one in found], unit, at_least=least, at_most=most)

    tasks = f"{BATCH_SIZE} {'of GSM8K' if dataset else 'word problems'}"
    leased = f"`next-batch` of {tasks}, leased, tasks that were handed out before"
    yield of(f"{leased}: rate over that of `/livez`", "rate", least=0.12)
    yield of("the same, by processor time", "processor")
    yield of("the same", "tasks_per_second", "tasks/s")
    yield of("processor time of such a batch", "milliseconds", "ms")
    yield BenchmarkFigure.of("of one whose tasks are new", [seconds / whole * 1e3], "ms")
    yield of(f"{TRAINERS} trainers that ask again at once, p99 / p50", "busy", most=5)
    yield of(f"the same with pauses of {PAUSE_SECONDS} s", "paced", most=5)


def _take_round(gateway: Served, names: Iterator[str]) -> dict[str, float]:
    """Tasks that were handed out before: rates and processor time over those of /livez, and p99 over p50 of trainers
    that ask again at once, or with pauses."""
    requests = _spread_over_runs(gateway, names, REQUESTS, CONNECTIONS)
    asked = [LIVEZ] * REQUESTS * LIVEZ_FACTOR
    livez, idle = send_measured(gateway.url, gateway.process.pid, asked, CONNECTIONS)
    leased, seconds = _send_whole(gateway, requests, CONNECTIONS)
    return {
        "rate": livez.seconds / LIVEZ_FACTOR / leased.seconds,
        "processor": idle / LIVEZ_FACTOR / seconds,
        "tasks_per_second": BATCH_SIZE * REQUESTS / leased.seconds,
        "milliseconds": seconds / REQUESTS * 1e3,
        "busy": _ask_as_trainers(gateway, names, 0.0),
        "paced": _ask_as_trainers(gateway, names, PAUSE_SECONDS),
    }


def _ask_as_trainers(gateway: Served, names: Iterator[str], pause: float) -> float:
    requests = _spread_over_runs(gateway, names, TRAINERS * (4 if pause else 10), TRAINERS)
    waited = _send_whole(gateway, requests, TRAINERS, pause)[0]
    return waited.percentile(0.99) / waited.percentile(0.5)


def _spread_over_runs(gateway: Served, names: Iterator[str], requests: int, runs: int) -> list[bytes]:
    """Requests of runs that have begun, and have enough tasks left."""
    runs = max(runs, -(-requests // BATCHES_OF_A_RUN))
    chosen = [lease(next(names)) for _ in range(runs)]
    send_all(gateway.url, chosen, CONNECTIONS)
    return [chosen[number % runs] for number in range(requests)]


def _send_whole(gateway: Served, requests: Sequence[bytes], connections: int, pause: float = 0.0) -> tuple[Load, float]:
    """With the gateway's processor time. RuntimeError for a batch that is not whole."""
    load, seconds = send_measured(gateway.url, gateway.process.pid, requests, connections, pause)
    if any(len(json.loads(answer)["tasks"]) != BATCH_SIZE for answer in load.answers):
        raise RuntimeError("a batch is not whole")
    return load, seconds


def measure(dataset: str | None = None) -> list[BenchmarkFigure]:
    """Without a data set, that of the variable; without that, the word problems that need none."""
    return list(measure_batches(dataset or os.environ.get(DATASET)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gsm8k", metavar="FOLDER", help="with train.jsonl and test.jsonl")
    chosen, rest = parser.parse_known_args()
    run("dispatch", partial(measure, chosen.gsm8k), rest, "--gsm8k FOLDER" if chosen.gsm8k else "")
