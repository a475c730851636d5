"""What statistics and items to label take with a million rollouts stored, over a nearly empty store with as many rows.

Both stores are filled by raw inserts and counted as `db rebuild-statistics` counts; then both are served, and asked
in turns. `python -m benchmarks.statistics_routes [ROLLOUTS]`
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from sqlalchemy import Connection, insert

from app.domain.groups import Group, Rollout, TaskPrompt, TaskRecord
from app.domain.health_records import HealthReading
from app.domain.runs import Pin, Policy, Run
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Message, TaskKey
from app.store.database import open_writer
from app.store.group_rows import build_criterion_rows, build_group_row, build_rollout_row
from app.store.health_tables import health_readings, run_anchors
from app.store.judge_tables import run_costs
from app.store.lease_tables import leases, streams
from app.store.rows import encode, insert_rows
from app.store.store import Store
from app.store.tables import groups, rollouts, scores
from tests.support.databases import MIGRATIONS, read_migrated_store
from tests.support.serving import serving

STEPS: Final = 50
CHARACTERS: Final = 8
GROUP_SIZE: Final = 8
TASKS: Final = 400
TIMES: Final = 40
ROUTES: Final = (
    *("/stats", "/stats?env=npc_arena&run=run-0", "/stats?by=character", "/stats?by=judge", "/stats?judge=ann"),
    *("/runs", "/runs/run-0", "/", "/view/stats", "/view/stats?run=run-0", "/judges", "/readyz"),
    *("/runs/run-0/health", "POST /labels/next"),
)
NOW: Final = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Timing:
    route: str
    few_ms: float
    many_ms: float
    few_bytes: int
    many_bytes: int

    @property
    def ratio(self) -> float:
        return self.many_ms / self.few_ms


def list_tasks() -> list[TaskRecord]:
    return [
        TaskRecord(
            task_id=f"task_{index}",
            key=TaskKey(
                environment="npc_arena", version="1", data_digest="d", split="train", index=index, params={"level": 1}
            ),
            prompt=TaskPrompt(messages=(Message(role="user", content=f"Who goes there? ({index})"),)),
            label=f"character_{index % CHARACTERS}",
        )
        for index in range(TASKS)
    ]


def make_group(number: int) -> Group:
    """Steps and characters take turns, so that a few groups already have every row of the replies."""
    scores_ = [
        Score(
            outcome="scored",
            reward=(number * 7 + place * 13) % 101 / 101,
            gate=1.0,
            absolute=(number * 3 + place * 29) % 97 / 97,
            criteria=tuple(
                Criterion(name=name, value=(number + place * part) % 5 / 4, weight=1 / 3)
                for part, name in enumerate(("in_character", "voice", "lore"), start=1)
            ),
            judges=("ann",),
        )
        for place in range(GROUP_SIZE)
    ]
    return Group(
        group_id=f"group_{number:032x}",
        task_id=f"task_{number % TASKS}",
        environment="npc_arena",
        run="run-0",
        lease_id=f"lease_{number}",
        policy=Policy(model="m", step=number // CHARACTERS % STEPS),
        purpose="train",
        outcome="scored",
        rollouts=tuple(
            Rollout(
                rollout_id=f"group_{number:032x}-{place}",
                completion=Completion(text=f"Nobody but the ferryman, who is {number + place} years old. " * 4),
                score=score,
            )
            for place, score in enumerate(scores_)
        ),
        created_at=NOW,
    )


def list_rows(number: int, templates: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The rows of a group, by a template whose digits are replaced: to encode a million scores takes minutes."""
    template = templates[number % len(templates)]
    group_id = f"group_{number:032x}"
    step = number // CHARACTERS % STEPS
    here = {"group_sequence": 1 + number}
    return {
        "group": template["group"] | {"group_id": group_id, "step": step, "task_id": f"task_{number % TASKS}"},
        "rollouts": [row | here | {"rollout_id": f"{group_id}-{row['position']}"} for row in template["rollouts"]],
        "scores": [row | here for row in template["scores"]],
    }


def build_template(number: int) -> Mapping[str, Any]:
    group = make_group(number)
    return {
        "group": build_group_row(group) | {"counted": 0, "reduced": None},
        "rollouts": [build_rollout_row(0, place, one) for place, one in enumerate(group.rollouts)],
        "scores": [
            row for place, one in enumerate(group.rollouts) for row in build_criterion_rows(0, place, one.score)
        ],
    }


def build_reading_row(number: int) -> dict[str, object]:
    """Of one of eight anchors, as one is read every 18 groups."""
    reading = HealthReading(
        reading_id=f"health_{number}",
        run="run-0",
        environment="npc_arena",
        label=f"character_{number % 8}",
        group_id=f"group_{number % 8:032x}",
        kind="anchor",
        judges=("ann",),
        at_group=18 * number,
        values=tuple((number % 8 + place) / 16 for place in range(GROUP_SIZE)),
        tokens=1000,
    )
    kept = reading.model_dump(include={"reading_id", "run", "group_id", "kind", "at_group", "tokens"})
    return kept | {
        "failed": False,
        "cost_usd": None,
        "body": encode(reading),
        "judgements": "[]",
        "created_at": 0,
    }


