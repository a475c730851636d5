"""What is pruned answers for itself: its address, its retries, and its task, which still scores."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue
from sqlalchemy import delete

from app.domain.retention import PruneRule
from app.service.requests import TaskBatch
from app.service.retention import Pruner
from app.store.database import open_writer
from app.store.tables import part_members, parts
from tests.support.playground import World, gateway
from tests.support.store_cases import opened

AFTER = datetime(2040, 1, 1, tzinfo=UTC)  # of all that the gateway's clock says


async def prune(database: Path) -> int:
    async with opened(f"sqlite:///{database}") as store:
        pruner = Pruner(store.retention, pauses=0.0)
        plan = await pruner.plan(PruneRule(before=AFTER))
        return (await pruner.prune(plan, lambda _: None)).groups


async def take_and_score(
    client: httpx.AsyncClient, environment: str = "toy"
) -> tuple[dict[str, JsonValue], dict[str, JsonValue], str]:
    """Of a task of a cursor and of a leased one: what is sent, and the group of the former."""
    leased = await client.post(f"/envs/{environment}/next-batch", json={"run": "a", "batch_size": 1})
    looked = await client.post(f"/envs/{environment}/next-batch", json={"run": "a", "batch_size": 1, "cursor": 7})
    (one,) = TaskBatch.model_validate_json(leased.content).tasks
    (other,) = TaskBatch.model_validate_json(looked.content).tasks
    with_lease: dict[str, JsonValue] = {
        "task_id": one.task_id,
        "lease_id": one.lease_id,
        "completions": [{"text": "3"}],
    }
    plain: dict[str, JsonValue] = {"task_id": other.task_id, "completions": [{"text": "1"}, {"text": "2"}]}
    reply = await client.post("/score", json={"run": "a", "groups": [with_lease, plain]})
    return with_lease, plain, reply.json()["groups"][1]["group_id"]


@pytest.mark.parametrize("environment", ["toy", "drill"])
def test_a_pruned_group_says_so_and_its_task_still_scores(environment: str, database: Path) -> None:
    """Also where groups are scored at once, without looking for known ones."""

    async def scenario() -> list[object]:
        async with gateway(World(), database) as client:
            with_lease, plain, group_id = await take_and_score(client, environment)
            pruned = await prune(database)
            seen = await client.get(f"/groups/{group_id}")
            page = await client.get(f"/view/groups/{group_id}", headers={"Accept": "text/html"})
            again = (await client.post("/score", json={"run": "a", "groups": [with_lease, plain]})).json()["groups"]
            new = plain | {"completions": [{"text": "8"}, {"text": "9"}]}
            mixed = (await client.post("/score", json={"run": "a", "groups": [plain, new]})).json()["groups"]
            stored = (await client.get("/groups")).json()["groups"]
            return [
                *(pruned, seen.status_code, seen.json()["code"], group_id in seen.json()["detail"], page.status_code),
                *([one.get("code") for one in again], [one.get("code") for one in mixed]),
                *(len(mixed[1]["rewards"]), len(stored)),
            ]

    seen = asyncio.run(scenario())
    codes = ["not_found", "pruned"], ["pruned", None]  # the lease went with its group
    assert seen == [2, 410, "pruned", True, 410, *codes, 2, 1]


def test_a_piece_of_a_pruned_group_is_refused(database: Path) -> None:

    async def scenario() -> list[object]:
        async with gateway(World(), database) as client:
            _, plain, _ = await take_and_score(client)
            part = plain | {"completions": [{"text": "1"}], "part": {"key": "k", "index": 0, "size": 1}}
            first = await client.post("/score", json={"run": "a", "groups": [part]})
            pruned = [await prune(database)]
            engine = open_writer(f"sqlite:///{database}")
            with engine.begin() as connection:  # as the service does after a day
                connection.execute(delete(part_members))
                connection.execute(delete(parts))
            engine.dispose()
            pruned.append(await prune(database))
            again = await client.post("/score", json={"run": "a", "groups": [part]})
            return [first.json()["groups"][0]["outcome"], pruned, again.status_code, again.json()["code"]]

    assert asyncio.run(scenario()) == ["scored", [2, 1], 410, "pruned"]
