"""Sixteen trainers at once over 10,000 leased tasks, some of which die with tasks in their hands."""

import asyncio
import itertools
import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from tests.support.data_sets import numbered_rows
from tests.support.serving import serving

TASKS = 10_000
TRAINERS = 16
BATCH_SIZE = 40
LEASE_SECONDS = 4.0
DEATHS = 0.03
"""Share of batches whose holder is never heard of again."""


@dataclass(frozen=True)
class Held:
    task_id: str
    granted: float
    expires: float
    answered: bool


async def _train(client: httpx.AsyncClient, held: list[Held], luck: random.Random) -> None:
    while True:
        ask = {"run": "many", "split": "test", "batch_size": BATCH_SIZE, "lease_seconds": LEASE_SECONDS}
        batch = (await client.post("/envs/gsm8k/next-batch", json=ask)).raise_for_status().json()
        if batch["exhausted"]:
            return
        answered = luck.random() >= DEATHS
        if answered and batch["tasks"]:
            groups = [
                {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": [{"text": "#### 1"}]}
                for task in batch["tasks"]
            ]
            body = {"groups": groups, "run": "many"}
            replies = (await client.post("/envs/gsm8k/score", json=body)).raise_for_status().json()["groups"]
            assert [reply["flags"] for reply in replies] == [[]] * len(groups)
        for task in batch["tasks"]:
            expires = datetime.fromisoformat(task["lease_expires_at"]).timestamp()
            held.append(Held(task["task_id"], expires - LEASE_SECONDS, expires, answered))
        if not batch["tasks"]:
            await asyncio.sleep(0.2)


async def _all_trainers(url: str) -> list[Held]:
    held: list[Held] = []
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        await asyncio.gather(*(_train(client, held, random.Random(number)) for number in range(TRAINERS)))
    return held


@pytest.mark.slow
def test_no_task_has_two_live_holders_and_none_is_skipped(tmp_path: Path) -> None:
    data = numbered_rows(tmp_path / "data", TASKS)
    with serving(tmp_path, settings={"ATROPOS_ENVS_DATASETS__GSM8K": str(data)}) as gateway:
        held = asyncio.run(_all_trainers(gateway.url))
    by_task: dict[str, list[Held]] = defaultdict(list)
    for one in held:
        by_task[one.task_id].append(one)
    overlapping, answered_twice = [], []
    for task_id, holders in by_task.items():
        holders.sort(key=lambda one: one.granted)
        pairs = itertools.pairwise(holders)
        overlapping += [task_id for earlier, later in pairs if later.granted < earlier.expires]
        answered_twice += [task_id] * (sum(one.answered for one in holders) - 1)
    again = sum(len(holders) > 1 for holders in by_task.values())
    assert (len(by_task), overlapping, answered_twice, again > 0) == (TASKS, [], [], True)
