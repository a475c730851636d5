"""examples/skyrl_env.py in released SkyRL-Gym, against a live gateway whose replies are lost now and then."""

import json
from pathlib import Path
from typing import Any

import httpx

from app.envs.tool_agent.environment import ToolAgent
from tests.support.commands import ended
from tests.support.lossy_gateway import losing_replies
from tests.support.preferring import FEWER
from tests.support.reward_trainers import Judged
from tests.trainers.conftest import away
from tests.trainers.installed import GYMS, do_job

NEEDS = (GYMS / ".installed",)
MULTI = {"turns": "multi"}
HERMES = {"tool_format": "hermes"}
COUNT = 24


def write_rows(judged: Judged, folder: Path, name: str, params: dict[str, Any], count: int) -> list[dict[str, Any]]:
    file = folder / f"{name}.jsonl"
    options = ("--for", "verl_agent", "--env", name, "--params", json.dumps(params), "--count", count)
    done = ended("tasks", file, *options, "--url", judged.gateway.url)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in file.read_text().splitlines()]


def play(
    folder: Path, url: str, rows: list[dict[str, Any]], actions: list[list[str]], *, patience: float = 900.0
) -> list[dict[str, Any]]:
    job = {"rows": rows, "actions": actions, "patience": patience}
    where = {"ATROPOS_ENVS_URL": url, "ATROPOS_ENVS_RUN": "skyrl"}
    told: list[dict[str, Any]] = do_job(folder, job, "skyrl_episodes.py", installed=GYMS, variables=where)[0]
    return told


def solve(judged: Judged) -> list[list[str]]:
    """What a model says that knows the solutions of tool_agent, in the format of its prompts."""
    environment = ToolAgent()
    solutions = []
    for task in judged.tasks("tool_agent", COUNT, params=HERMES):
        made = environment.task("train", task["metadata"]["index"], ToolAgent.Params.model_validate(HERMES))
        said = [one for one in environment.gold(made).messages or () if one.role == "assistant"]
        solutions.append([one.content or "" for one in said])
    return solutions


def test_rewards_are_those_of_the_native_route(judged: Judged, tmp_path: Path) -> None:
    """One reply, games, conversations, tools; one reply of the gateway in five is lost. Steps have parts of them."""
    httpx.put(f"{judged.gateway.url}/runs/skyrl", json={"options": {"turn_rewards": True}}).raise_for_status()
    guesses = [["<answer>AABB</answer>\n#### 4<|im_end|>"], ["Good evening. Sit down.", "Then go."]]
    named: dict[str, dict[str, Any]] = {"gsm8k": {}, "mastermind": {}, "npc_arena": MULTI, "tool_agent": HERMES}
    rows = [row for name, params in named.items() for row in write_rows(judged, tmp_path, name, params, COUNT)]
    actions = [guesses[place % 2] for place in range(3 * COUNT)] + solve(judged)
    with losing_replies(judged.gateway.url, 5) as lossy:
        told = play(tmp_path, lossy.url, rows, actions)
    paid, wanted = [], []
    for row, one in zip(rows, told, strict=True):
        group = {"task_id": row["task_id"], "completions": [{"messages": one["said"]}]}
        scored = judged.scored(row["data_source"], {"groups": [group], "run": "native"})
        criteria = {f"criterion_{each['name']}": each["value"] for each in scored["scores"][0]["criteria"]}
        paid.append((one["reward"], {name: one["metrics"].get(name) for name in criteria}))
        wanted.append((scored["rewards"][0], criteria))
    pages = {one["metadata"]["group"] for one in told}
    stored = {f"{lossy.url}/view/groups/{one}" for one in list_groups(judged)}
    assert (paid, pages) == (wanted, stored)
    assert (sum(one["reward"] for one in told[-COUNT:]), sum(lossy.lost.values()) > 20) == (COUNT, True)
    assert {name for one in told for name in one["metrics"]} >= {"absolute", "flagged", "judge_usd"}


def list_groups(judged: Judged) -> list[str]:
    reply = httpx.get(f"{judged.gateway.url}/groups", params={"run": "skyrl", "limit": 500})
    return [one["group_id"] for one in reply.raise_for_status().json()["groups"]]


def test_without_a_score_it_raises(judged: Judged, tmp_path: Path) -> None:
    rows = write_rows(judged, tmp_path, "rlaif", {"preference": FEWER}, 1)
    with away(judged.judge):
        told = play(tmp_path, judged.gateway.url, rows, [["Never, by no means."]], patience=1.0)
    assert told == [{"error": "no score: judge_failed"}]
