"""Another's environment of each kind under a gateway: what a trainer, a reader and an operator see of it."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from starlette.testclient import TestClient

from app.envs.mastermind.environment import Mastermind
from app.settings import Settings
from tests.support.foreign_episodes import SAID, Trainer, seed_of
from tests.support.openenv_server import count_reward, start
from tests.support.playground import WAIT, serve_here
from tests.support.resources_server import make_guess

CHILD = Path(__file__).parents[2] / "envs/foreign/scripted_child.py"


@dataclass(frozen=True)
class Foreign:
    """A small server, in one of the ways that one is served."""

    settings: dict[str, Any]
    says: Sequence[str]
    """What a model says in an episode."""
    shows: str
    """What the server answers to the first of that."""
    earn: Callable[[dict[str, Any]], float]
    """What that is worth in a task."""
    go: Callable[[], None]
    come: Callable[[str], None]
    """Again, as this version."""


@contextmanager
def serve_openenv(_: Path) -> Iterator[Foreign]:
    with ExitStack() as life:
        server = life.enter_context(start())
        port = int(server.url.rpartition(":")[2])

        def come(version: str) -> None:
            life.enter_context(start(port=port, version=version))

        yield Foreign(
            {"serve": "openenv", "url": server.url},
            SAID,
            "step 1: a",
            lambda task: count_reward(seed_of(task), SAID),
            life.close,
            come,
        )


@contextmanager
def serve_nemo_gym(folder: Path) -> Iterator[Foreign]:
    rows = folder / "rows.jsonl"
    rows.write_text('{"responses_create_params": {"input": []}, "secret": "e"}\n' * 3, encoding="utf-8")
    server = make_guess()
    with start_blocking_portal() as portal:
        portal.call(server.start)

        def come(version: str) -> None:
            server.version = version
            portal.call(server.start)

        yield Foreign(
            {"serve": "nemo_gym", "url": server.url, "rows": rows},
            ("x", "e"),
            "Not x.",
            lambda task: 0.75,
            lambda: portal.call(server.stop),
            come,
        )
        portal.call(server.stop)


@contextmanager
def serve_verifiers(folder: Path) -> Iterator[Foreign]:
    """The interpreter runs the scripted child in the place of ours, while there is a version."""
    python, version, process = folder / "python", folder / "version", folder / "process"
    version.write_text("1", encoding="utf-8")
    lines = f"echo $$ > {process}\n[ -f {version} ] || exit 3\nVERSION=$(cat {version}) exec {sys.executable} {CHILD}\n"
    python.write_text(f"#!/bin/sh\n{lines}", encoding="utf-8")
    python.chmod(0o700)

    def go() -> None:
        version.unlink()
        os.kill(int(process.read_text(encoding="utf-8")), signal.SIGKILL)

    def come(text: str) -> None:
        version.write_text(text, encoding="utf-8")

    yield Foreign(
        {"serve": "verifiers", "package": "any", "python": python, "trusted": True},
        ("hm", '{"messages": [], "done": true, "reward": 0.5}'),
        "Go on.",
        lambda task: 0.5,
        go,
        come,
    )


KINDS: dict[str, Callable[[Path], AbstractContextManager[Foreign]]] = {
    "openenv": serve_openenv,
    "nemo_gym": serve_nemo_gym,
    "verifiers": serve_verifiers,
}


@pytest.fixture(params=KINDS)
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Foreign]:
    with KINDS[request.param](tmp_path) as foreign:
        yield foreign


@pytest.fixture
def client(foreign: Foreign, tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(
        database_url=f"sqlite:///{tmp_path}/gateway.db",
        environments={"words": {**foreign.settings, "reward_range": [-10, 10]}},
    )
    with serve_here(settings, Mastermind, look_seconds=0.05) as client:
        await_down(client)
        yield client


def await_down(client: TestClient, *names: str) -> None:
    """Until these are down, and no others."""
    end = time.monotonic() + WAIT
    while client.get("/readyz").json().get("down", []) != [*names]:
        assert time.monotonic() < end
        time.sleep(0.02)


def flags_of(client: TestClient, run: str) -> list[list[str]]:
    """Of its groups, the newest first."""
    return [one["flags"] for one in client.get("/groups", params={"run": run}).json()["groups"]]


def test_it_is_served_as_ours_and_beside_them(foreign: Foreign, client: TestClient) -> None:
    trainer = Trainer(client)
    mix = [{"env": "words"}, {"env": "mastermind"}]
    tasks = client.post("/next-batch", json={"batch_size": 4, "run": "run", "mix": mix}).json()["tasks"]
    (ours, theirs) = ([task for task in tasks if task["environment"] == name] for name in ("mastermind", "words"))
    said: list[tuple[Any, Any]] = [(task, {"messages": trainer.play(task, foreign.says)}) for task in theirs]
    said += [(task, {"text": "<answer>AAA</answer>"}) for task in ours]
    groups = [{"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": [one]} for task, one in said]
    scored = client.post("/score", json={"run": "run", "groups": groups}).json()["groups"]
    page = client.get(f"/view/groups/{scored[0]['group_id']}").text
    about = client.get("/envs/words").json()["server"]
    assert {
        "earned": [one["rewards"] for one in scored[: len(theirs)]],
        "outcomes": {one["outcome"] for one in scored},
        "shown": foreign.shows in page,
        "server": (about["kind"], about["replayable"]),
        "mixed": sorted({task["environment"] for task in tasks}),
    } == {
        "earned": [[foreign.earn(task)] for task in theirs],
        "outcomes": {"scored"},
        "shown": True,
        "server": (foreign.settings["serve"], True),
        "mixed": ["mastermind", "words"],
    }


def test_it_is_down_without_its_server_and_a_run_notices_another_one(foreign: Foreign, client: TestClient) -> None:
    trainer = Trainer(client, run="kept")
    task = trainer.lease()
    earned = [trainer.score(task, trainer.play(task, foreign.says))]
    foreign.go()
    await_down(client, "words")
    refused = trainer.lease()
    foreign.come("2")
    await_down(client)
    following = trainer.lease()
    earned.append(trainer.score(following, trainer.play(following, foreign.says)))
    said = [{"role": "assistant", "content": "Hm."}]
    late = client.post("/envs/words/step", json={"task_id": task["task_id"], "messages": said}).status_code
    assert (refused, late, earned, flags_of(client, "kept")) == (
        (503, "environment_unavailable"),
        409,
        [[foreign.earn(task)], [foreign.earn(following)]],
        [["scoring_changed"], []],
    )
