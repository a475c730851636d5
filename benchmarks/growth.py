"""What a gateway takes over a large store, over what it takes over a nearly empty one of the same shape.

`python -m benchmarks.growth [--rollouts N] [--postgres-rollouts N] [--rounds N] [--only TEXT] [--warm] [--plans]`
The stores are made once, and kept in `.cache/growth`. Both are served, and asked in turns. Reads are those of the
gateway of the large store: calls of the system, and bytes from the disk. `--plans` prints the plans of what missed.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from sqlalchemy import create_engine, text

from app.store.database import parse_url
from benchmarks.growth_plans import print_plans
from benchmarks.growth_routes import ASKED, EXPORTS, POLICY, Side
from benchmarks.kept_stores import KeptStores, keep_postgres, keep_sqlite
from benchmarks.seeded_stores import ARENA, ARENA_RUN, LONG_RUN
from tests.support.serving import Served, serving

MOST: Final = 1.5
MOST_OF_A_PAGE: Final = 300.0
"""Milliseconds of a page of the viewer, at p95."""
WARMING: Final = 3
"""Rounds that are not counted."""
MOST_OF_START: Final = 2.0
SAMPLED_GROUPS: Final = 400
LEASED: Final = 4
"""Tasks of a hand-out; each is scored by a request of its own."""


def ask(side: Side, path: str) -> float:
    if side.is_warm:
        side.client.get(path)
    began = time.perf_counter()
    reply = side.client.get(path)
    taken = time.perf_counter() - began
    reply.raise_for_status()
    return taken


def await_first_byte(side: Side, path: str) -> float:
    """On a connection of its own, which is closed when the first piece is there."""
    with httpx.Client(base_url=side.gateway.url, timeout=120) as client:
        began = time.perf_counter()
        with client.stream("GET", path) as reply:
            reply.raise_for_status()
            next(reply.iter_raw(), b"")
            return time.perf_counter() - began


def train(side: Side, environment: str, run: str) -> Iterator[tuple[str, float]]:
    """A hand-out, and a score of each of its tasks."""
    taken, batch = _post(side, f"/envs/{environment}/next-batch", {"batch_size": LEASED, "run": run})
    yield f"POST next-batch of {LEASED}, {environment}", taken
    for task in batch["tasks"]:
        said = side.answers.answer(side.client, environment, task["task_id"])
        said[0] = {"text": f"{uuid4().hex} {said[0]['text']}"}
        group = {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": said}
        body = {"groups": [group], "run": run, "policy": {"model": "bench", "step": 9}}
        yield f"POST score, {environment}", _post(side, f"/envs/{environment}/score", body)[0]


def label(side: Side) -> Iterator[tuple[str, float]]:
    """By somebody new, so that a new item is drawn."""
    yield "POST /labels/next", _post(side, "/labels/next", {"labeller": f"person {uuid4().hex}"})[0]


def _post(side: Side, path: str, body: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    reply = side.client.post(path, json=body)
    taken = time.perf_counter() - began
    return taken, reply.raise_for_status().json()


def list_calls(only: str) -> Iterator[Callable[[Side], Iterator[tuple[str, float]]]]:
    if not only:
        yield lambda side: train(side, "gsm8k", LONG_RUN)
        yield lambda side: train(side, ARENA, ARENA_RUN)
        yield label
    for name, path in ASKED.items():
        if only in name:
            yield lambda side, name=name, path=path: iter([(name, ask(side, path(side)))])  # type: ignore[misc]
    for name, path in EXPORTS.items():
        if only in name:
            yield lambda side, name=name, path=path: iter([(name, await_first_byte(side, path(side)))])  # type: ignore[misc]


@dataclass
class Timing:
    route: str
    few: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)

    def percentiles(self, share: float) -> tuple[float, float]:
        few, many = (_choose_percentile(times, share) * 1e3 for times in (self.few, self.many))
        return few, many

    @property
    def missed(self) -> str:
        few, many = self.percentiles(0.95)
        if ("/view/" in self.route or self.route == "GET /") and many > MOST_OF_A_PAGE:
            return f" (missed: at most {MOST_OF_A_PAGE:.0f} ms)"
        return "" if many <= MOST * few else f" (missed: at most {MOST})"

    def report(self) -> str:
        middle, late = self.percentiles(0.5), self.percentiles(0.95)
        cells = [f"{value:.1f}" for value in (*middle, *late)]
        calls, read = (_choose_percentile([one[place] for one in self.reads], 0.5) for place in (0, 1))
        ratios = f"{middle[1] / middle[0]:.2f} | {late[1] / late[0]:.2f}{self.missed}"
        return f"| `{self.route}` | {' | '.join(cells)} | {ratios} | {calls:.0f} | {read / 1024:.0f} |"


def _choose_percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def measure(few: Side, many: Side, rounds: int, only: str) -> list[Timing]:
    times: dict[str, Timing] = {}
    calls = list(list_calls(only))
    for number in range(rounds + WARMING):
        for call in calls:
            for side in (few, many) if number % 2 else (many, few):
                before = side.count_reads()
                for name, taken in call(side):
                    after = side.count_reads()
                    if number >= WARMING:
                        timing = times.setdefault(name, Timing(name))
                        (timing.many if side is many else timing.few).append(taken)
                        if side is many:
                            timing.reads.append((after[0] - before[0], after[1] - before[1]))
                    before = after
    return list(times.values())


def sample(url: str) -> dict[str, Any]:
    engine = create_engine(parse_url(url))
    with engine.connect() as connection:
        newest = connection.execute(text("SELECT max(sequence) FROM groups")).scalar_one()
        drawn = sorted(random.Random(4).sample(range(1, newest + 1), min(newest, SAMPLED_GROUPS)))
        listed = ",".join(map(str, drawn))
        groups = connection.execute(
            text(f"SELECT sequence, group_id, task_id, environment FROM groups WHERE sequence IN ({listed})")  # noqa: S608
        ).all()
        late = connection.execute(
            text(f"SELECT created_at FROM groups WHERE sequence = {newest - newest // 20}")  # noqa: S608
        ).scalar_one()
        labels = connection.execute(
            text("SELECT label FROM tasks WHERE environment = 'npc_arena' ORDER BY task_id LIMIT 1")
        ).scalar_one()
    engine.dispose()
    return {
        "groups": [tuple(one) for one in groups],
        "newest": newest,
        "late": late,
        "character": json.loads(labels),
    }


def measure_starts(folder: Path, urls: Sequence[str], starts: int) -> tuple[float, float]:
    """Seconds to /readyz, medians of some starts in turns."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(starts + 1):
        for which, url in enumerate(urls):
            with _served(folder, url) as gateway:
                if number:
                    seconds[which].append(gateway.seconds_to_ready)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def _served(folder: Path, url: str) -> AbstractContextManager[Served]:
    return serving(folder, settings={"ATROPOS_ENVS_DATABASE_URL": url, **POLICY}, python=sys.executable, migrated=False)


