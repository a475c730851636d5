"""Several processes of one service on PostgreSQL: to a trainer they are one, though one of them is killed."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.support.databases import Postgres
from tests.support.serving import Served, serving

CONNECTIONS = 16
WAIT = 120.0


@dataclass(frozen=True)
class Shared:
    served: Served
    database: str
    log: Path
    key: str

    def client(self) -> httpx.AsyncClient:
        """One connection, to whichever process."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(base_url=self.served.url, headers=headers, timeout=60)

    def read_log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def processes(self) -> set[int]:
        """Those that live, of the metrics."""
        answer = httpx.get(f"{self.served.url}/metrics", timeout=60, headers={"Authorization": f"Bearer {self.key}"})
        return {int(pid) for pid in re.findall(r'process_open_fds\{pid="(\d+)"\}', answer.text)}

    def wait_for(self, count: int) -> None:
        """Until so many processes take connections: each begins when its own data is there."""
        end, answered = time.monotonic() + WAIT, set[int]()
        while len(answered) < count and time.monotonic() < end:
            httpx.get(f"{self.served.url}/livez", timeout=60)  # over a connection of its own
            answered = {line["process"] for line in self.read_log() if line.get("path") == "/livez"}

    def stored(self) -> set[str]:
        with psycopg.connect(self.database) as connection:
            return {row[0] for row in connection.execute("SELECT group_id FROM groups").fetchall()}


@pytest.fixture(scope="module")
def shared(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Beyond loopback, so that a key is made."""
    folder, database = tmp_path_factory.mktemp("processes"), postgres.migrated()
    settings = {
        "ATROPOS_ENVS_HOST": "0.0.0.0",
        "ATROPOS_ENVS_DATABASE_URL": database,
        "ATROPOS_ENVS_PROCESSES": "2",
        "ATROPOS_ENVS_LOG_LEVEL": "debug",
    }
    with serving(folder, settings=settings, python=sys.executable) as served:
        log = folder / "gateway.log"
        (key,) = re.findall(r"gw_[\w-]{20,}", log.read_text())
        found = Shared(served, database, log, key)
        found.wait_for(2)
        yield found


async def over_connections(shared: Shared, ask: Callable[[httpx.AsyncClient, int], Awaitable[Any]]) -> list[Any]:
    async def over_one(number: int) -> Any:
        async with shared.client() as client:
            return await ask(client, number)

    return await asyncio.gather(*map(over_one, range(CONNECTIONS)))


async def take(client: httpx.AsyncClient, run: str, size: int = 4) -> list[dict[str, Any]]:
    answer = await client.post("/envs/gsm8k/next-batch", json={"run": run, "batch_size": size})
    tasks: list[dict[str, Any]] = answer.raise_for_status().json()["tasks"]
    return tasks


def write_group(task: dict[str, Any], said: str) -> dict[str, Any]:
    completions = [{"text": f"{said}: #### {place}"} for place in range(4)]
    return {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": completions}


async def score(client: httpx.AsyncClient, run: str, group: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post("/envs/gsm8k/score", json={"groups": [group], "run": run})
    scored: dict[str, Any] = answer.raise_for_status().json()["groups"][0]
    return scored


@dataclass
class Trainer:
    """Takes a task and has it scored, again where a connection broke or nobody listened."""

    run: str
    acknowledged: set[str] = field(default_factory=set)
    leased: list[str] = field(default_factory=list)
    ending: bool = False

    async def train(self, shared: Shared) -> None:
        while not self.ending:
            try:
                async with shared.client() as client:
                    while not self.ending:
                        await self._step(client)
            except httpx.TransportError:
                await asyncio.sleep(0.05)

    async def _step(self, client: httpx.AsyncClient) -> None:
        (task,) = await take(client, self.run, 1)
        self.leased.append(task["lease_id"])
        self.acknowledged.add((await score(client, self.run, write_group(task, "reply")))["group_id"])

    async def go_on(self, groups: int) -> None:
        enough = len(self.acknowledged) + groups
        async with asyncio.timeout(WAIT):
            while len(self.acknowledged) < enough:  # noqa: ASYNC110  # trainers tell nobody
                await asyncio.sleep(0.02)


def test_every_process_answers_and_the_metrics_are_of_all(shared: Shared) -> None:
    async def list_environments(client: httpx.AsyncClient, _: int) -> int:
        return (await client.get("/envs")).status_code

    statuses = asyncio.run(over_connections(shared, list_environments))
    answered = {line["process"] for line in shared.read_log() if line.get("path") == "/envs"}
    shown = httpx.get(f"{shared.served.url}/metrics", headers={"Authorization": f"Bearer {shared.key}"}).text
    counted = re.findall(r'http_requests_total\{method="GET",route="/envs",status="200"\} (\S+)', shown)
    queues = re.findall(r"^atropos_envs_worker_queue (\S+)", shown, re.MULTILINE)
    assert (statuses, counted, queues) == ([200] * CONNECTIONS, [f"{CONNECTIONS}.0"], ["0.0"])
    assert answered == shared.processes()
    assert len(answered) == 2


async def test_what_is_sent_to_several_processes_at_once_is_scored_once(shared: Shared) -> None:
    before = shared.stored()
    async with shared.client() as client:
        (task,) = await take(client, "repeated", 1)
    group = write_group(task, "the same")
    replies = {
        (reply["group_id"], tuple(reply["rewards"]))
        for reply in await over_connections(shared, lambda client, _: score(client, "repeated", group))
    }
    assert (len(replies), shared.stored() - before) == (1, {group_id for group_id, _ in replies})


async def test_a_killed_process_is_replaced_while_the_others_serve(shared: Shared) -> None:
    trainers = [Trainer("killed") for _ in range(4)]
    before = shared.processes()
    killed = min(before)
    training = [asyncio.create_task(one.train(shared)) for one in trainers]
    await trainers[0].go_on(3)
    os.kill(killed, signal.SIGKILL)
    await asyncio.gather(*(one.go_on(5) for one in trainers))
    for one in trainers:
        one.ending = True
    await asyncio.gather(*training)
    async with asyncio.timeout(WAIT):
        while len(await asyncio.to_thread(shared.processes) - {killed}) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    said = [line["event"] for line in shared.read_log() if "has ended" in line["event"]]
    acknowledged = set().union(*(one.acknowledged for one in trainers))
    leased = [lease for one in trainers for lease in one.leased]
    assert said == [f"serving process {killed} has ended (signal 9)"]
    assert (len(shared.processes() - before), len(set(leased))) == (1, len(leased))
    assert acknowledged <= shared.stored()


def test_a_stop_ends_all_of_them_and_loses_nothing(shared: Shared) -> None:
    """The last one, since nothing serves afterwards."""
    trainers = [Trainer("stopped") for _ in range(4)]
    processes = shared.processes()

    async def stop() -> int:
        training = [asyncio.create_task(one.train(shared)) for one in trainers]
        await asyncio.gather(*(one.go_on(2) for one in trainers))
        shared.served.process.terminate()
        code = await asyncio.to_thread(shared.served.process.wait, WAIT)
        for one in trainers:
            one.ending = True
        await asyncio.gather(*training)
        return code

    code = asyncio.run(stop())
    left = [pid for pid in processes if Path(f"/proc/{pid}").exists()]
    acknowledged = set().union(*(one.acknowledged for one in trainers))
    assert (code, left, acknowledged <= shared.stored()) == (0, [], True)
