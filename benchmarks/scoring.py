"""Durable GSM8K scoring over HTTP, in turns with the same grader and the same rows inserted by raw sqlite3.

Requests of a single group stand beside a bare FastAPI route that takes the same bodies as JSON objects and returns
them (`benchmarks.servers`): no model of ours, no work, nothing kept, the same uvicorn settings.
`python -m benchmarks.scoring [--record]` takes a minute.
"""

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Completion, Task
from app.domain.values import NoParams
from app.envs.gsm8k.environment import Gsm8k
from app.ports.environment import Tools
from app.service.judging import NoPanel
from benchmarks.bare_stores import open_bare, read_rows, write_rows
from benchmarks.load import Load, post, send_all
from benchmarks.results import BenchmarkFigure, count_rounds, run
from benchmarks.servers import ECHO_PATH, send_measured, serving_echo, serving_gateway
from tests.support.serving import Served

GROUPS_A_REQUEST = 16
GROUP_SIZE = 8
ROUNDS = 15
REQUESTS = 16
"""Of a round, each with so many groups."""
SINGLES = 64
"""Requests of a round with one group."""
CONNECTIONS = 4
SINGLES_AT_ONCE = (8, 64)
FIRST_SINGLE = 100_000
TABLES = ("groups", "rollouts")
ENV = "gsm8k"

Row = tuple[str | int | float | None, ...]


@dataclass(frozen=True)
class Batch:
    """One request's worth: the tasks, eight completions for each, and the request that carries them."""

    tasks: tuple[Task, ...]
    completions: tuple[tuple[Completion, ...], ...]
    request: bytes
    task_ids: tuple[str, ...]


SingleTurn = tuple[float, float, float, float]
"""Seconds of wall and of processor time: of the gateway, then of the echo."""


@dataclass(frozen=True)
class ScoringRound:
    load: Load
    limit_seconds: float
    singles: dict[int, SingleTurn]
    """By the number of connections."""


def measure() -> list[BenchmarkFigure]:
    with serving_gateway() as gateway, serving_echo() as (echo, echo_pid):
        send_all(gateway.url, build_requests(gateway.url, 10), CONNECTIONS)
        with open_bare(gateway.database, gateway.database.with_name("empty.db"), TABLES) as limit:
            rounds = [
                ScoringRound(
                    *_compare_with_limit(gateway, limit, number),
                    {width: _compare_with_echo(gateway, echo, echo_pid, number, width) for width in SINGLES_AT_ONCE},
                )
                for number in count_rounds("scoring", ROUNDS + 1)
            ]
    return list(_list_figures(rounds[1:]))  # the first one warms all up


def _compare_with_limit(gateway: Served, limit: sqlite3.Connection, number: int) -> tuple[Load, float]:
    batches = list(build_batches(gateway.url, REQUESTS, first=number * REQUESTS * GROUPS_A_REQUEST))
    known = _read_newest(gateway)
    load = send_all(gateway.url, [batch.request for batch in batches], CONNECTIONS)
    return load, _limit(limit, batches, _rows_by_batch(gateway, batches, known))


def build_requests(url: str, count: int, groups: int = GROUPS_A_REQUEST, first: int = 0) -> list[bytes]:
    return [batch.request for batch in build_batches(url, count, groups, first)]


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


def _read_newest(gateway: Served) -> int:
    with contextlib.closing(sqlite3.connect(gateway.database)) as connection:
        return int(connection.execute("SELECT coalesce(max(sequence), 0) FROM groups").fetchone()[0])


def _rows_by_batch(gateway: Served, batches: Sequence[Batch], skipped: int) -> list[dict[str, list[Row]]]:
    """What the gateway stored after these, in equal portions: the order of rows within a table is the order they were
    written."""
    later = {"groups": "sequence > :skipped", "rollouts": "group_sequence > :skipped"}
    rows = read_rows(gateway.database, later, {"skipped": skipped})
    share = {table: len(found) // len(batches) for table, found in rows.items()}
    return [
        {table: found[share[table] * number : share[table] * (number + 1)] for table, found in rows.items()}
        for number in range(len(batches))
    ]


def _limit(connection: sqlite3.Connection, batches: Sequence[Batch], rows: Sequence[dict[str, list[Row]]]) -> float:
    """Seconds to grade every completion and insert every ready-made row, a commit for each request's worth."""
    environment = Gsm8k.open(ConfiguredDatasets({}))
    connection.execute("PRAGMA foreign_keys = OFF")  # tasks that came since are not in the copy
    tools = Tools(panel=NoPanel())

    async def write() -> float:
        began = time.perf_counter()
        for batch, portion in zip(batches, rows, strict=True):
            for task, group in zip(batch.tasks, batch.completions, strict=True):
                await environment.score(task, group, tools)
            write_rows(connection, portion)
        return time.perf_counter() - began

    return asyncio.run(write())


def _compare_with_echo(gateway: Served, echo: str, echo_pid: int, number: int, connections: int) -> SingleTurn:
    first = FIRST_SINGLE + (number * len(SINGLES_AT_ONCE) + SINGLES_AT_ONCE.index(connections)) * SINGLES
    requests = [batch.request for batch in build_batches(gateway.url, SINGLES, 1, first)]
    score_path, echo_path = f" /envs/{ENV}/score ".encode(), f" {ECHO_PATH} ".encode()
    mine, used = send_measured(gateway.url, gateway.process.pid, requests, connections)
    echoed = [request.replace(score_path, echo_path, 1) for request in requests]
    theirs, used_by_echo = send_measured(echo, echo_pid, echoed, connections)
    return mine.seconds, used, theirs.seconds, used_by_echo


def _list_figures(rounds: Sequence[ScoringRound]) -> Iterator[BenchmarkFigure]:
    what = f"durable GSM8K scoring over HTTP, groups of {GROUP_SIZE}, {GROUPS_A_REQUEST} groups a request"
    count = REQUESTS * GROUPS_A_REQUEST
    yield BenchmarkFigure.of(what, [count / one.load.seconds for one in rounds], "groups/s")
    what = "the same grader and rows, raw `sqlite3` `executemany`, one process"
    yield BenchmarkFigure.of(what, [count / one.limit_seconds for one in rounds], "groups/s")
    yield BenchmarkFigure.of("ratio", [one.limit_seconds / one.load.seconds for one in rounds], at_least=0.5)
    for share in (0.5, 0.99):
        waits = [one.load.percentile(share) * 1e3 for one in rounds]
        yield BenchmarkFigure.of(f"a request, p{share * 100:.0f}", waits, "ms")
    for connections in SINGLES_AT_ONCE:
        turns = [one.singles[connections] for one in rounds]
        what = f"one group a request, {connections} connections"
        yield BenchmarkFigure.of(what, [SINGLES / turn[0] for turn in turns], "groups/s")
        echoed = [SINGLES / turn[2] for turn in turns]
        yield BenchmarkFigure.of(f"bare FastAPI echo of these bodies, {connections} connections", echoed, "a second")
        ratios = [turn[2] / turn[0] for turn in turns]
        yield BenchmarkFigure.of(f"ratio, {connections} connections", ratios, at_least=0.33)
        used = [turn[3] / turn[1] for turn in turns]
        yield BenchmarkFigure.of(f"the same by processor time, {connections} connections", used)


if __name__ == "__main__":
    run("scoring", measure)
