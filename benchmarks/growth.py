"""What a gateway takes over a large store, over what it takes over a nearly empty one of the same shape.

`python -m benchmarks.growth [--rollouts N] [--postgres-rollouts N] [--rounds N] [--only TEXT …] [--warm] [--plans]
[--record]` makes the stores once, and keeps them in `.cache/growth`: ten million rollouts on SQLite take ten minutes
and 15 GB, two million on PostgreSQL twice as long and 3 GB. Both are served, and asked in turns: 20 minutes in all. A
figure is the median of up to three portions of the rounds, each of at least twenty. What trainers, lists, pages of
groups and exports ask is asked three times a round. Reads are those of the gateway of the large store: calls of the
system, and bytes from the disk. `--plans` prints the plans of what missed. `--record` keeps what was measured, unless
`--only` or `--warm` is given.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from sqlalchemy import create_engine, text

from app.store.database import parse_url
from benchmarks.growth_plans import print_plans
from benchmarks.growth_routes import ASKED, EXPORTS, LISTS, PAGES, POLICY, Side
from benchmarks.kept_stores import KeptStores, keep_postgres, keep_sqlite
from benchmarks.results import BenchmarkFigure, count_rounds, run, tell_progress
from benchmarks.seeded_stores import ARENA, ARENA_RUN, LONG_RUN
from tests.support.serving import Served, serving

MOST: Final = 1.5
MOST_OF_A_PAGE: Final = 300.0
"""Milliseconds of a page of the viewer, at p95."""
WARMING: Final = 3
"""Rounds that are not counted."""
MOST_OF_START: Final = 2.0
MOST_PORTIONS: Final = 3
LEAST_OF_A_PORTION: Final = 20
SAMPLED_GROUPS: Final = 400
TURNS: Final = 3
"""Of a round, for what trainers, lists, pages of groups and exports ask: of twenty samples, two are above the p95."""
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


def list_calls(only: Sequence[str]) -> Iterator[Callable[[Side], Iterator[tuple[str, float]]]]:
    """Of one round, in their order: of routes that have one of these texts in their names."""

    def is_wanted(name: str) -> bool:
        return not only or any(one in name for one in only)

    for environment, named in (("gsm8k", LONG_RUN), (ARENA, ARENA_RUN)):
        if is_wanted(f"POST next-batch, POST score, {environment}"):
            yield from [partial(train, environment=environment, run=named)] * TURNS
    if is_wanted("POST /labels/next"):
        yield label
    for name, path in ASKED.items():
        if is_wanted(name):
            yield from [partial(_ask_once, name=name, path=path)] * (TURNS if name in PAGES | LISTS else 1)
    for name, path in EXPORTS.items():
        if is_wanted(name):
            yield from [partial(_await_once, name=name, path=path)] * TURNS


def _ask_once(side: Side, name: str, path: Callable[[Side], str]) -> Iterator[tuple[str, float]]:
    yield name, ask(side, path(side))


def _await_once(side: Side, name: str, path: Callable[[Side], str]) -> Iterator[tuple[str, float]]:
    yield name, await_first_byte(side, path(side))


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
    def is_page(self) -> bool:
        return "/view/" in self.route or self.route == "GET /"

    @property
    def missed(self) -> str:
        few, many = self.percentiles(0.95)
        if self.is_page and many > MOST_OF_A_PAGE:
            return f" (missed: at most {MOST_OF_A_PAGE:.0f} ms)"
        return "" if many <= MOST * few else f" (missed: at most {MOST})"

    def cut(self, rounds: int) -> list["Timing"]:
        """Portions of the rounds, one after the other."""
        count = max(1, min(MOST_PORTIONS, rounds // LEAST_OF_A_PORTION))
        few, many = (len(times) // count for times in (self.few, self.many))
        return [
            Timing(self.route, self.few[n * few : (n + 1) * few], self.many[n * many : (n + 1) * many])
            for n in range(count)
        ]

    def list_figures(self, database: str, rounds: int) -> Iterator[BenchmarkFigure]:
        """Of p95: times that of the small store, and milliseconds in the large one."""
        late = [portion.percentiles(0.95) for portion in self.cut(rounds)]
        name, ratios = f"`{self.route}`", [many / few for few, many in late]
        yield BenchmarkFigure.of(name, ratios, at_most=MOST, column=f"{database}: p95, times that of the small store")
        yield BenchmarkFigure.of(name, [many for _, many in late], "ms", column=f"{database}: p95")

    def report(self) -> str:
        middle, late = self.percentiles(0.5), self.percentiles(0.95)
        cells = [f"{value:.1f}" for value in (*middle, *late)]
        calls, read = (_choose_percentile([one[place] for one in self.reads], 0.5) for place in (0, 1))
        ratios = f"{middle[1] / middle[0]:.2f} | {late[1] / late[0]:.2f}{self.missed}"
        return f"| `{self.route}` | {' | '.join(cells)} | {ratios} | {calls:.0f} | {read / 1024:.0f} |"


def _choose_percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def measure_routes(few: Side, many: Side, rounds: int, only: Sequence[str]) -> list[Timing]:
    times: dict[str, Timing] = {}
    calls = list(list_calls(only))
    for number in count_rounds("every route of both stores", rounds + WARMING):
        for place, call in enumerate(calls):
            for side in (few, many) if (number + place) % 2 else (many, few):
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


def measure_starts(folder: Path, urls: Sequence[str], starts: int) -> list[tuple[float, float]]:
    """Seconds to /readyz of both, in turns; the first turn is not counted."""
    found = []
    for number in count_rounds("starts", starts + 1):
        seconds = [_measure_start(folder, url) for url in urls]
        if number:
            found.append((seconds[0], seconds[1]))
    return found


def _measure_start(folder: Path, url: str) -> float:
    with _served(folder, url) as gateway:
        return gateway.seconds_to_ready


def _served(folder: Path, url: str) -> AbstractContextManager[Served]:
    return serving(folder, settings={"ATROPOS_ENVS_DATABASE_URL": url, **POLICY}, python=sys.executable, migrated=False)


def compare(name: str, stores: KeptStores, chosen: argparse.Namespace) -> Iterator[BenchmarkFigure]:
    tell_progress(f"{name}: {stores.few_rollouts:,} and {stores.many_rollouts:,} rollouts, {stores.size}")
    urls, what = (stores.few, stores.many), f"{name}, {stores.many_rollouts:,} rollouts beside {stores.few_rollouts:,}"
    if chosen.starts:
        starts = measure_starts(stores.folder, urls, chosen.starts)
        yield BenchmarkFigure.of(f"{what}: start to `/readyz`", [many for _, many in starts], "s")
        ratios = [many / few for few, many in starts]
        yield BenchmarkFigure.of("the same, times that of the small store", ratios, at_most=MOST_OF_START)
    with _served(stores.folder, urls[0]) as one, _served(stores.folder, urls[1]) as other:
        few, many = Side(one, **sample(urls[0])), Side(other, **sample(urls[1]))
        few.is_warm = many.is_warm = chosen.warm
        for side in (few, many):
            side.tell_world()
        timings = measure_routes(few, many, chosen.rounds, chosen.only)
        memory = few.measure_memory(), many.measure_memory()
    _print_table(timings)
    for kind, megabytes in memory[1].items():
        yield BenchmarkFigure.of(f"{what}: memory, {kind}", [megabytes], "MB")
        yield BenchmarkFigure.of("the same, times that of the small store", [megabytes / memory[0][kind]])
    if pages := [timing.percentiles(0.95)[1] for timing in timings if timing.is_page]:
        yield BenchmarkFigure.of(f"{what}: the slowest page, p95", [max(pages)], "ms", at_most=MOST_OF_A_PAGE)
    for timing in timings:
        yield from timing.list_figures(name, chosen.rounds)
    if chosen.plans:
        missed = {one.route: ASKED[one.route](many) for one in timings if one.missed and one.route in ASKED}
        print_plans(urls[1], missed)


def _print_table(timings: Sequence[Timing]) -> None:
    print("| route | p50, ms: few | many | p95, ms: few | many | p50, times | p95, times | reads | KB of the disk |")
    print(f"|{' --- |' * 9}")
    print(*(timing.report() for timing in timings), sep="\n", flush=True)


def measure(chosen: argparse.Namespace) -> list[BenchmarkFigure]:
    figures: list[BenchmarkFigure] = []
    for name, keep, rollouts in (
        ("SQLite", keep_sqlite, chosen.rollouts),
        ("PostgreSQL", keep_postgres, chosen.postgres_rollouts),
    ):
        if rollouts:
            with keep(rollouts) as stores:
                figures += compare(name, stores, chosen)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=10_000_000, help="on SQLite; 0 leaves it out")
    parser.add_argument("--postgres-rollouts", type=int, default=2_000_000, help="on PostgreSQL; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--starts", type=int, default=3, help="of each gateway; 0 leaves them out")
    parser.add_argument("--only", nargs="+", default=(), help="routes that have one of these texts in their names")
    parser.add_argument("--warm", action="store_true", help="ask each address once before it is measured")
    parser.add_argument("--plans", action="store_true", help="print the plans of the routes that missed")
    parser.add_argument("--record", action="store_true", help="keep what was measured")
    chosen = parser.parse_args()
    kept = ["--record"] if chosen.record and not (chosen.only or chosen.warm) else []
    given = " ".join(word for word in sys.argv[1:] if word != "--record")
    run("growth", partial(measure, chosen), kept, given)


if __name__ == "__main__":
    main()
