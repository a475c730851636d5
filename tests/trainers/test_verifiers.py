"""verifiers' released OpenEnv task set, and ours under its released `Env`, against a live gateway."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support.openenv import PREFIX, right_actions
from tests.support.reward_trainers import judged_gateway
from tests.support.serving import Served
from tests.trainers.conftest import away
from tests.trainers.installed import VERIFIERS, do_job

NEEDS = (VERIFIERS / ".installed",)
SEED = 11


def play(gateway: Served, folder: Path, environment: str, *replies: list[str]) -> list[dict[str, Any]]:
    """What the task set records for the replies to one task."""
    job = {
        "base_url": f"{gateway.url}{PREFIX}/{environment}",
        "resets": [{"seed": SEED}] * len(replies),
        "replies": replies,
    }
    told: list[dict[str, Any]] = do_job(folder, job, "verifiers_openenv.py", installed=VERIFIERS)[0]
    return told


def played(reward: float, *, turns: int = 1, stopped: str | None = None) -> dict[str, Any]:
    return {
        "rewards": {"openenv_reward": reward},
        "stopped": stopped,
        "turns": turns,
        "prompted": True,
        "title": "ModelMessage",
    }


def test_a_right_answer_a_wrong_one_a_bare_number_and_silence(gateway: Served, tmp_path: Path) -> None:
    """A reply that the client decodes to an action that says nothing is a miss too."""
    (right,) = right_actions("gsm8k", SEED)
    number = right["text"].rpartition("#### ")[2]
    told = play(
        gateway,
        tmp_path,
        "gsm8k",
        [right["text"]],
        [f"#### {number}1"],
        [number],
        [""],
        ["{}"],
        ['{"tool_calls": "x"}'],
    )
    silent = played(0.0, stopped="empty_action")
    assert told == [played(1.0), played(0.0), played(0.0), silent, played(0.0), played(0.0)]


def test_a_game_of_several_turns(gateway: Served, tmp_path: Path) -> None:
    (right,) = right_actions("mastermind", SEED)
    told = play(gateway, tmp_path, "mastermind", ["I pass.", right["text"]])
    assert told == [played(0.875, turns=2)]


def tasks(served: Served, taskset: dict[str, Any]) -> list[dict[str, Any]]:
    asked = {name: taskset[name] for name in ("run", "params")}
    body = {**asked, "cursor": 0, "batch_size": taskset["count"]}
    found = httpx.post(f"{served.url}/envs/{taskset['environment']}/next-batch", json=body).raise_for_status().json()
    return [
        httpx.get(f"{served.url}/tasks/{task['task_id']}").raise_for_status().json() | {"params": taskset["params"]}
        for task in found["tasks"]
    ]


def given(task: dict[str, Any]) -> list[list[str]]:
    """Two episodes: what is right where that is known, and something else."""
    right = [turn["text"] or "" for turn in right_actions(task["environment"], task["index"], task["params"])]
    scene = ["Sit down, and tell me first who sent you.", "No.", "That I could not say.", "Then go."]
    return [right or scene, ["As far as I know it is", "<answer>AAB</answer>", "No.", "That is all."]]


def episodes(
    served: Served, folder: Path, run: str, tasksets: Sequence[dict[str, Any]], lost: int = 0
) -> list[dict[str, Any]]:
    """What verifiers records of two episodes of each task."""
    options = [{"url": served.url, "run": run, **taskset} for taskset in tasksets]
    replies = {task["task_id"]: given(task) for taskset in options for task in tasks(served, taskset)}
    job = {"tasksets": options, "replies": replies, "lost": lost}
    told: list[dict[str, Any]] = do_job(folder, job, "verifiers_episodes.py", installed=VERIFIERS, seconds=600)[0]
    return told


def taskset(environment: str, count: int = 25, **params: str) -> dict[str, Any]:
    return {"environment": environment, "params": params, "count": count}


def test_episodes_are_paid_as_by_the_native_route_though_replies_get_lost(gateway: Served, tmp_path: Path) -> None:
    sets = (
        taskset("npc_arena", turns="multi"),
        taskset("tool_agent", tool_format="hermes"),
        taskset("mastermind"),
        taskset("letter_counting"),
    )
    told = episodes(gateway, tmp_path, "episodes", sets, lost=40)
    pages = [each["info"]["gateway"]["group"] for each in told]
    found = [httpx.get(f"{gateway.url}/groups/{page.rpartition('/')[2]}").json()["group"] for page in pages]
    native = []
    for group in found:
        (rollout,) = group["rollouts"]
        sent = {name: rollout["completion"][name] for name in ("messages", "finish_reason")}
        body = {"run": "native", "groups": [{"task_id": group["task_id"], "completions": [sent]}]}
        reply = httpx.post(f"{gateway.url}/envs/{group['environment']}/score", json=body).raise_for_status().json()
        native.append(reply["groups"][0])
    assert [(each["rewards"]["gateway"], each["info"]["gateway"]["flags"]) for each in told] == [
        (group["rewards"][0], group["scores"][0]["flags"]) for group in native
    ]
    assert [metrics_of(each) for each in told] == [
        {each["name"]: each["value"] for each in group["scores"][0]["criteria"] if each["value"] is not None}
        for group in native
    ]
    listed = httpx.get(f"{gateway.url}/runs/episodes").json()["activity"]
    assert sum(each["groups"] for each in listed) == len({*pages}) == 200
    assert {each["environment"] for group, each in zip(native, found, strict=True) if group["rewards"][0] > 0} == (
        {"npc_arena", "tool_agent", "mastermind", "letter_counting"}
    )
    assert max(len(each["rollouts"][0]["completion"]["messages"]) for each in found) > 6


def metrics_of(told: dict[str, Any]) -> dict[str, float]:
    """The criteria."""
    prefix = "criteria/"
    return {name.removeprefix(prefix): value for name, value in told["metrics"].items() if name.startswith(prefix)}


def test_without_a_score_an_episode_fails_and_has_no_reward(tmp_path: Path) -> None:
    with judged_gateway(tmp_path) as judged:
        sets = (taskset("rlaif", 3), taskset("letter_counting", 3))
        with away(judged.judge):
            down = episodes(judged.gateway, tmp_path, "down", sets)
        up = episodes(judged.gateway, tmp_path, "up", sets)
    assert [(each["ok"], len(each["errors"]), len(each["rewards"])) for each in down] == (
        [(False, 1, 0)] * 6 + [(True, 0, 1)] * 6
    )
    assert {"no score: " in each["errors"][0] for each in down[:6]} == {True}
    assert [(each["ok"], len(each["rewards"]), each["metrics"]["judge_usd"] > 0) for each in up] == [
        (True, 1, True)
    ] * 12
