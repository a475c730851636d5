"""examples/inspect_eval.py in released Inspect, against a live gateway whose replies are lost now and then."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from app.envs.tool_agent.environment import ToolAgent
from tests.support.lossy_gateway import losing_replies
from tests.support.preferring import FEWER
from tests.support.reward_trainers import Judged
from tests.trainers.conftest import away
from tests.trainers.installed import GYMS, do_job

NEEDS = (GYMS / ".installed",)
TURNS = json.dumps({"turns": "multi"})


def evaluate(
    folder: Path, evals: list[dict[str, Any]], replies: list[list[dict[str, Any]]], *, patience: float = 900.0
) -> list[dict[str, Any]]:
    job = {"evals": evals, "replies": replies, "patience": patience, "epochs": 1}
    told: list[dict[str, Any]] = do_job(folder, job, "inspect_evals.py", installed=GYMS)[0]
    return told


def native(judged: Judged, environment: str, sample: dict[str, Any]) -> dict[str, Any]:
    """What the native route says of the same transcript."""
    completion = {"messages": sample["said"], "finish_reason": "length" if sample["stop"] == "max_tokens" else "stop"}
    group = {"task_id": sample["task_id"], "completions": [completion]}
    (score,) = judged.scored(environment, {"groups": [group], "run": "native", "purpose": "eval"})["scores"]
    return {
        "value": score["reward"],
        "explanation": score["rationale"],
        "criteria": {one["name"]: one["value"] for one in score["criteria"] if one["value"] is not None},
        "flags": score["flags"],
    }


def tell(sample: dict[str, Any]) -> dict[str, Any]:
    score = sample["score"]
    told = {name: score["metadata"][name] for name in ("criteria", "flags")}
    return {"value": score["value"], "explanation": score["explanation"], **told}


def solve(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The model's messages of the known solution of a task of tool_agent."""
    made = ToolAgent().task("test", task["metadata"]["index"], ToolAgent.Params())
    said = [one.model_dump(mode="json") for one in ToolAgent().gold(made).messages or ()]
    return [one for one in said if one["role"] == "assistant"]


def test_scores_are_those_of_the_native_route(judged: Judged, tmp_path: Path) -> None:
    """One reply, games, conversations, tools; one reply of the gateway in five is lost."""
    texts = [{"content": "<answer>AABB</answer>\n#### 4"}, {"content": "Good evening. Sit down.", "stop": "max_tokens"}]
    replies = [[texts[0]], [texts[0], texts[1]], [texts[1]]]
    names = {"gsm8k": "{}", "mastermind": "{}", "npc_arena": TURNS}
    with losing_replies(judged.gateway.url, 5) as lossy:
        evals = [
            {"environment": name, "url": lossy.url, "params": params, "count": 24} for name, params in names.items()
        ]
        logs = evaluate(tmp_path, evals, replies)
        (tools,) = evaluate(
            tmp_path,
            [{"environment": "tool_agent", "url": lossy.url, "count": 24}],
            [solve(task) for task in judged.tasks("tool_agent", 24, run="inspect", split="test", purpose="eval")],
        )
    samples = [(name, one) for name, log in zip(names, logs, strict=True) for one in log["samples"]]
    samples += [("tool_agent", one) for one in tools["samples"]]
    assert [tell(one) for _, one in samples] == [native(judged, name, one) for name, one in samples]
    assert [(log["status"], log["scored"], log["unscored"]) for log in (*logs, tools)] == [("success", 24, 0)] * 4
    values = [one["score"]["value"] for one in tools["samples"]]
    assert (tools["metrics"]["mean"], tools["metrics"]["criteria_correct"]) == pytest.approx((fmean(values),) * 2)
    assert (len(samples), fmean(values) > 0.5, sum(lossy.lost.values()) > 20) == (96, True, True)


def test_flags_and_dollars_and_the_page_are_in_the_log(judged: Judged, tmp_path: Path) -> None:
    cut = [[{"content": "Yes, of course, and", "stop": "max_tokens"}]]
    params = {"preference": FEWER}
    asked = {"environment": "rlaif", "url": judged.gateway.url, "params": params, "count": 3, "split": "train"}
    (log,) = evaluate(tmp_path, [asked], cut)
    pages = [one["score"]["metadata"]["group"] for one in log["samples"]]
    groups = {f"{judged.gateway.url}/view/groups/{one['group_id']}" for one in judged.groups("inspect")}
    assert (log["metrics"]["flagged"], "judge_usd" in log["metrics"], set(pages) <= groups) == (1.0, True, True)


def test_without_a_score_a_sample_is_unscored(judged: Judged, tmp_path: Path) -> None:
    asked = {"environment": "rlaif", "url": judged.gateway.url, "count": 2, "split": "train"}
    asked["params"] = {"preference": FEWER}
    with away(judged.judge):
        (log,) = evaluate(tmp_path, [asked], [[{"content": "Never, by no means."}]], patience=1.0)
    reasons = [one["score"]["reason"] for one in log["samples"]]
    assert (log["status"], log["scored"], log["unscored"], reasons) == ("success", 0, 2, ["judge_failed"] * 2)
