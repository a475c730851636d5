"""Rewards by turn over HTTP: what a run with the option is given, and that no other run is given anything else."""

from typing import Any

import httpx
import pytest

STEP, SCORE = "/envs/ladder/step", "/envs/ladder/score"


def told(*texts: str) -> list[dict[str, str]]:
    """Numbers of the model and of the ladder in turn."""
    return [{"role": ("assistant", "user")[place % 2], "content": text} for place, text in enumerate(texts)]


WHOLE = told("1", "2", "3", "4", "5")
STOPPED = told("1", "2", "3")
FORGED = told("1", "9", "3")
UNKNOWN = told("2", "3", "3", "4", "5")
CUT = {"messages": WHOLE, "finish_reason": "length"}
BROKEN = {"messages": WHOLE, "finish_reason": "error"}
COMPLETIONS: list[Any] = [{"messages": one} for one in (WHOLE, STOPPED, FORGED, UNKNOWN)] + [CUT, BROKEN, {"text": "5"}]


@pytest.fixture
async def task_id(client: httpx.AsyncClient) -> str:
    await client.put("/runs/parts", json={"options": {"turn_rewards": True}})
    batch = await client.post("/envs/ladder/next-batch", json={"run": "parts", "batch_size": 1})
    return str(batch.json()["tasks"][0]["task_id"])


async def score(client: httpx.AsyncClient, task_id: str, run: str) -> dict[str, Any]:
    groups = [{"task_id": task_id, "completions": COMPLETIONS}]
    (group,) = (await client.post(SCORE, json={"run": run, "groups": groups})).json()["groups"]
    return dict(group)


async def test_the_parts_of_an_episode_add_up_to_its_reward(client: httpx.AsyncClient, task_id: str) -> None:
    group = await score(client, task_id, "parts")
    stored = (await client.get(f"/groups/{group['group_id']}")).json()["group"]["rollouts"]
    again = (await client.post(f"/groups/{group['group_id']}/rescore", json={"on_truncated": "score"})).json()
    assert [(one["score"]["reward"], one["score"].get("turn_rewards")) for one in stored] == [
        (1.0, [0.25, 0.25, 0.5]),
        (0.0, [0.25, -0.25]),
        (0.0, [0.25, -0.25]),
        (1.0, [0.0, 0.25, 0.75]),
        (0.0, [0.25, 0.25, -0.5]),
        (None, None),
        (0.0, [0.0]),
    ]
    assert [one["score"] for one in stored] == group["scores"]
    assert [one.get("turn_rewards") for one in again["scoring"]["scores"]][4] == [0.25, 0.25, 0.5]


async def test_a_step_says_what_is_known_of_its_message(client: httpx.AsyncClient, task_id: str) -> None:
    asked = [(run, said) for run in ("parts", "other", None) for said in (WHOLE[:1], told("2"), WHOLE)]
    replies = [
        (await client.post(STEP, json={"task_id": task_id, "messages": said} | ({"run": run} if run else {}))).json()
        for run, said in asked
    ]
    plain = [{"messages": told("", one)[1:], "done": one == "6"} for one in ("2", "3", "6")]
    assert replies == [{**plain[0], "reward": 0.25}, *plain[1:], *plain, *plain]


async def test_a_run_without_the_option_is_scored_as_before(client: httpx.AsyncClient, task_id: str) -> None:
    without, parts = [await score(client, task_id, run) for run in ("plain", "parts")]
    own = ("turn_rewards", "scoring_digest")
    stripped = [{name: value for name, value in one.items() if name not in own} for one in parts["scores"]]
    assert [{name: value for name, value in one.items() if name != own[1]} for one in without["scores"]] == stripped
    assert (without["rewards"], without["advantages"]) == (parts["rewards"], parts["advantages"])


async def test_the_option_is_pinned(client: httpx.AsyncClient, task_id: str) -> None:
    later = await client.put("/runs/parts", json={"options": {"turn_rewards": False}})
    wrong = await client.put("/runs/new", json={"options": {"turn_rewards": "often"}})
    assert [(one.status_code, one.json()["errors"][0]["field"]) for one in (later, wrong)] == [
        (409, "options"),
        (422, "body.options.turn_rewards"),
    ]
