"""Durable GSM8K scoring over HTTP, against the same grader and the same rows inserted by raw sqlite3 in one process."""

import asyncio
import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Completion, Task
from app.domain.values import NoParams
from app.envs.gsm8k.environment import Gsm8k
from app.ports.environment import Tools
from app.service.judging import NoPanel
from benchmarks.load import Load, post, send_all
from tests.support.serving import Served, serving

GROUPS_A_REQUEST = 16
GROUP_SIZE = 8
REQUESTS = 150
WARM_UP = 10
CONNECTIONS = 4
TABLES = ("groups", "rollouts", "scores")
ENV = "gsm8k"

Row = tuple[str | int | float | None, ...]


@dataclass(frozen=True)
class Batch:
    """One request's worth: the tasks, eight completions for each, and the request that carries them."""

    tasks: tuple[Task, ...]
    completions: tuple[tuple[Completion, ...], ...]
    request: bytes
    task_ids: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    gateway_groups_per_second: float
    limit_groups_per_second: float
    load: Load

    @property
    def ratio(self) -> float:
        return self.gateway_groups_per_second / self.limit_groups_per_second


def compare() -> Comparison:
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.db"
        with serving(Path(folder), python=sys.executable) as gateway:
            batches = list(build_batches(gateway.url, WARM_UP + REQUESTS))
            send_all(gateway.url, [batch.request for batch in batches[:WARM_UP]], CONNECTIONS)
            load = send_all(gateway.url, [batch.request for batch in batches[WARM_UP:]], CONNECTIONS)
        _copy_without_groups(gateway, empty)
        rows = _rows_by_batch(gateway, batches[WARM_UP:])
        seconds = _limit(empty, batches[WARM_UP:], rows)
    groups = REQUESTS * GROUPS_A_REQUEST
    return Comparison(groups / load.seconds, groups / seconds, load)


def build_requests(url: str, count: int, groups: int = GROUPS_A_REQUEST) -> list[bytes]:
    return [batch.request for batch in build_batches(url, count, groups)]


def build_batches(url: str, count: int, groups_each: int = GROUPS_A_REQUEST, first: int = 0) -> Iterator[Batch]:
    """`first` is the index of the first task."""
    environment = Gsm8k.open(ConfiguredDatasets({}))
    asks: list[bytes] = [
        post(f"/envs/{ENV}/next-batch", {"batch_size": groups_each, "cursor": first + groups_each * number})
        for number in range(count)
    ]
    for number, answer in enumerate(send_all(url, asks, 1).answers):
        indexes = range(first + groups_each * number, first + groups_each * (number + 1))
        tasks = tuple(environment.task("train", index, NoParams()) for index in indexes)
        completions = tuple(_completions(environment, task) for task in tasks)
        groups: list[JsonValue] = [
            {"task_id": handed["task_id"], "completions": [{"text": one.text} for one in group]}
            for handed, group in zip(json.loads(answer)["tasks"], completions, strict=True)
        ]
        body: JsonValue = {"groups": groups, "policy": {"model": "bench", "step": number}}
        ids = tuple(handed["task_id"] for handed in json.loads(answer)["tasks"])
        yield Batch(tasks, completions, post(f"/envs/{ENV}/score", body), ids)


def _completions(environment: Gsm8k, task: Task) -> tuple[Completion, ...]:
    """Half right, half wrong, all different, each as long as a worked solution."""
    gold = environment.gold(task)
    said = gold.text if gold is not None and gold.text is not None else ""
    thinking = "Let us work through this one step at a time and keep track of each amount. " * 3
    return tuple(
        Completion(text=f"Attempt {place}. {thinking}{said}" + ("" if place % 2 else f"\nNo, wait.\n#### {place}.5"))
        for place in range(GROUP_SIZE)
    )


def _copy_without_groups(gateway: Served, empty: Path) -> None:
    """The gateway's own file, schema and indexes, emptied of what scoring wrote."""
    shutil.copy(gateway.database, empty)
    with sqlite3.connect(empty) as connection:
        for table in reversed(TABLES):
            connection.execute(f"DELETE FROM {table}")  # noqa: S608  # names from the tuple above
    connection.close()


def _rows_by_batch(gateway: Served, batches: Sequence[Batch]) -> list[dict[str, list[Row]]]:
    """What the gateway stored, in equal portions: the order of rows within a table is the order they were written."""
    connection = sqlite3.connect(gateway.database)
    skipped = WARM_UP * GROUPS_A_REQUEST
    rows = {
        table: connection.execute(
            f"SELECT * FROM {table} WHERE {'sequence' if table == 'groups' else 'group_sequence'} > ?",  # noqa: S608
            (skipped,),
        ).fetchall()
        for table in TABLES
    }
    connection.close()
    share = {table: len(found) // len(batches) for table, found in rows.items()}
    return [
        {table: found[share[table] * number : share[table] * (number + 1)] for table, found in rows.items()}
        for number in range(len(batches))
    ]


def _limit(file: Path, batches: Sequence[Batch], rows: Sequence[dict[str, list[Row]]]) -> float:
    """Seconds to grade every completion and insert every ready-made row, a commit for each request's worth, with the
    gateway's pragmas."""
    environment = Gsm8k.open(ConfiguredDatasets({}))
    connection = sqlite3.connect(file, isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    inserts = {
        table: f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0][table][0]))})"  # noqa: S608
        for table in TABLES
    }
    tools = Tools(panel=NoPanel())

    async def run() -> float:
        began = time.perf_counter()
        for batch, portion in zip(batches, rows, strict=True):
            for task, group in zip(batch.tasks, batch.completions, strict=True):
                await environment.score(task, group, tools)
            connection.execute("BEGIN IMMEDIATE")
            for table in TABLES:
                connection.executemany(inserts[table], portion[table])
            connection.execute("COMMIT")
        return time.perf_counter() - began

    seconds = asyncio.run(run())
    connection.close()
    return seconds
