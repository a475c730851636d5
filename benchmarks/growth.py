"""What a gateway takes over a large store, over what it takes over a nearly empty one of the same shape.

`python -m benchmarks.growth [--rollouts N] [--postgres-rollouts N] [--rounds N]`: the stores are made once, and kept in
`.cache/growth`. Both are served, and asked in turns.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from sqlalchemy import create_engine, text

from app.store.database import parse_url
from benchmarks.kept_stores import KeptStores, keep_postgres, keep_sqlite
from benchmarks.seeded_stores import ARENA, ARENA_RUN, LONG_RUN, MIXED_RUN, Answers
from tests.support.serving import Served, serving

MOST: Final = 1.5
MOST_OF_START: Final = 2.0
SAMPLED_GROUPS: Final = 400
LEASED: Final = 4
"""Tasks of a hand-out; each is scored by a request of its own."""


@dataclass
class Side:
    """A store, served, with what requests name of it."""

    gateway: Served
    groups: Sequence[tuple[int, str, str, str]]
    """Some, drawn at random: sequence, id, task and environment."""
    character: str
    newest: int
    late: int
    """When nineteen of twenty were scored, in microseconds."""
    answers: Answers = field(default_factory=lambda: Answers(2))
    chance: random.Random = field(default_factory=lambda: random.Random(3))
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=self.gateway.url, timeout=120)

    @property
    def deep(self) -> int:
        """A place somewhere in the older half."""
        return self.chance.randrange(self.newest // 10, self.newest // 2)

    def draw(self, environment: str | None = None) -> tuple[int, str, str, str]:
        return self.chance.choice([one for one in self.groups if environment in (None, one[3])])

    def measure_memory(self) -> dict[str, float]:
        """Megabytes of the gateway's own process."""
        lines = Path(f"/proc/{self.gateway.process.pid}/status").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return {name: int(sizes[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")}


Path_ = Callable[[Side], str]

LISTS: Final[dict[str, Path_]] = {
    "GET /groups": lambda _: "/groups",
    "GET /groups?env=": lambda _: "/groups?env=mcqa",
    "GET /groups?run=": lambda _: f"/groups?run={MIXED_RUN}",
    "GET /groups?run=&env=": lambda _: f"/groups?run={MIXED_RUN}&env=mcqa",
    "GET /groups?run=&env=, none": lambda _: f"/groups?run={LONG_RUN}&env={ARENA}",
    "GET /groups?run=&outcome=, none": lambda _: f"/groups?run={LONG_RUN}&outcome=unscored",
    "GET /groups?outcome=unscored": lambda _: "/groups?outcome=unscored",
    "GET /groups?purpose=eval": lambda _: "/groups?purpose=eval",
    "GET /groups?run=&purpose=eval, none": lambda _: f"/groups?run={ARENA_RUN}&purpose=eval",
    "GET /groups?task_id=": lambda side: f"/groups?task_id={side.draw()[2]}",
    "GET /groups?before=": lambda side: f"/groups?before={side.deep}",
    "GET /groups?run=&before=": lambda side: f"/groups?run={LONG_RUN}&before={side.deep}",
    "GET /groups?env=&before=": lambda side: f"/groups?env={ARENA}&before={side.deep}",
    "GET /": lambda _: "/",
    "GET /?run=&environment=": lambda _: f"/?run={MIXED_RUN}&environment={ARENA}",
    "GET /?before=": lambda side: f"/?before={side.deep}",
}
PAGES: Final[dict[str, Path_]] = {
    "GET /groups/{id}, gsm8k": lambda side: f"/groups/{side.draw('gsm8k')[1]}",
    "GET /groups/{id}, npc_arena": lambda side: f"/groups/{side.draw(ARENA)[1]}",
    "GET /view/groups/{id}, npc_arena": lambda side: f"/view/groups/{side.draw(ARENA)[1]}",
    "GET /view/groups/{id}?run=&at=": lambda side: "/view/groups/{1}?run=mixed&at={0}".format(*side.draw()),
    "GET /groups?id=": lambda side: f"/groups?id={side.draw()[1]}",
    "GET /tasks/{id}": lambda side: f"/tasks/{side.draw()[2]}",
}
STATISTICS: Final[dict[str, Path_]] = {
    f"GET {path}": lambda _, path=path: path  # type: ignore[misc]
    for path in (
        *("/stats", f"/stats?env={ARENA}&run={ARENA_RUN}", "/stats?by=character", "/stats?by=judge"),
        *("/stats?judge=offline", "/runs", f"/runs/{LONG_RUN}", f"/runs/{ARENA_RUN}/health"),
        *("/view/stats", f"/view/stats?run={LONG_RUN}", "/judges", "/readyz", "/metrics"),
    )
}
EXPORTS: Final[dict[str, Path_]] = {
    "GET /export": lambda _: "/export",
    "GET /export?run=": lambda _: f"/export?run={MIXED_RUN}",
    "GET /export?env=": lambda _: "/export?env=mcqa",
    "GET /export?run=&env=": lambda _: f"/export?run={MIXED_RUN}&env={ARENA}&offline_judge=true",
    "GET /export?label=": lambda side: f"/export?label={side.character}&offline_judge=true",
    "GET /export?purpose=eval": lambda _: "/export?purpose=eval",
    "GET /export?since=": lambda side: f"/export?since={_tell_time(side.late)}",
    "GET /export?run=&since=": lambda side: f"/export?run={LONG_RUN}&since={_tell_time(side.late)}",
    "GET /export?shape=dpo&run=": lambda _: f"/export?shape=dpo&run={LONG_RUN}",
    "GET /export?shape=sft&format=parquet": lambda _: "/export?shape=sft&format=parquet",
}


def _tell_time(micros: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(micros / 1e6))


def ask(side: Side, path: str) -> float:
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


def list_calls() -> Iterator[Callable[[Side], Iterator[tuple[str, float]]]]:
    yield lambda side: train(side, "gsm8k", LONG_RUN)
    yield lambda side: train(side, ARENA, ARENA_RUN)
    yield label
    for name, path in (PAGES | LISTS | STATISTICS).items():
        yield lambda side, name=name, path=path: iter([(name, ask(side, path(side)))])  # type: ignore[misc]
    for name, path in EXPORTS.items():
        yield lambda side, name=name, path=path: iter([(name, await_first_byte(side, path(side)))])  # type: ignore[misc]


@dataclass(frozen=True)
class Timing:
    route: str
    few: Sequence[float]
    many: Sequence[float]

    def percentiles(self, share: float) -> tuple[float, float]:
        few, many = (sorted(times)[int(share * (len(times) - 1))] * 1e3 for times in (self.few, self.many))
        return few, many

    @property
    def ratio(self) -> float:
        few, many = self.percentiles(0.95)
        return many / few

    def report(self) -> str:
        cells = [f"{value:.1f}" for share in (0.5, 0.95) for value in self.percentiles(share)]
        middle = self.percentiles(0.5)
        verdict = "" if self.ratio <= MOST else f" (missed: at most {MOST})"
        return f"| `{self.route}` | {' | '.join(cells)} | {middle[1] / middle[0]:.2f} | {self.ratio:.2f}{verdict} |"


def measure(few: Side, many: Side, rounds: int) -> list[Timing]:
    times: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    calls = list(list_calls())
    for number in range(rounds + 3):
        for call in calls:
            for which in (0, 1) if number % 2 else (1, 0):
                for name, taken in call((few, many)[which]):
                    if number >= 3:  # the first warm up
                        times[name][which].append(taken)
    return [Timing(name, *both) for name, both in times.items()]


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
    return serving(folder, settings={"ATROPOS_ENVS_DATABASE_URL": url}, python=sys.executable, migrated=False)


def compare(name: str, stores: KeptStores, rounds: int, starts: int) -> None:
    print(f"## {name}: {stores.few_rollouts:,} and {stores.many_rollouts:,} rollouts, {stores.size}", flush=True)
    urls = (stores.few, stores.many)
    if starts:
        few_start, many_start = measure_starts(stores.folder, urls, starts)
        ratio = f"{many_start / few_start:.2f} times (at most {MOST_OF_START} are wanted)"
        print(f"start to /readyz: {few_start:.2f} and {many_start:.2f} s, {ratio}", flush=True)
    with _served(stores.folder, urls[0]) as one, _served(stores.folder, urls[1]) as other:
        few, many = Side(one, **sample(urls[0])), Side(other, **sample(urls[1]))
        timings = measure(few, many, rounds)
        memory = few.measure_memory(), many.measure_memory()
    print("| route | p50, ms: few | many | p95, ms: few | many | p50, times | p95, times |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(*(timing.report() for timing in timings), sep="\n")
    for kind in memory[0]:
        print(f"{kind}: {memory[0][kind]:.0f} and {memory[1][kind]:.0f} MB, {memory[1][kind] / memory[0][kind]:.2f}")
    print(f"load {os.getloadavg()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=10_000_000, help="on SQLite; 0 leaves it out")
    parser.add_argument("--postgres-rollouts", type=int, default=2_000_000, help="on PostgreSQL; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--starts", type=int, default=3, help="of each gateway; 0 leaves them out")
    chosen = parser.parse_args()
    if chosen.rollouts:
        with keep_sqlite(chosen.rollouts) as stores:
            compare("SQLite", stores, chosen.rounds, chosen.starts)
    if chosen.postgres_rollouts:
        with keep_postgres(chosen.postgres_rollouts) as stores:
            compare("PostgreSQL", stores, chosen.rounds, chosen.starts)


if __name__ == "__main__":
    main()
