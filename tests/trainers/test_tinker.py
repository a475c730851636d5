"""examples/tinker_group.py in Tinker cookbook's own rollouts: whole groups of episodes, against a live gateway."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.agent_episodes import PARAMS, plan_replies, read_groups, score_natively
from tests.support.lossy_gateway import losing_replies
from tests.support.preferring import FEWER
from tests.support.reward_trainers import Judged
from tests.support.serving import Served
from tests.trainers.conftest import away
from tests.trainers.installed import LOOPS, do_job

NEEDS = (LOOPS / ".installed", LOOPS / ".torch")
COUNT = 24
CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def play(
    folder: Path,
    url: str,
    environment: str,
    run: str,
    replies: Sequence[list[list[str]]],
    *,
    params: object = None,
    held_out: bool = False,
    patience_seconds: float = 60,
) -> tuple[list[dict[str, Any]], str]:
    """What Tinker was given for each group, and the log. A batch has eight groups, or as many as there are."""
    size = min(8, len(replies))
    options = {
        "environment": environment,
        "model_name": "tiny",
        "renderer_name": "qwen3_instruct",
        "url": url,
        "run": run,
        "params": json.dumps(PARAMS.get(environment) if params is None else params),
        "groups_per_batch": size,
        "group_size": len(replies[0]),
        "batches": len(replies) // size,
        "eval_batches": len(replies) // size,
    }
    job = {"options": options, "replies": replies, "held_out": held_out, "patience_seconds": patience_seconds}
    return do_job(folder, job, "tinker_episodes.py", installed=LOOPS, seconds=600)


@pytest.mark.parametrize("environment", ["npc_arena", "mastermind", "tool_agent"])
def test_groups_earn_what_they_would_natively(gateway: Served, tmp_path: Path, environment: str) -> None:
    """One reply of the gateway in 17 is lost. Steps have parts of the rewards."""
    replies = [plan_replies(environment, place) for place in range(COUNT)]
    run = f"tinker-{environment}"
    httpx.put(f"{gateway.url}/runs/{run}", json={"options": {"turn_rewards": True}}).raise_for_status()
    with losing_replies(gateway.url, each=17) as lossy:
        told, log = play(tmp_path, lossy.url, environment, run, replies)
    stored = read_groups(gateway.url, run)
    natively = score_natively(gateway.url, environment, stored)
    due = {group["task_id"]: rewards for group, rewards in zip(stored, natively, strict=True)}
    flags = {flag for group in stored for one in group["rollouts"] for flag in one["score"]["flags"]}
    assert ({one["task_id"]: one["rewards"] for one in told}, len(stored)) == (due, COUNT)
    said = {group["task_id"]: [read_turns(one) for one in group["rollouts"]] for group in stored}
    assert {one["task_id"]: [list(map(parse_sampled, turns)) for turns in one["sampled"]] for one in told} == said
    assert ({one["trained"] for one in told}, "forged_observation" in flags) == ({True}, False)
    assert all(f"{lossy.url}/view/groups/{group['group_id']}" in log for group in stored)
    logged = {"absolute", "flagged", "unscored", "judge_usd"} | {f"criterion_{one}" for one in list_criteria(stored)}
    assert {f"env/all/{name}" for name in logged} <= {name for one in told for name in one["logged"]}


def read_turns(rollout: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """The text and the calls of each turn of the model."""
    turns = [one for one in rollout["completion"]["messages"] if one["role"] == "assistant"]
    calls = [[one["function"] for one in turn.get("tool_calls", ())] for turn in turns]
    read = [[(call["name"], json.loads(call["arguments"])) for call in several] for several in calls]
    return [((turn["content"] or "").strip(), several) for turn, several in zip(turns, read, strict=True)]


def parse_sampled(text: str) -> tuple[str, list[Any]]:
    calls = [json.loads(call) for call in CALL.findall(text)]
    return CALL.sub("", text.removesuffix("<|im_end|>")).strip(), [(one["name"], one["arguments"]) for one in calls]


def list_criteria(groups: Sequence[dict[str, Any]]) -> set[str]:
    scores = [one["score"] for group in groups for one in group["rollouts"]]
    return {one["name"] for score in scores for one in score["criteria"] if one["value"] is not None}


def test_the_model_sees_what_the_renderer_makes_of_the_conversation(gateway: Served, tmp_path: Path) -> None:
    ((told,), _) = play(tmp_path, gateway.url, "tool_agent", "tinker-prompts", [plan_replies("tool_agent", 0)[:1]])
    (stored,) = read_groups(gateway.url, "tinker-prompts")
    (rollout,) = stored["rollouts"]
    heard = [one["content"] for one in rollout["completion"]["messages"] if one["role"] == "tool"]
    (asked,) = told["asked"]
    assert asked.count("# Tools") == 1
    assert [text for text in heard if text not in asked] == []
    assert [text for text in told["sampled"][0][:-1] if text not in asked] == []


def test_what_max_tokens_cuts_is_scored_as_it_stands(gateway: Served, tmp_path: Path) -> None:
    replies = [[["<answer>ABC</answer>", "<answer>AB<cut>"]] * 2]
    ((told,), _) = play(tmp_path, gateway.url, "mastermind", "tinker-cut", replies)
    (stored,) = read_groups(gateway.url, "tinker-cut")
    ends = [one["completion"]["finish_reason"] for one in stored["rollouts"]]
    assert (told["rewards"], ends) == ([one["score"]["reward"] for one in stored["rollouts"]], ["length"] * 2)


def test_a_judge_that_is_away_for_a_while_costs_time_and_no_reward(judged: Judged, tmp_path: Path) -> None:
    replies = [[["Yes."], ["Yes, do."], ["Yes, do so."], ["Yes, of course, do."]]]
    judged.judge.refusals = 9
    told, _ = play(tmp_path, judged.gateway.url, "rlaif", "away", replies, params={"preference": FEWER})
    (stored,) = judged.groups("away")
    texts = [sampled.removesuffix("<|im_end|>") for one in told for (sampled,) in one["sampled"]]
    assert ([one["rewards"] for one in told], judged.judge.refusals) == ([judged.native(stored["task_id"], texts)], 0)


def test_a_judge_that_stays_away_teaches_nothing(judged: Judged, tmp_path: Path) -> None:
    url, replies, params = judged.gateway.url, [[["No."], ["No, no."]]], {"preference": FEWER}
    with away(judged.judge):
        told, _ = play(tmp_path, url, "rlaif", "down", replies, params=params, patience_seconds=4)
    found = told, [one["outcome"] for one in judged.groups("down")]
    assert found == ([{"error": "no score: judge_failed"}], ["unscored"])


def test_held_out_tasks_are_scored_one_by_one(judged: Judged, tmp_path: Path) -> None:
    told, _ = play(
        tmp_path, judged.gateway.url, "rlaif", "eval", [[["Maybe."]]] * 2, params={"preference": FEWER}, held_out=True
    )
    stored = judged.groups("eval")
    assert [(one["purpose"], len(one["rollouts"])) for one in stored] == [("eval", 1)] * len(told)
