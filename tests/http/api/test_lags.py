"""Ages of samples over HTTP: pacing across replicas, and trainers that take nothing but numbers. The rest is in
docs/semantics.md."""

import asyncio
import json
from pathlib import Path
from time import monotonic
from typing import cast

import httpx
import pytest
from pydantic import JsonValue
from starlette.types import Message

from app.domain.runs import Hold
from app.features.health.store import RunHealthStore
from tests.support.playground import WAIT, World, gateway
from tests.support.store_cases import alarm, opened

LIMIT: JsonValue = {"max_lag": 0, "lag_policy": "pace"}
NEXT = "/envs/toy/next-batch"


def ask(step: int, wait_seconds: float) -> dict[str, JsonValue]:
    return {"run": "a", "batch_size": 1, "policy": {"step": step}, "wait_seconds": wait_seconds}


async def test_a_replica_waits_for_a_lease_of_another_until_it_is_answered(database: Path) -> None:
    async with gateway(World(), database) as one, gateway(World(), database) as other:
        await one.put("/runs/a", json=LIMIT)
        (task,) = (await one.post(NEXT, json=ask(1, 0))).json()["tasks"]
        empty = await other.post(NEXT, json=ask(2, 0.3))
        waiting = asyncio.ensure_future(other.post(NEXT, json=ask(2, 60)))
        await asyncio.sleep(0.3)
        early = waiting.done()
        answer: JsonValue = {name: task[name] for name in ("task_id", "lease_id")} | {"completions": [{"text": "1"}]}
        policy: JsonValue = {"model": "m", "step": 1}
        await one.post("/envs/toy/score", json={"policy": policy, "groups": [answer]})
        after = await asyncio.wait_for(waiting, WAIT)
        assert (len(after.json()["tasks"]), empty.json()["paced"], early) == (1, True, False)


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_limit_that_is_lifted_or_an_alarm_that_holds_the_run_ends_the_wait(
    client: httpx.AsyncClient, database: Path, is_held: bool
) -> None:
    await client.put("/runs/a", json=LIMIT)
    await client.post(NEXT, json=ask(1, 0))
    waiting = asyncio.ensure_future(client.post(NEXT, json=ask(2, 60)))
    await asyncio.sleep(0.1)
    if is_held:
        async with opened(f"sqlite:///{database}") as store:
            hold = Hold(alarm_id="alarm_1", reason="length", since=alarm().raised_at)
            await store.part(RunHealthStore).add_alarm("a", alarm(), hold)
    await client.put("/runs/a", json={"lag_policy": "flag"})
    told = await asyncio.wait_for(waiting, WAIT)
    assert (told.status_code, told.json().get("code"), len(told.json().get("tasks", ()))) == (
        (409, "run_held", 0) if is_held else (200, None, 1)
    )


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
    await asyncio.wait_for(cast(httpx.ASGITransport, client._transport).app(scope, receive, send), WAIT)


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        ("POST", NEXT, "", ask(2, 60)),
        ("GET", NEXT, "run=a&batch_size=1&step=2&wait_seconds=60", None),
        ("POST", "/next-batch", "", {**ask(2, 60), "mix": [{"env": "toy"}]}),
    ],
)
async def test_a_client_that_leaves_while_it_waits_gets_no_leases(
    client: httpx.AsyncClient, method: str, path: str, query: str, body: JsonValue
) -> None:
    await client.put("/runs/a", json=LIMIT)
    await client.post(NEXT, json=ask(1, 0))
    waiting = asyncio.ensure_future(leave(client, method, path, query, body, 0.1))
    await asyncio.sleep(0.15)
    await client.put("/runs/a", json={"lag_policy": "flag"})
    await waiting
    assert len((await client.post(NEXT, json={"run": "a", "batch_size": 4})).json()["tasks"]) == 3


async def test_a_trainer_that_takes_only_numbers_is_told_that_its_run_drops(client: httpx.AsyncClient) -> None:
    task = (await client.post(NEXT, json={"batch_size": 1})).json()["tasks"][0]["task_id"]
    bodies: dict[str, JsonValue] = {
        "slime/toy?run=a": {"prompt": "", "response": "1", "label": task},
        "openrlhf/toy/get_reward?run=a": {"query": ["1"], "prompts": [""], "labels": [task]},
    }
    replies = []
    for policy in ("drop", "flag"):
        await client.put("/runs/a", json={"max_lag": 1, "lag_policy": policy})
        replies += [await client.post(f"/compat/{path}", json=body) for path, body in bodies.items()]
    assert [reply.status_code for reply in replies] == [422, 422, 200, 200]
    assert ["`lag_policy: drop`" in reply.text and '"run"' in reply.text for reply in replies[:2]] == [True] * 2
