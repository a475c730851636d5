"""What scoring takes while nine tenths of a store are pruned beside it, over what it takes without; and whether the
curves of what was pruned are as before.

The store is grown from a small one and served. Four trainers score, with pauses; meanwhile `atropos-envs prune` runs in
a process of its own. It is killed now and then, and goes on later, so that rounds with it and without it take turns:
what else the machine does slows both. `python -m benchmarks.pruning [ROLLOUTS] [--record]` takes a quarter
of an hour with 100,000, as by default, and hours with a million.
"""

import itertools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from pydantic import JsonValue
from sqlalchemy import update

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.values import NoParams, utc_now
from app.envs.gsm8k.environment import Gsm8k
from app.store.database import open_writer
from app.store.statements import to_micros
from app.store.tables import groups
from benchmarks.grown_stores import grow
from benchmarks.kept_stores import SEEDED, count_copies
from benchmarks.load import Load, post, send_all
from benchmarks.results import BenchmarkFigure, read_arguments, run, tell_progress
from benchmarks.seeded_stores import ARENA_RUN, GROUP_SIZE, LONG_RUN, seed
from tests.support.databases import read_migrated_store
from tests.support.forked_programs import plain_environment
from tests.support.serving import Served, serving

CONNECTIONS: Final = 4
PAUSE_SECONDS: Final = 0.05
GROUPS_A_REQUEST: Final = 4
REQUESTS_A_ROUND: Final = 400
ROUNDS_BESIDE: Final = 8
"""For each round without."""
ROLLOUTS: Final = 100_000
MOST_TIMES: Final = 1.5
CURVES: Final = (
    *(f"/stats?run={LONG_RUN}", f"/stats?run={ARENA_RUN}&by=character", f"/stats?run={ARENA_RUN}&by=judge"),
    f"/runs/{LONG_RUN}",
)
OLD_SHARE: Final = 0.9
OLD_MICROSECONDS: Final = 90 * 86_400_000_000


def make_old(url: str, count: int) -> None:
    """Nine tenths are three months old, the rest is of today."""
    now = to_micros(utc_now())
    engine = open_writer(url)
    with engine.begin() as connection:
        connection.execute(update(groups).values(created_at=now))
        old = groups.c.sequence <= int(OLD_SHARE * count)
        connection.execute(update(groups).where(old).values(created_at=now - OLD_MICROSECONDS))
    engine.dispose()


def list_requests(url: str) -> Iterator[bytes]:
    """For ever, each of groups that are new: the same tasks at another step."""
    environment = Gsm8k.open(ConfiguredDatasets({}))
    asked = send_all(url, [post("/envs/gsm8k/next-batch", {"batch_size": 64, "cursor": 0})], 1)
    tasks = [(one["task_id"], place) for place, one in enumerate(json.loads(asked.answers[0])["tasks"])]
    answers = {place: environment.gold(environment.task("train", place, NoParams())) for _, place in tasks}
    chosen = itertools.cycle(tasks)
    for step in itertools.count():
        scored: list[JsonValue] = []
        for task_id, place in itertools.islice(chosen, GROUPS_A_REQUEST):
            gold = answers[place]
            texts = [f"Attempt {number}. {gold.text if gold else ''}" for number in range(GROUP_SIZE)]
            scored.append({"task_id": task_id, "completions": [{"text": text} for text in texts]})
        body: JsonValue = {"run": "load", "groups": scored, "policy": {"model": "bench", "step": step}}
        yield post("/envs/gsm8k/score", body)


def score_for_a_round(gateway: Served, requests: Iterator[bytes]) -> Load:
    some = list(itertools.islice(requests, REQUESTS_A_ROUND))
    return send_all(gateway.url, some, CONNECTIONS, PAUSE_SECONDS)


def find_percentile(loads: Sequence[Load], share: float) -> float:
    latencies = sorted(one for load in loads for one in load.latencies)
    return latencies[int(share * (len(latencies) - 1))]


def read_curves(gateway: Served) -> list[bytes]:
    with httpx.Client(base_url=gateway.url) as client:
        return [client.get(route).raise_for_status().content for route in CURVES]


