"""SIGKILL while groups wait for pieces: whoever lives scores them when their time is over."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue

from tests.support.data_sets import numbered_rows
from tests.support.databases import Postgres
from tests.support.serving import Served, serving

pytestmark = pytest.mark.slow

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
