"""Ages of samples over HTTP: pacing across replicas, and trainers that take nothing but numbers. The rest is in
docs/semantics.md."""

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import cast

import httpx
import pytest
from pydantic import JsonValue
from starlette.types import Message

from app.domain.runs import Alarm, Hold
from app.features.health.store import SqlRunHealthStore
from tests.support.playground import World, gateway
from tests.support.store_cases import opened

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ALARM = Alarm(
    alarm_id="alarm_1",
    series="length",
    since_group=1,
    noticed_group=2,
    effect=0.1,
    statistic=6.0,
    limit=4.8,
    evidence="replies are longer",
    raised_at=NOW,
)
LIMIT: JsonValue = {"max_lag": 0, "lag_policy": "pace"}
NEXT = "/envs/toy/next-batch"


def ask(step: int, wait_seconds: float) -> dict[str, JsonValue]:
    return {"run": "a", "batch_size": 1, "policy": {"step": step}, "wait_seconds": wait_seconds}


def test_a_replica_waits_for_a_lease_of_another_until_it_is_answered(tmp_path: Path, migrated_file: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())

    async def scenario() -> tuple[int, bool, bool, bool]:
        async with AsyncExitStack() as running:
            one, other = [await running.enter_async_context(gateway(World(), path)) for _ in range(2)]
            await one.put("/runs/a", json=LIMIT)
            (task,) = (await one.post(NEXT, json=ask(1, 0))).json()["tasks"]
            began = monotonic()
            empty = await other.post(NEXT, json=ask(2, 0.3))
            held = monotonic() - began
            waiting = asyncio.ensure_future(other.post(NEXT, json=ask(2, 60)))
            await asyncio.sleep(0.3)
            early = waiting.done()
            answer: JsonValue = {name: task[name] for name in ("task_id", "lease_id")} | {
                "completions": [{"text": "1"}]
            }
            policy: JsonValue = {"model": "m", "step": 1}
            await one.post("/envs/toy/score", json={"policy": policy, "groups": [answer]})
            after = await asyncio.wait_for(waiting, 20)
            return len(after.json()["tasks"]), empty.json()["paced"], 0.3 <= held < 10, early

    assert asyncio.run(scenario()) == (1, True, True, False)


def test_a_limit_that_is_lifted_ends_the_wait(tmp_path: Path, migrated_file: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())

    async def scenario() -> int:
        async with gateway(World(), path) as client:
            await client.put("/runs/a", json=LIMIT)
            await client.post(NEXT, json=ask(1, 0))
            waiting = asyncio.ensure_future(client.post(NEXT, json=ask(2, 60)))
            await asyncio.sleep(0.1)
            await client.put("/runs/a", json={"lag_policy": "flag"})
            return len((await asyncio.wait_for(waiting, 20)).json()["tasks"])

    assert asyncio.run(scenario()) == 1


def test_a_run_that_an_alarm_holds_ends_the_wait(tmp_path: Path, migrated_file: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())

    async def scenario() -> tuple[int, str]:
        async with gateway(World(), path) as client, opened(f"sqlite:///{path}") as store:
            await client.put("/runs/a", json=LIMIT)
            await client.post(NEXT, json=ask(1, 0))
            waiting = asyncio.ensure_future(client.post(NEXT, json=ask(2, 60)))
            await asyncio.sleep(0.1)
            await store.part(SqlRunHealthStore).add_alarm(
                "a", ALARM, Hold(alarm_id="alarm_1", reason="length", since=NOW)
            )
            await client.put("/runs/a", json={"lag_policy": "flag"})
            refused = await asyncio.wait_for(waiting, 20)
            return refused.status_code, refused.json().get("code")

    assert asyncio.run(scenario()) == (409, "run_held")


async def leave(client: httpx.AsyncClient, method: str, path: str, query: str, body: JsonValue, seconds: float) -> None:
    """Asks as uvicorn does it for a client that closes its connection after so long. Returns when the service has
    noticed."""
    sent = [{"type": "http.request", "body": json.dumps(body).encode() if body else b"", "more_body": False}]

    async def receive() -> Message:
        left = leaves_at - monotonic()
        if sent and left > 0:
            return sent.pop()
        if left > 0:
            await asyncio.sleep(left)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    leaves_at = monotonic() + seconds
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
    }
    await asyncio.wait_for(cast(httpx.ASGITransport, client._transport).app(scope, receive, send), 20)


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        ("POST", NEXT, "", ask(2, 60)),
        ("GET", NEXT, "run=a&batch_size=1&step=2&wait_seconds=60", None),
        ("POST", "/next-batch", "", {**ask(2, 60), "mix": [{"env": "toy"}]}),
    ],
)
def test_a_client_that_leaves_while_it_waits_gets_no_leases(
    method: str, path: str, query: str, body: JsonValue, tmp_path: Path, migrated_file: Path
) -> None:
    store = tmp_path / "store.db"
    store.write_bytes(migrated_file.read_bytes())

    async def scenario() -> int:
        async with gateway(World(), store) as client:
            await client.put("/runs/a", json=LIMIT)
            await client.post(NEXT, json=ask(1, 0))
            waiting = asyncio.ensure_future(leave(client, method, path, query, body, 0.1))
            await asyncio.sleep(0.15)
            await client.put("/runs/a", json={"lag_policy": "flag"})
            await waiting
            return len((await client.post(NEXT, json={"run": "a", "batch_size": 4})).json()["tasks"])

    assert asyncio.run(scenario()) == 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("slime/toy?run=a", {"prompt": "", "response": "1", "label": "TASK"}),
        ("openrlhf/toy/get_reward?run=a", {"query": ["1"], "prompts": [""], "labels": ["TASK"]}),
    ],
)
def test_a_trainer_that_takes_only_numbers_is_told_that_its_run_drops(
    path: str, body: dict[str, JsonValue], tmp_path: Path, migrated_file: Path
) -> None:
    store = tmp_path / "store.db"
    store.write_bytes(migrated_file.read_bytes())

    async def scenario() -> list[httpx.Response]:
        async with gateway(World(), store) as client:
            task = (await client.post(NEXT, json={"batch_size": 1})).json()["tasks"][0]["task_id"]
            filled = {
                name: [task] if value == ["TASK"] else task if value == "TASK" else value
                for name, value in body.items()
            }
            replies = []
            for policy in ("drop", "flag"):
                await client.put("/runs/a", json={"max_lag": 1, "lag_policy": policy})
                replies.append(await client.post(f"/compat/{path}", json=filled))
            return replies

    dropped, flagged = asyncio.run(scenario())
    assert (dropped.status_code, flagged.status_code) == (422, 200)
    assert ("`lag_policy: drop`" in dropped.text, '"run"' in dropped.text) == (True, True)
