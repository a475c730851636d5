"""SIGKILL while groups come in pieces: no piece is lost or counted twice, and nothing told is ever told otherwise."""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue

from tests.support.data_sets import numbered_rows
from tests.support.databases import Postgres
from tests.support.serving import Served, free_port, serving

pytestmark = pytest.mark.slow

KILLS = 4
TASKS = 60
RANKS = 4
WAIT = 30.0


def settings_of(folder: Path, tasks: int, deadline: float) -> dict[str, str]:
    return {
        "ATROPOS_ENVS_DATASETS__GSM8K": str(numbered_rows(folder / "data", tasks)),
        "ATROPOS_ENVS_PARTS__DEADLINE_SECONDS": str(deadline),
    }


def tasks_of(url: str, count: int) -> list[str]:
    ask = {"split": "test", "cursor": 0, "batch_size": count}
    batch = httpx.post(f"{url}/envs/gsm8k/next-batch", json=ask, timeout=WAIT).raise_for_status().json()
    return [task["task_id"] for task in batch["tasks"]]


def piece(task_id: str, rank: int, *texts: str, size: int = RANKS) -> dict[str, JsonValue]:
    completions: list[JsonValue] = [{"text": text} for text in texts]
    part: JsonValue = {"key": "k", "index": rank, "size": size}
    return {"task_id": task_id, "completions": completions, "part": part}


def groups_of(url: str, **query: str) -> list[Mapping[str, JsonValue]]:
    listed: list[Mapping[str, JsonValue]] = httpx.get(f"{url}/groups", params={"limit": "500"} | query).json()["groups"]
    return listed


def gathered(url: str, count: int) -> list[Mapping[str, JsonValue]]:
    """Groups that have their scores, once there are as many."""
    end = time.monotonic() + WAIT
    while len(found := groups_of(url, outcome="scored")) < count and time.monotonic() < end:
        time.sleep(0.05)
    return found


@dataclass
class Seen:
    """What ranks were told, by group."""

    rewards: dict[str, dict[int, list[float | None]]] = field(default_factory=dict)
    done: set[tuple[int, int]] = field(default_factory=set)


async def rank_(client: httpx.AsyncClient, rank: int, tasks: Sequence[str], seen: Seen) -> None:
    """Sends its piece of every group, several at a time."""
    limit = asyncio.Semaphore(8)

    async def send(number: int, task_id: str) -> None:
        async with limit:
            body = {"groups": [piece(task_id, rank, f"#### {number if rank % 2 else rank}")], "run": "killed"}
            reply = (await client.post("/envs/gsm8k/score", json=body)).raise_for_status().json()["groups"][0]
            assert seen.rewards.setdefault(reply["group_id"], {}).setdefault(rank, reply["rewards"]) == reply["rewards"]
            seen.done.add((number, rank))

    left = [(number, task_id) for number, task_id in enumerate(tasks) if (number, rank) not in seen.done]
    ends = await asyncio.gather(*(send(*one) for one in left), return_exceptions=True)  # no connection is left opening
    failed = [end for end in ends if end is not None]
    if failed:
        raise min(failed, key=lambda end: isinstance(end, httpx.TransportError))


async def load(gateway: Served, tasks: Sequence[str], seen: Seen, kill_after: int | None) -> None:
    """The gateway is killed when so many pieces were told their rewards."""

    async def kill(pieces: int) -> None:
        async with asyncio.timeout(WAIT):
            while len(seen.done) < pieces:  # noqa: ASYNC110  # ranks tell nobody
                await asyncio.sleep(0.001)
        gateway.kill()

    killer = None if kill_after is None else asyncio.create_task(kill(kill_after))
    async with httpx.AsyncClient(base_url=gateway.url, timeout=WAIT * 2) as client:
        ranks = (rank_(client, rank, tasks, seen) for rank in range(RANKS))
        results = await asyncio.gather(*ranks, return_exceptions=True)
    if killer is not None:
        await killer
    assert [one for one in results if one is not None and not isinstance(one, httpx.TransportError)] == []


def test_ranks_that_send_again_after_each_kill_find_every_group_whole(tmp_path: Path) -> None:
    chance = random.Random(7)
    seen, port = Seen(), free_port()
    settings = settings_of(tmp_path, TASKS, 600)
    with serving(tmp_path, port=port, settings=settings) as gateway:
        tasks = tasks_of(gateway.url, TASKS)
    of_a_life = TASKS * RANKS // (KILLS + 2)
    interrupted = 0
    for _ in range(KILLS):
        with serving(tmp_path, port=port, settings=settings) as gateway:
            asyncio.run(load(gateway, tasks, seen, len(seen.done) + chance.randrange(of_a_life // 2)))
        interrupted += len(seen.done) < TASKS * RANKS
    with serving(tmp_path, port=port, settings=settings) as gateway:
        asyncio.run(load(gateway, tasks, seen, None))
        stored = {str(group["group_id"]): group for group in groups_of(gateway.url)}
    told = {group_id: [ranks[rank][0] for rank in range(RANKS)] for group_id, ranks in seen.rewards.items()}
    assert interrupted == KILLS, "a kill came too late to interrupt anything"
    assert {group_id: group["rewards"] for group_id, group in stored.items()} == told
    assert ({str(group["flags"]) for group in stored.values()}, len(told)) == ({"[]"}, TASKS)


def test_what_was_open_is_judged_at_its_deadline_though_nobody_asks(tmp_path: Path) -> None:
    """Also where it was over while the service was down."""
    settings = settings_of(tmp_path, 2, 3)
    with serving(tmp_path, settings=settings) as gateway:
        tasks = tasks_of(gateway.url, 2)
        body = {"groups": [piece(task, 1, "#### 0", "none") for task in tasks], "wait_seconds": 0}
        told = httpx.post(f"{gateway.url}/score", json=body).raise_for_status().json()["groups"]
        gateway.kill()
    with serving(tmp_path, settings=settings) as gateway:
        found = gathered(gateway.url, 2)
        again = httpx.post(f"{gateway.url}/score", json=body).raise_for_status().json()["groups"]
    assert {group["outcome"] for group in told} == {"pending"}
    assert sorted((group["group_id"], group["rewards"], group["flags"]) for group in found) == sorted(
        (group["group_id"], group["rewards"], ["partial_group"]) for group in again
    )


@contextlib.contextmanager
def replicas(folder: Path, postgres: Postgres, deadline: float) -> Iterator[tuple[Served, Served]]:
    settings = settings_of(folder, 1, deadline) | {"ATROPOS_ENVS_DATABASE_URL": postgres.empty()}
    folders = [folder / name for name in ("one", "two")]
    for each in folders:
        each.mkdir()
    with serving(folders[0], settings=settings) as one, serving(folders[1], settings=settings) as two:
        yield one, two


def test_what_a_replica_had_in_hand_when_it_died_is_taken_up_by_another(tmp_path: Path, postgres: Postgres) -> None:
    with replicas(tmp_path, postgres, 4) as (one, two):
        (left,) = tasks_of(one.url, 1)
        body = {"groups": [piece(left, 0, "#### 0")], "wait_seconds": 0}
        httpx.post(f"{one.url}/score", json=body).raise_for_status()
        one.kill()
        found = gathered(two.url, 1)
    assert [(group["rewards"], group["flags"]) for group in found] == [([1], ["partial_group"])]
