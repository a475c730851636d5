"""Rewards of steps over the wires whose clients add them up: they sum to the reward, where a run wants them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.settings import Settings
from tests.support.nemo_gym import build_response, build_row, say
from tests.support.openenv import talking
from tests.support.ors import read_stream
from tests.support.playground import World, environments, panels, serve_here

REPLIES: dict[str, tuple[str, ...]] = {"right": ("1", "3", "5"), "wrong": ("1", "2", "9")}
Rewards = list[float | None]


@pytest.fixture
def client(world: World, database: Path) -> Iterator[TestClient]:
    settings, kinds = Settings(database_url=f"sqlite:///{database}"), environments(world).values()
    with serve_here(settings, *kinds, panels=panels("critic"), retriever=world) as client:
        yield client


def play_openenv(client: TestClient, run: str, replies: tuple[str, ...]) -> Rewards:
    with talking(client, "ladder") as talk:
        talk.told("reset", index=0, run=run)
        return [talk.told("step", text=text)["reward"] for text in replies]


def play_ors(client: TestClient, run: str, replies: tuple[str, ...]) -> Rewards:
    url, session = "/compat/ors/ladder", {"X-Session-ID": f"{run} {replies}"}
    client.post(f"{url}/create", params={"run": run}, json={"split": "train", "index": 0}, headers=session)
    calls = [{"name": "reply", "input": {"text": text}} for text in replies]
    told = [client.post(f"{url}/call", params={"run": run}, json=call, headers=session).text for call in calls]
    return [read_stream(one)["output"]["reward"] for one in told]


def play_nemo_gym(client: TestClient, run: str, replies: tuple[str, ...]) -> Rewards:
    task = client.post("/envs/ladder/next-batch", json={"cursor": 0, "batch_size": 1}).json()["tasks"][0]
    row = build_row(task["task_id"], 0, len(replies))
    url = f"/compat/nemo_gym/ladder/run={run}"
    client.post(f"{url}/reset", json=row)
    steps = [client.post(f"{url}/step", json=row | {"response": build_response(say(text))}) for text in replies]
    return [one.json()["reward"] for one in steps]


@pytest.mark.parametrize(
    ("play", "unknown"), [(play_openenv, None), (play_ors, None), (play_nemo_gym, 0.0)], ids=["openenv", "ors", "nemo"]
)
def test_steps_add_up_to_the_reward_where_the_run_wants_parts(
    client: TestClient, play: Callable[[TestClient, str, tuple[str, ...]], Rewards], unknown: float | None
) -> None:
    client.put("/runs/parts", json={"options": {"turn_rewards": True}})
    told: dict[str, Any] = {
        f"{run} {name}": play(client, run, replies) for run in ("parts", "plain") for name, replies in REPLIES.items()
    }
    assert told == {
        "parts right": [0.25, 0.25, 0.5],
        "parts wrong": [0.25, unknown, -0.25],
        "plain right": [unknown, unknown, 1.0],
        "plain wrong": [unknown, unknown, 0.0],
    }
