"""Ages of samples over HTTP: pacing across replicas, and trainers that take nothing but numbers. The rest is in
docs/semantics.md."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

import httpx
import pytest
from pydantic import JsonValue

from tests.support.playground import World, gateway

LIMIT: JsonValue = {"max_lag": 0, "lag_policy": "pace"}
NEXT = "/envs/toy/next-batch"


def ask(step: int, wait_seconds: float) -> JsonValue:
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
