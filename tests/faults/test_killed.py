"""SIGKILL at random moments under load: what was acknowledged is there, once, and the work goes on."""

import asyncio
import random
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.support.data_sets import numbered_rows
from tests.support.serving import Served, free_port, serving
from tests.support.tiers import is_quick

KILLS = 2 if is_quick() else 20
OF_A_LIFE = 100
"""The most groups that are acknowledged before a kill; all lives together leave some of the tasks."""
TASKS = 150 * KILLS
TRAINERS = 6
LEASE_SECONDS = 2
WAIT = 60.0
RUN = "killed"


@dataclass
class Seen:
    """What the trainers were told with status 200."""

    rewards: dict[str, list[float | None]] = field(default_factory=dict)
    scored_tasks: set[str] = field(default_factory=set)
    exhausted: bool = False


async def _train(client: httpx.AsyncClient, seen: Seen, trainer: int) -> None:
    attempt = 0
    while not seen.exhausted:
        ask = {"run": RUN, "split": "test", "batch_size": 8, "lease_seconds": LEASE_SECONDS}
        batch = (await client.post("/envs/gsm8k/next-batch", json=ask)).raise_for_status().json()
        seen.exhausted = seen.exhausted or batch["exhausted"]
        attempt += 1
        groups = [
            {
                "task_id": task["task_id"],
                "lease_id": task["lease_id"],
                "completions": [{"text": f"{trainer}.{attempt}: #### {place}"} for place in range(4)],
            }
            for task in batch["tasks"]
        ]
        if not groups:
            await asyncio.sleep(0.2)
            continue
        reply = (await client.post("/envs/gsm8k/score", json={"groups": groups, "run": RUN})).raise_for_status().json()
        for group in reply["groups"]:
            seen.rewards[group["group_id"]] = group["rewards"]
            if "late" not in group["flags"]:
                seen.scored_tasks.add(group["task_id"])


async def _load(url: str, seen: Seen) -> None:
    """Until the server is gone or everything is done."""
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        trainers = [asyncio.create_task(_train(client, seen, trainer)) for trainer in range(TRAINERS)]
        results = await asyncio.gather(*trainers, return_exceptions=True)
    wrong = [result for result in results if result is not None and not isinstance(result, httpx.TransportError)]
    assert wrong == []


async def _until_killed(gateway: Served, seen: Seen, chance: random.Random) -> None:
    """Somewhere in the work on the next group after so many."""
    enough = len(seen.rewards) + chance.randrange(OF_A_LIFE)

    async def kill() -> None:
        while len(seen.rewards) < enough:  # noqa: ASYNC110  # trainers tell nobody
            await asyncio.sleep(0.001)
        await asyncio.sleep(chance.uniform(0, 0.02))
        gateway.kill()

    async with asyncio.timeout(WAIT):
        await asyncio.gather(kill(), _load(gateway.url, seen))


def _integrity(database: Path) -> str:
    with sqlite3.connect(database) as connection:
        verdict: str = connection.execute("PRAGMA integrity_check").fetchone()[0]
    connection.close()
    return verdict


def _stored_ids(database: Path) -> list[str]:
    with sqlite3.connect(database) as connection:
        found = [row[0] for row in connection.execute("SELECT group_id FROM groups")]
    connection.close()
    return found


@pytest.mark.deep
def test_nothing_acknowledged_is_lost_and_leases_go_on(tmp_path: Path) -> None:
    chance = random.Random(20)
    seen = Seen()
    port = free_port()
    settings = {"ATROPOS_ENVS_DATASETS__GSM8K": str(numbered_rows(tmp_path / "data", TASKS))}
    kept: list[bool] = []
    for _ in range(KILLS):
        with serving(tmp_path, port=port, settings=settings) as gateway:
            asyncio.run(_until_killed(gateway, seen, chance))
        kept.append(_integrity(gateway.database) == "ok" and set(seen.rewards) <= set(_stored_ids(gateway.database)))
    assert not seen.exhausted, "the kills came too late to interrupt anything"
    with serving(tmp_path, port=port, settings=settings) as gateway:
        asyncio.run(_load(gateway.url, seen))
        told = {
            group_id: httpx.get(f"{gateway.url}/groups", params={"id": group_id}).json()["groups"][0]["rewards"]
            for group_id in chance.sample(sorted(seen.rewards), min(100, len(seen.rewards)))
        }
    stored = _stored_ids(gateway.database)
    assert kept == [True] * KILLS
    times = Counter(stored)
    assert {group_id: times[group_id] for group_id in seen.rewards} == dict.fromkeys(seen.rewards, 1)
    assert told == {group_id: seen.rewards[group_id] for group_id in told}
    with sqlite3.connect(gateway.database) as connection:
        done = connection.execute("SELECT count(DISTINCT position) FROM leases WHERE state = 'done'").fetchone()[0]
    connection.close()
    assert done == TASKS
