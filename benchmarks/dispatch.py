"""Tasks handed out over HTTP: `python -m benchmarks.dispatch [--gsm8k FOLDER]`.

Leased batches of GSM8K beside `/livez`, of word problems beside what making and writing them takes at least, and how
long 32 trainers wait. Rounds of what is compared take turns. The folder, with `train.jsonl` and `test.jsonl`, may stand
in ATROPOS_ENVS_DATASETS__GSM8K too; without one, all but the word problems is left out. Takes some two minutes."""

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.values import NoParams
from app.envs.gsm8k.environment import Gsm8k
from benchmarks.bare_stores import open_bare, read_rows, write_rows
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
WORD_PROBLEM_REQUESTS: Final = 20
PAUSE_SECONDS: Final = 0.5
TABLES: Final = ("prompts", "tasks", "leases")


def lease(run: str) -> bytes:
    return post(PATH, {"batch_size": BATCH_SIZE, "run": run})


def measure_real(rounds: int, dataset: str) -> Iterator[BenchmarkFigure]:
    with serving_gateway({DATASET: dataset}) as gateway:
        names = map("run-{}".format, count())
        send_all(gateway.url, [LIVEZ, lease(next(names))] * 5, CONNECTIONS)
        whole = TRAIN_SIZE // BATCH_SIZE
        _, seconds = _send_whole(gateway, [lease("first")] * whole, CONNECTIONS)
        found = [_take_round(gateway, names) for _ in count_rounds("GSM8K", rounds)]

    def of(
        what: str, name: str, unit: str = "", least: float | None = None, most: float | None = None
    ) -> BenchmarkFigure:
        return BenchmarkFigure.of(what, [one[name] for one in found], unit, at_least=least, at_most=most)

    leased = f"`next-batch` of {BATCH_SIZE} of GSM8K, leased, tasks that were handed out before"
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


def measure_word_problems(rounds: int) -> list[float]:
    """The gateway's processor time over that of making the same tasks and writing the same rows with sqlite3."""
    found = []
    with serving_gateway() as gateway:
        send_all(gateway.url, [LIVEZ, lease("word-problems")] * 5, CONNECTIONS)
        for number in count_rounds("word problems", rounds):
            load, seconds = _send_whole(gateway, [lease("word-problems")] * WORD_PROBLEM_REQUESTS, CONNECTIONS)
            batches = [json.loads(answer)["tasks"] for answer in load.answers]
            found.append(
                seconds / _make_and_write(gateway.database, gateway.database.with_name(f"bare-{number}.db"), batches)
            )
    return found


def _make_and_write(database: Path, bare: Path, batches: Sequence[Sequence[dict[str, Any]]]) -> float:
    """Processor time of making the tasks of these batches, and writing their rows, a commit for each batch."""
    environment = Gsm8k.open(ConfiguredDatasets({}))
    rows = [_take_rows(database, batch) for batch in batches]
    indexes = [[task["metadata"]["index"] for task in batch] for batch in batches]
    with open_bare(database, bare, TABLES) as connection:
        environment.task("train", 0, NoParams())
        began = time.process_time()
        for portion, places in zip(rows, indexes, strict=True):
            for index in places:
                environment.task("train", index, NoParams())
            write_rows(connection, portion)
        return time.process_time() - began


def _take_rows(database: Path, batch: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The rows that handing out the batch wrote."""
    ids = {name: json.dumps([task[name] for task in batch]) for name in ("task_id", "lease_id")}
    of_tasks = "task_id IN (SELECT value FROM json_each(:task_id))"
    among = {
        "prompts": f"digest IN (SELECT prompt_digest FROM tasks WHERE {of_tasks})",  # noqa: S608
        "tasks": of_tasks,
        "leases": "lease_id IN (SELECT value FROM json_each(:lease_id))",
    }
    return read_rows(database, among, ids)


def measure(rounds: int = ROUNDS, dataset: str | None = None) -> list[BenchmarkFigure]:
    """Without a data set, that of the variable, or none."""
    found: list[BenchmarkFigure] = []
    dataset = dataset or os.environ.get(DATASET)
    if dataset:
        found += measure_real(rounds, str(Path(dataset).absolute()))
    else:
        print(f"GSM8K itself is left out: name its folder by --gsm8k or {DATASET}")
    values = measure_word_problems(rounds)
    what = f"leased batches of {BATCH_SIZE} word problems: processor time over making them and writing the bare rows"
    return [*found, BenchmarkFigure.of(what, values, at_most=1.6)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gsm8k", metavar="FOLDER", help="with train.jsonl and test.jsonl")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen, rest = parser.parse_known_args()
    given = "--gsm8k FOLDER" if chosen.gsm8k else ""
    run("dispatch", partial(measure, chosen.rounds, chosen.gsm8k), rest, given)


if __name__ == "__main__":
    main()
