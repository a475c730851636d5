"""A policy is not scored by its own model, neither by the judge that is asked nor by the one behind it."""

from pathlib import Path

import httpx
import pytest

from app.judges.panel import ConfiguredPanels, build_chat_judges
from tests.support.chat_server import serving
from tests.support.judge_cases import config
from tests.support.playground import World, play
from tests.support.preferring import preferring


def reasons(database: Path, url: str, model: str, *allowed: str) -> list[str | None]:
    """Why replies of a policy with that model have no score. Judge `first` is model `small`, and `second`, which is
    asked where that one refuses, is model `Large`."""
    configs = [config(url, name="first", model="small"), config(url, name="second", model="Large")]
    judges = build_chat_judges(configs, {"first": "second"}, None)
    told: list[str | None] = []

    async def scene(client: httpx.AsyncClient) -> None:
        (task,) = (await client.post("/envs/arena/next-batch", json={"run": "a", "batch_size": 1})).json()["tasks"]
        group = {"task_id": task["task_id"], "completions": [{"text": "Aye, stranger."}, {"text": "No."}]}
        reply = await client.post("/score", json={"groups": [group], "policy": {"model": model}})
        told.extend(score["reason"] for score in reply.json()["groups"][0]["scores"])

    play(World(), database, scene, judging=ConfiguredPanels(judges, {}, fallback=("first",), self_judging=allowed))
    return told


@pytest.mark.parametrize(
    ("model", "allowed", "reason"),
    [
        ("tiny", (), None),
        ("Small", (), "self_judge"),
        ("small", ("first",), None),
        ("small", ("second",), "self_judge"),
        ("large", (), "self_judge"),
        ("large", ("second",), None),
    ],
)
def test_own_models_are_refused_unless_allowed_by_name(
    database: Path, model: str, allowed: tuple[str, ...], reason: str | None
) -> None:
    with serving(preferring) as server:
        assert reasons(database, server.url, model, *allowed) == [reason, reason]
        assert bool(server.received) == (reason is None)
