"""A policy is not scored by its own model, neither by the judge that is asked nor by the one behind it."""

from pathlib import Path

import pytest

from app.judges.panel import ConfiguredPanels, build_chat_judges
from tests.support.chat_server import serving
from tests.support.judge_cases import config
from tests.support.playground import World, gateway
from tests.support.preferring import preferring
from tests.support.tables import read_table

TABLE = read_table(__file__, "own_model.yaml", tuple[tuple[str, tuple[str, ...], str | None], ...])


@pytest.mark.parametrize(("model", "allowed", "reason"), TABLE)
async def test_own_models_are_refused_unless_allowed_by_name(
    database: Path, model: str, allowed: tuple[str, ...], reason: str | None
) -> None:
    """Judge `first` is model `small`, and `second`, which is asked where that one refuses, is model `Large`."""
    with serving(preferring) as server:
        configs = [config(server.url, name=name, model=own) for name, own in (("first", "small"), ("second", "Large"))]
        judges = build_chat_judges(configs, {"first": "second"}, None)
        judging = ConfiguredPanels(judges, {}, fallback=("first",), self_judging=allowed)
        async with gateway(World(), database, judging) as client:
            (task,) = (await client.post("/envs/arena/next-batch", json={"run": "a", "batch_size": 1})).json()["tasks"]
            group = {"task_id": task["task_id"], "completions": [{"text": "Aye, stranger."}, {"text": "No."}]}
            reply = await client.post("/score", json={"groups": [group], "policy": {"model": model}})
    told = [score["reason"] for score in reply.json()["groups"][0]["scores"]]
    assert (told, bool(server.received)) == ([reason, reason], reason is None)
