"""Whether a hot path became dear: its processor time over that of a fixed yardstick, against kept ratios.

`python -m benchmarks.guard` fails where a workload takes 40 % more than `results/guard.json` says, measured twice;
`--record` writes new ratios. The yardstick is plain Python, JSON and SQLite, and runs beside each workload, so that a
slow or busy machine slows both. Medians of seven rounds in turns.
"""

import json
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from typing import Final

from pydantic import JsonValue

from benchmarks.load import post, send_all
from benchmarks.results import RESULTS, read_arguments
from benchmarks.scoring import build_requests
from benchmarks.servers import send_measured, serving_gateway

ROUNDS: Final = 7
MOST_RISE: Final = 1.4
KEPT: Final = RESULTS / "guard.json"
CONNECTIONS: Final = 4

Ratios = Mapping[str, float]


@dataclass(frozen=True)
class Workload:
    name: str
    requests: int
    """Of a round."""
    build: Callable[[str, int], list[bytes]]
    """So many requests, no two the same; it gets the gateway's URL."""


def measure() -> Ratios:
    """By workload the processor time of a round over that of the yardstick beside it."""
    ratios: dict[str, list[float]] = {workload.name: [] for workload in WORKLOADS}
    with (
        serving_gateway() as gateway,
        closing(sqlite3.connect(gateway.database.with_name("yardstick.db"), isolation_level=None)) as yardstick,
    ):
        yardstick.execute("PRAGMA journal_mode = WAL")
        yardstick.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY, body TEXT)")
        requests = {one.name: one.build(gateway.url, one.requests * (ROUNDS + 1)) for one in WORKLOADS}
        for number, one in product(range(ROUNDS + 1), WORKLOADS):
            mine = requests[one.name][number * one.requests : (number + 1) * one.requests]
            fixed = _take_yardstick(yardstick)
            _, used = send_measured(gateway.url, gateway.process.pid, mine, CONNECTIONS)
            ratios[one.name].append(used / statistics.mean((fixed, _take_yardstick(yardstick))))
    return {name: statistics.median(found[1:]) for name, found in ratios.items()}  # the first one warms all up


def find_slower(measured: Ratios, kept: Ratios) -> dict[str, float]:
    """How many times the kept ratio each workload takes that takes too much."""
    rises = {name: ratio / kept[name] for name, ratio in measured.items() if name in kept}
    return {name: rise for name, rise in rises.items() if rise > MOST_RISE}


def guard(take: Callable[[], Ratios], kept: Ratios) -> Iterator[str]:
    """What is wrong; nothing where all is well. A rise counts when it is seen twice."""
    first = take()
    unknown = sorted(first.keys() ^ kept.keys())
    if unknown:
        yield f"no kept ratio, or no workload: {', '.join(unknown)}; `python -m benchmarks.guard --record` writes them"
    if suspects := find_slower(first, kept):
        again = find_slower(take(), kept)
        for name in sorted(suspects.keys() & again.keys()):
            yield f"{name}: {suspects[name]:.2f} and {again[name]:.2f} times its kept processor time"


def _take_yardstick(connection: sqlite3.Connection) -> float:
    began = time.process_time()
    for turn in range(15):
        rows = [
            {"number": number, "text": f"{turn} {number} " * 20, "parts": [1.5, None, True]} for number in range(60)
        ]
        bodies = [json.dumps(row, sort_keys=True) for row in rows]
        words = [word for body in bodies for word in json.loads(body)["text"].split()]
        counts = {word: len(word) for word in sorted(words)}
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", enumerate(bodies, len(counts)))
        connection.execute("COMMIT")
        connection.execute("SELECT count(*), sum(length(body)) FROM kept").fetchone()
    return time.process_time() - began


def _lease(url: str, count: int) -> list[bytes]:
    return [post("/envs/gsm8k/next-batch", {"batch_size": 32, "run": "guard"})] * count


def _list_groups(url: str, count: int) -> list[bytes]:
    return [b"GET /groups?limit=50 HTTP/1.1\r\nHost: localhost\r\n\r\n"] * count


def _judge(url: str, count: int) -> list[bytes]:
    """By the judge without a model."""
    ask = post("/envs/npc_arena/next-batch", {"batch_size": count, "cursor": 0})
    tasks = json.loads(send_all(url, [ask], 1).answers[0])["tasks"]
    return [post("/envs/npc_arena/score", {"groups": [_build_judged(task["task_id"])]}) for task in tasks]


def _build_judged(task_id: str) -> JsonValue:
    said = ("The road north is closed until the thaw", "I have seen no such traveller", "Bread first, then questions")
    return {"task_id": task_id, "completions": [{"text": f"{one}, friend. Sit by the fire a while."} for one in said]}


WORKLOADS: Final = (
    Workload("score, 16 groups a request", 4, build_requests),
    Workload("score, a group a request", 16, lambda url, count: build_requests(url, count, 1, 100_000)),
    Workload("next-batch, leased", 4, _lease),
    Workload("GET /groups", 12, _list_groups),
    Workload("score, judged without a model", 4, _judge),
)


def main(arguments: Sequence[str]) -> int:
    if "--record" in arguments:
        ratios = {name: round(ratio, 2) for name, ratio in measure().items()}
        KEPT.write_text(json.dumps(ratios, indent=1) + "\n", encoding="utf-8")
        return 0
    kept: Ratios = json.loads(KEPT.read_text(encoding="utf-8"))

    def take() -> Ratios:
        measured = measure()
        for name, ratio in measured.items():
            print(f"  {name:32}{ratio:8.2f} yardsticks, {ratio / kept.get(name, ratio):5.2f} times what is kept")
        return measured

    faults = list(guard(take, kept))
    print(*(f"SLOWER: {fault}" for fault in faults), sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(read_arguments()))