def compare(name: str, stores: KeptStores, chosen: argparse.Namespace) -> None:
    print(f"## {name}: {stores.few_rollouts:,} and {stores.many_rollouts:,} rollouts, {stores.size}", flush=True)
    urls = (stores.few, stores.many)
    if chosen.starts:
        few_start, many_start = measure_starts(stores.folder, urls, chosen.starts)
        ratio = f"{many_start / few_start:.2f} times (at most {MOST_OF_START} are wanted)"
        print(f"start to /readyz: {few_start:.2f} and {many_start:.2f} s, {ratio}", flush=True)
    with _served(stores.folder, urls[0]) as one, _served(stores.folder, urls[1]) as other:
        few, many = Side(one, **sample(urls[0])), Side(other, **sample(urls[1]))
        few.is_warm = many.is_warm = chosen.warm
        for side in (few, many):
            side.tell_world()
        timings = measure(few, many, chosen.rounds, chosen.only)
        memory = few.measure_memory(), many.measure_memory()
    print("| route | p50, ms: few | many | p95, ms: few | many | p50, times | p95, times | reads | KB of the disk |")
    print(f"|{' --- |' * 9}")
    print(*(timing.report() for timing in timings), sep="\n")
    for kind in memory[0]:
        print(f"{kind}: {memory[0][kind]:.0f} and {memory[1][kind]:.0f} MB, {memory[1][kind] / memory[0][kind]:.2f}")
    print(f"load {os.getloadavg()}", flush=True)
    if chosen.plans:
        print_plans(
            urls[1], {one.route: ASKED[one.route](many) for one in timings if one.missed and one.route in ASKED}
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=10_000_000, help="on SQLite; 0 leaves it out")
    parser.add_argument("--postgres-rollouts", type=int, default=2_000_000, help="on PostgreSQL; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--starts", type=int, default=3, help="of each gateway; 0 leaves them out")
    parser.add_argument("--only", default="", help="routes that have this text in their names")
    parser.add_argument("--warm", action="store_true", help="ask each address once before it is measured")
    parser.add_argument("--plans", action="store_true", help="print the plans of the routes that missed")
    chosen = parser.parse_args()
    if chosen.rollouts:
        with keep_sqlite(chosen.rollouts) as stores:
            compare("SQLite", stores, chosen)
    if chosen.postgres_rollouts:
        with keep_postgres(chosen.postgres_rollouts) as stores:
            compare("PostgreSQL", stores, chosen)


if __name__ == "__main__":
    main()