def fill(connection: Connection, count: int) -> None:
    templates = [build_template(number) for number in range(STEPS * CHARACTERS)]
    made: Iterator[Mapping[str, Any]] = (list_rows(number, templates) for number in range(count))
    while some := list(islice(made, 2_000)):
        insert_rows(connection, groups, [one["group"] for one in some])
        insert_rows(connection, rollouts, [row for one in some for row in one["rollouts"]])
        insert_rows(connection, scores, [row for one in some for row in one["scores"]])
    stream = {
        **{"run": "run-0", "digest": "s", "environment": "npc_arena", "split": "train", "params": "{}"},
        **{"params_digest": "p", "select": "{}", "position": count, "handed_out": count, "created_at": 0},
    }
    connection.execute(insert(streams), stream)
    lease: dict[str, str | int] = {
        **{"run": "run-0", "stream": "s", "environment": "npc_arena", "split": "train", "params_digest": "p"},
        **{"epoch": 0, "generation": 1, "state": "done", "expires_at": 0, "created_at": 0},
    }
    done: list[dict[str, str | int]] = [
        lease | {"lease_id": f"lease_{n}", "index": n % TASKS, "position": n, "group_id": f"group_{n:032x}"}
        for n in range(count)
    ]
    connection.execute(insert(leases), done)
    anchors = [{"run": "run-0", "group_sequence": 1 + number, "created_at": 0} for number in range(8)]
    connection.execute(insert(run_anchors), anchors)
    connection.execute(insert(health_readings), [build_reading_row(number) for number in range(count // 18)])
    hours = max(1, count // 750)  # a group takes five seconds
    spent = {column.name: 1 for column in run_costs.columns} | {"run": "run-0", "environment": "npc_arena"}
    connection.execute(insert(run_costs), [spent | {"hour": hour, "cost_usd": 0.1} for hour in range(hours)])


async def prepare(url: str, count: int) -> float:
    """The seconds that it took to count the groups."""
    store = Store.open(url, MIGRATIONS)
    await store.tasks.put(list_tasks())
    for number in range(50):
        await store.runs.create(Run(name=f"run-{number}", seed=1, created_at=NOW))
    await store.runs.pin("run-0", Pin(environment="npc_arena", version="1", scoring_digest="d", parts={}))
    engine = open_writer(url)
    with engine.begin() as connection:
        fill(connection, count)
    engine.dispose()
    began = time.perf_counter()
    while await store.statistics.count_groups(50):
        pass
    seconds = time.perf_counter() - began
    await store.close()
    return seconds


def ask(client: httpx.Client, route: str) -> tuple[float, int]:
    method, _, path = route.rpartition(" ")
    body = {"labeller": f"person {uuid4().hex}"} if method else None  # somebody new, so that a new item is drawn
    began = time.perf_counter()
    reply = client.request(method or "GET", path, json=body)
    seconds = time.perf_counter() - began
    reply.raise_for_status()
    return seconds * 1e3, len(reply.content)


def compare(few: httpx.Client, many: httpx.Client, route: str) -> Timing:
    pairs = [(ask(few, route), ask(many, route)) for _ in range(TIMES + 3)][3:]
    few_ms, many_ms = (statistics.median(pair[which][0] for pair in pairs) for which in (0, 1))
    return Timing(route, few_ms, many_ms, pairs[0][0][1], pairs[0][1][1])


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        counts = {"few": STEPS * CHARACTERS, "many": wanted // GROUP_SIZE}
        for name, count in counts.items():
            file = Path(folder) / name / "gateway.db"
            file.parent.mkdir()
            file.write_bytes(read_migrated_store())
            seconds = asyncio.run(prepare(f"sqlite:///{file}", count))
            size = file.stat().st_size / 2**20
            print(f"{name}: {count * GROUP_SIZE:,} rollouts in {size:,.0f} MB; counted in {seconds:.1f} s", flush=True)
        with (
            serving(Path(folder) / "few", python=sys.executable) as one,
            serving(Path(folder) / "many", python=sys.executable) as other,
        ):
            report(httpx.Client(base_url=one.url), httpx.Client(base_url=other.url))


def report(few: httpx.Client, many: httpx.Client) -> None:
    with few, many:
        for timing in [compare(few, many, route) for route in ROUTES]:
            print(
                f"{timing.route:32} {timing.few_ms:8.2f} {timing.many_ms:8.2f} ms  ratio {timing.ratio:5.2f}"
                f"   {timing.few_bytes:,} / {timing.many_bytes:,} bytes"
            )


if __name__ == "__main__":
    main()
