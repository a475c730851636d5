"""What a trainer, a dashboard and a person at the viewer ask of a store, whatever its size."""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from sqlalchemy import create_engine, text

from app.store.database import parse_url
from benchmarks.seeded_stores import ARENA, ARENA_RUN, LONG_RUN, MIXED_RUN, Answers
from tests.support.serving import Served

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
    answers: Answers = field(default_factory=lambda: Answers(2))
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
        return cls(gateway, [tuple(one) for one in groups], json.loads(label), newest, late, client)

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
        lines = Path(f"/proc/{self.gateway.process.pid}/status").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return {name: int(sizes[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")}


Call = Callable[[Side], Iterator[tuple[str, float]]]
"""Asks once or more; gives the names of routes, and the seconds that they took."""

OFTEN: Final = (
    *("/", "/groups", "/groups?outcome=unscored", "/groups?purpose=eval", "/groups?env=mcqa"),
    *(f"/groups?run={MIXED_RUN}", f"/groups?run={MIXED_RUN}&env=mcqa", f"/groups?run={LONG_RUN}&env={ARENA}"),
    *(f"/groups?run={LONG_RUN}&outcome=unscored", f"/groups?run={ARENA_RUN}&purpose=eval", "/groups?task_id={task}"),
    *("/groups?before={deep}", f"/groups?run={LONG_RUN}&before={{deep}}", f"/groups?env={ARENA}&before={{deep}}"),
    *(f"/view/groups?run={MIXED_RUN}&environment={ARENA}", "/view/groups?before={deep}", "/groups/{gsm8k}"),
    *("/groups/{npc_arena}", "/view/groups/{npc_arena}", f"/view/groups/{{group}}?run={MIXED_RUN}&at={{sequence}}"),
    *("/groups?id={group}", "/tasks/{task}"),
)
"""Lists, and pages of a group."""
FILTERS: Final = (
    *(f"environment={ARENA}", f"run={MIXED_RUN}", "outcome=scored", "outcome=pending", "purpose=train"),
    *("judge=offline", "judge=nobody", "model=nobody", "flag=truncated", "flag=low_signal", "reason=judge_failed"),
    *("min_step=5&max_step=6", "min_mean=0.9", "max_mean=0.1", "min_std=0.4", "max_std=0.01", "run=nobody"),
    *(f"run={LONG_RUN}&flag=nothing", f"environment={ARENA}&judge=nobody", "label=nobody", "label={character}"),
    *("task_id={task}", "since={late}", "until={late}", "before={deep}&flag=truncated"),
    *(f"run={MIXED_RUN}&environment={ARENA}&min_step=2", "text=thaw", "text=the", "text=nowhere"),
    *('text="when the bells are done"', "text=thaw+river+guild", f"run={LONG_RUN}&text=thaw", 'text="the the"'),
    "text=thaw&flag=nothing",
)
COMPARED: Final = (
    *("", f"first={ARENA_RUN}&first_steps=1&second_steps=8&judge=own", f"first={LONG_RUN}&second={MIXED_RUN}"),
    f"first={ARENA_RUN}&second={MIXED_RUN}&environment={ARENA}&judge=own",
    f"first={ARENA_RUN}&second={MIXED_RUN}&label={{character}}&judge=own",
)
PREVIEWED: Final = (
    *("", f"run={LONG_RUN}", f"run={MIXED_RUN}&environment={ARENA}&offline_judge=true&shape=dpo", "shape=labels"),
    *(f"run={LONG_RUN}&flag=nothing", "min_mean=0.9&shape=sft", "label={character}&offline_judge=true"),
)
ONCE: Final = (
    *(
        "/stats",
        f"/stats?env={ARENA}&run={ARENA_RUN}",
        "/stats?by=character",
        "/stats?by=judge",
        "/stats?judge=offline",
    ),
    *("/runs", f"/runs/{LONG_RUN}", f"/runs/{ARENA_RUN}/health", "/judges", "/readyz", "/metrics", "/sign-in"),
    *("/view/stats", f"/view/stats?run={LONG_RUN}", "/view/runs", "/view/runs?sort=-groups", f"/view/runs/{LONG_RUN}"),
    *(f"/view/runs/{ARENA_RUN}{more}" for more in ("", "?by=label", "?chart=reward")),
    *(f"/view/runs/{MIXED_RUN}?by=environment", f"/view/runs/{LONG_RUN}?with={MIXED_RUN}"),
    *(f"/view/{name}" for name in ("characters", "worlds", "judges", "atropos", "author", "label", "talk")),
    *("/view/label?labeller=ada", f"/view/label?labeller=ada&environment={ARENA}&run={ARENA_RUN}"),
    *("/view/label?group={npc_arena}", f"/view/talk?character={{character}}&world={WORLD}"),
    *(f"/view/worlds/{WORLD}{more}" for more in ("", "/write", "/events/event-7/edit")),
    *(f"/view/worlds/{WORLD}/{more}" for more in ("lorebooks/river/edit?line=toll", "why?character={character}&q=The")),
    *(f"/view/characters/{{character}}{more}" for more in ("", f"?run={ARENA_RUN}", "/edit", "/scenes/edit")),
    *(f"/view/compare?{words}" for words in COMPARED),
    *(f"/view/export?{words}" for words in PREVIEWED),
    *(f"/view/groups?{words}" for words in FILTERS),
    "/view/groups/{group}?flag=truncated&at={sequence}",
)
EXPORTS: Final = (
    *("/export", "/export?purpose=eval", "/export?shape=sft&format=parquet", f"/export?run={MIXED_RUN}"),
    *(f"/export?run={MIXED_RUN}&env={ARENA}&offline_judge=true", f"/export?shape=dpo&run={LONG_RUN}"),
    *("/export?env=mcqa", "/export?label={character}&offline_judge=true"),
    *("/export?since={late}", f"/export?run={LONG_RUN}&since={{late}}"),
)
"""To the first byte; all else to the last."""


def list_calls(only: Sequence[str] = ()) -> Iterator[Call]:
    """Of one round, in their order: of routes that have one of these texts in their names."""

    def is_wanted(name: str) -> bool:
        return not only or any(one in name for one in only)

    for environment, named in (("gsm8k", LONG_RUN), (ARENA, ARENA_RUN)):
        if is_wanted(f"POST next-batch, POST score, {environment}"):
            yield from [partial(_train, environment=environment, run=named)] * TURNS
    if is_wanted("POST /labels/next"):
        yield _label
    for paths, ask, turns in ((OFTEN, _ask, TURNS), (ONCE, _ask, 1), (EXPORTS, _await_first_byte, TURNS)):
        for path in paths:
            if is_wanted(f"GET {path}"):
                yield from [partial(ask, path=path)] * turns


def _train(side: Side, environment: str, run: str) -> Iterator[tuple[str, float]]:
    """A hand-out, and a score of each of its tasks."""
    taken, batch = _post(side, f"/envs/{environment}/next-batch", {"batch_size": LEASED, "run": run})
    yield f"POST next-batch of {LEASED}, {environment}", taken
    for task in batch["tasks"]:
        said = side.answers.answer(side.client, environment, task["task_id"])
        said[0] = {"text": f"{uuid4().hex} {said[0]['text']}"}
        group = {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": said}
        body = {"groups": [group], "run": run, "policy": {"model": "bench", "step": 9}}
        yield f"POST score, {environment}", _post(side, f"/envs/{environment}/score", body)[0]


def _label(side: Side) -> Iterator[tuple[str, float]]:
    """By somebody new, so that a new item is drawn."""
    yield "POST /labels/next", _post(side, "/labels/next", {"labeller": f"person {uuid4().hex}"})[0]


def _post(side: Side, path: str, body: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    reply = side.client.post(path, json=body)
    taken = time.perf_counter() - began
    return taken, reply.raise_for_status().json()


def _ask(side: Side, path: str) -> Iterator[tuple[str, float]]:
    address = side.fill(path)
    began = time.perf_counter()
    reply = side.client.get(address)
    taken = time.perf_counter() - began
    reply.raise_for_status()
    yield f"GET {path}", taken


def _await_first_byte(side: Side, path: str) -> Iterator[tuple[str, float]]:
    """On a connection of its own, which is closed when the first piece is there."""
    with httpx.Client(base_url=side.gateway.url, timeout=120) as client:
        address = side.fill(path)
        began = time.perf_counter()
        with client.stream("GET", address) as reply:
            reply.raise_for_status()
            next(reply.iter_raw(), b"")
            yield f"GET {path}", time.perf_counter() - began