@contextmanager
def pruning(folder: Path, database: Path) -> "Iterator[subprocess.Popen[bytes]]":
    environment = plain_environment() | {"ATROPOS_ENVS_DATABASE_URL": f"sqlite:///{database}"}
    command = [sys.executable, "-m", "app.cli", "prune", "--older-than", "30d", "--yes"]
    with (folder / "pruning.log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def count_groups(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM groups WHERE run <> 'load'").fetchone()
    return int(count)


@dataclass
class Turn:
    """A round without, and those beside it while it is pruned."""

    alone: Load
    beside: list[Load] = field(default_factory=list)


@dataclass(frozen=True)
class Pruned:
    turns: Sequence[Turn]
    seconds: float
    groups: int
    """That were there before; so many of them were `removed`."""
    removed: int
    curves_changed: int


def measure_pruning(folder: Path, gateway: Served) -> Pruned:
    requests = list_requests(gateway.url)
    score_for_a_round(gateway, requests)  # warms up
    curves, before = read_curves(gateway), count_groups(gateway.database)
    turns: list[Turn] = []
    began = time.monotonic()
    ended: int | None = None
    while ended is None:
        turns.append(Turn(score_for_a_round(gateway, requests)))
        ended = prune_beside(folder, gateway, requests, turns[-1])
        left = count_groups(gateway.database)
        tell_progress(f"{before - left:,} of {before:,} groups pruned after {time.monotonic() - began:.0f} s")
    if ended:
        raise RuntimeError(f"prune failed: {(folder / 'pruning.log').read_text()}")
    changed = sum(one != other for one, other in zip(curves, read_curves(gateway), strict=True))
    return Pruned(turns, time.monotonic() - began, before, before - left, changed)


def prune_beside(folder: Path, gateway: Served, requests: Iterator[bytes], turn: Turn) -> int | None:
    """What it exited with, or None where it is killed before its end."""
    with pruning(folder, gateway.database) as process:
        score_for_a_round(gateway, requests)  # while it starts, which is no pruning yet
        for _ in range(ROUNDS_BESIDE):
            load = score_for_a_round(gateway, requests)
            if (ended := process.poll()) is not None:
                return ended  # the round was partly alone
            turn.beside.append(load)
    return None


def measure(rollouts: int = ROLLOUTS) -> list[BenchmarkFigure]:
    copies = count_copies(rollouts)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "gateway.db"
        file.write_bytes(read_migrated_store())
        seed(folder, f"sqlite:///{file}")
        grow(f"sqlite:///{file}", copies, lambda _: None)
        make_old(f"sqlite:///{file}", SEEDED * copies // GROUP_SIZE)
        tell_progress(f"{SEEDED * copies:,} rollouts in {file.stat().st_size / 2**20:,.0f} MB")
        with serving(folder, python=sys.executable) as gateway:
            return list(_list_figures(measure_pruning(folder, gateway)))


def _list_figures(found: Pruned) -> Iterator[BenchmarkFigure]:
    whole = [turn for turn in found.turns if turn.beside]
    for share in (0.5, 0.95, 0.99):
        what, column = (
            f"`score` of {GROUPS_A_REQUEST} groups, {CONNECTIONS} trainers with pauses",
            f"p{share * 100:.0f}",
        )
        alone = [find_percentile([turn.alone], share) * 1e3 for turn in found.turns]
        yield BenchmarkFigure.of(f"{what}, {column} without", alone, "ms")
        if beside := [find_percentile(turn.beside, share) * 1e3 for turn in whole]:
            yield BenchmarkFigure.of(f"the same while pruning, {column}", beside, "ms")
    ratios = [find_percentile(turn.beside, 0.95) / find_percentile([turn.alone], 0.95) for turn in whole]
    if ratios:
        yield BenchmarkFigure.of("p95 while pruning over that without", ratios, at_most=MOST_TIMES)
    yield BenchmarkFigure.of(f"time to remove {found.removed:,} of {found.groups:,} groups", [found.seconds], "s")
    yield BenchmarkFigure.of("curves of what was pruned that changed", [found.curves_changed], at_most=0)


def main() -> None:
    words = read_arguments()
    rollouts = next((word for word in words if word.isdigit()), str(ROLLOUTS))
    run("pruning", partial(measure, int(rollouts)), words, "" if rollouts == str(ROLLOUTS) else rollouts)


if __name__ == "__main__":
    main()
