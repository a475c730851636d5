"""What a trainer, a dashboard and a person at the viewer ask of a store, whatever its size."""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import uuid4

import httpx
from sqlalchemy import create_engine, text

from app.store.database import parse_url
from benchmarks.seeded_stores import ARENA, ARENA_RUN, LONG_RUN, Trainer, build_group
from benchmarks.servers import read_megabytes
from tests.support.serving import Served
from tests.support.tables import read_table

SAMPLED_GROUPS: Final = 400
TURNS: Final = 3
"""Of a round, for what trainers, lists, pages of groups and exports ask: of twenty samples, two are above the p95."""
LEASED: Final = 4
"""Tasks of a hand-out; each is scored by a request of its own."""
WORLD: Final = "growth"
EVENTS: Final = tuple(
    {
        "id": f"event-{number}",
        "time": f"1312-04-{1 + number // 24:02}T{number % 24:02}:00:00Z",
        "text": f"The ferry crossed for the {number}th time, and the river guild asked for its toll.",
        "importance": number % 11,
    }
    for number in range(200)
)
POLICY: Final = {
    "ATROPOS_ENVS_POLICIES__NOBODY__BASE_URL": "http://127.0.0.1:9/v1",
    "ATROPOS_ENVS_POLICIES__NOBODY__MODEL": "nobody",
}
"""Which nobody asks: without one there is nothing to be seen of the page on which people talk."""


@dataclass(frozen=True)
class Side:
    """A store, served, with what requests name of it."""

    gateway: Served
    groups: Sequence[tuple[int, str, str, str]]
    """Some, drawn at random: sequence, id, task and environment."""
    character: str
    newest: int
    late: int
    """When nineteen of twenty were scored, in microseconds."""
    client: httpx.Client
    trainer: Trainer
    chance: random.Random = field(default_factory=lambda: random.Random(3))

    @classmethod
    def open(cls, gateway: Served, url: str) -> "Side":
        engine = create_engine(parse_url(url))
        with engine.connect() as connection:

            def ask(statement: str) -> Any:
                return connection.execute(text(statement)).all()

            ((newest,),) = ask("SELECT max(sequence) FROM groups")
            drawn = random.Random(4).sample(range(1, newest + 1), min(newest, SAMPLED_GROUPS))
            listed = ",".join(map(str, sorted(drawn)))
            groups = ask(f"SELECT sequence, group_id, task_id, environment FROM groups WHERE sequence IN ({listed})")  # noqa: S608
            ((late,),) = ask(f"SELECT created_at FROM groups WHERE sequence = {newest - newest // 20}")  # noqa: S608
            ((label,),) = ask(f"SELECT label FROM tasks WHERE environment = '{ARENA}' ORDER BY task_id LIMIT 1")  # noqa: S608
        engine.dispose()
        client = httpx.Client(base_url=gateway.url, timeout=120)
        return cls(gateway, [tuple(one) for one in groups], json.loads(label), newest, late, client, Trainer(client, 2))

    def fill(self, path: str) -> str:
        """Groups are drawn anew each time; `deep` is a place somewhere in the older half."""
        sequence, group, task, _ = self.chance.choice(self.groups)
        some = {
            one: self.chance.choice([each[1] for each in self.groups if each[3] == one]) for one in (ARENA, "gsm8k")
        }
        late = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.late / 1e6))
        deep = self.chance.randrange(self.newest // 10, self.newest // 2)
        drawn = {"sequence": sequence, "group": group, "task": task, "late": late, "deep": deep, **some}
        return path.format(character=self.character, **drawn)

    def tell_world(self) -> None:
        """What was told already stays as it is."""
        self.client.post(f"/worlds/{WORLD}/events", json={"events": EVENTS}).raise_for_status()
        entry = {"id": "toll", "keys": ["toll", "guild"], "content": "The guild takes a copper of each fare."}
        self.client.put(f"/worlds/{WORLD}/lorebooks/river", json={"entries": [entry]}).raise_for_status()

    def measure_memory(self) -> dict[str, float]:
        """Megabytes of the gateway's own process."""
        sizes = read_megabytes(self.gateway.process.pid)
        return {name: sizes[name] for name in ("VmRSS", "RssAnon")}


Call = Callable[[Side], Iterator[tuple[str, float]]]
"""Asks once or more; gives the names of routes, and the seconds that they took."""

ASKED: Final = read_table(__file__, "growth_routes.yaml", dict[str, tuple[str, ...]])


def list_calls(only: Sequence[str] = ()) -> Iterator[Call]:
    """Of one round, in their order: of routes that have one of these texts in their names."""

    def is_wanted(name: str) -> bool:
        return not only or any(one in name for one in only)

    for environment, named in (("gsm8k", LONG_RUN), (ARENA, ARENA_RUN)):
        if is_wanted(f"POST next-batch, POST score, {environment}"):
            yield from [partial(_train, environment=environment, run=named)] * TURNS
    if is_wanted("POST /labels/next"):
        yield _label
    for kind, ask, turns in (("often", _ask, TURNS), ("once", _ask, 1), ("exports", _await_first_byte, TURNS)):
        for path in ASKED[kind]:
            if is_wanted(f"GET {path}"):
                yield from [partial(ask, path=path)] * turns


def _train(side: Side, environment: str, run: str) -> Iterator[tuple[str, float]]:
    """A hand-out, and a score of each of its tasks."""
    taken, batch = _post(side, f"/envs/{environment}/next-batch", {"batch_size": LEASED, "run": run})
    yield f"POST next-batch of {LEASED}, {environment}", taken
    for task in batch["tasks"]:
        said = side.trainer.answer(environment, task["task_id"])
        said[0] = {"text": f"{uuid4().hex} {said[0]['text']}"}
        body = {"groups": [build_group(task, said)], "run": run, "policy": {"model": "bench", "step": 9}}
        yield f"POST score, {environment}", _post(side, f"/envs/{environment}/score", body)[0]


def _label(side: Side) -> Iterator[tuple[str, float]]:
    """By somebody new, so that a new item is drawn."""
    yield "POST /labels/next", _post(side, "/labels/next", {"labeller": f"person {uuid4().hex}"})[0]


def _post(side: Side, path: str, body: Any) -> tuple[float, Any]:
    taken, reply = _send(side, "POST", path, json=body)
    return taken, reply.json()


def _ask(side: Side, path: str) -> Iterator[tuple[str, float]]:
    yield f"GET {path}", _send(side, "GET", side.fill(path))[0]


def _send(side: Side, method: str, path: str, **more: Any) -> tuple[float, httpx.Response]:
    began = time.perf_counter()
    reply = side.client.request(method, path, **more)
    taken = time.perf_counter() - began
    return taken, reply.raise_for_status()


def _await_first_byte(side: Side, path: str) -> Iterator[tuple[str, float]]:
    """On a connection of its own, which is closed when the first piece is there."""
    with httpx.Client(base_url=side.gateway.url, timeout=120) as client:
        address = side.fill(path)
        began = time.perf_counter()
        with client.stream("GET", address) as reply:
            reply.raise_for_status()
            next(reply.iter_raw(), b"")
            yield f"GET {path}", time.perf_counter() - began
