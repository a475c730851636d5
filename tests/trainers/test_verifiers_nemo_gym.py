"""verifiers' released NeMo Gym task set, against a live gateway."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.envs.tool_agent.environment import ToolAgent
from tests.support.commands import ended
from tests.support.preferring import FEWER
from tests.support.reward_trainers import Judged
from tests.trainers.conftest import away
from tests.trainers.installed import VERIFIERS, do_job

NEEDS = (VERIFIERS / ".installed",)
ANSWERS = ("Yes.", "Yes, of course.", "", "Yes, why not?")


def write_rows(judged: Judged, folder: Path, *options: str) -> list[str]:
    """The ids of the tasks, whose rows are in `rows.jsonl`."""
    done = ended("tasks", folder / "rows.jsonl", "--for", "nemo_gym", *options, "--url", judged.gateway.url)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["task_id"] for line in (folder / "rows.jsonl").read_text().splitlines()]


def play(
    judged: Judged, folder: Path, address: str, *rollouts: tuple[int, list[Any]], times: int = 1, at_once: int = 64
) -> list[list[dict[str, Any]]]:
    """What the task set is told for each rollout: a row's place, and the model's replies."""
    job = {
        "rows": str(folder / "rows.jsonl"),
        "url": f"{judged.gateway.url}/compat/nemo_gym/{address}",
        "rollouts": rollouts,
        "times": times,
        "at_once": at_once,
    }
    told: list[list[dict[str, Any]]] = do_job(folder, job, "verifiers_nemo_gym.py", installed=VERIFIERS)[0]
    return told


def preferring(*, groups: int) -> tuple[str, ...]:
    return ("--env", "rlaif", "--count", str(groups), "--params", json.dumps({"preference": FEWER}))


def pick(place: int) -> Sequence[str]:
    """Two answers, of different length."""
    return ANSWERS[place % 4], ANSWERS[(place + 1) % 4]


@pytest.mark.parametrize("count", [pytest.param(10, marks=pytest.mark.wire), 200])
def test_groups_earn_what_they_would_at_the_native_door_however_often_they_are_asked_about(
    judged: Judged, tmp_path: Path, count: int
) -> None:
    tasks = write_rows(judged, tmp_path, *preferring(groups=count))
    rollouts = [(place, [{"text": answer}]) for place in range(count) for answer in pick(place)]
    told = play(judged, tmp_path, f"rlaif/run=all-{count}&group_size=2&wait_seconds=50", *rollouts, times=2)
    native = [reward for place, task in enumerate(tasks) for reward in judged.native(task, pick(place))]
    assert [[one["reward"] for one in rollout] for rollout in told] == [[reward] * 2 for reward in native]
    assert (judged.counts(f"all-{count}"), len(set(native)) > 1) == ({"groups": count, "scored": 2 * count}, True)


def test_its_tools_are_carried_out_and_its_rollouts_paid_as_natively(judged: Judged, tmp_path: Path) -> None:
    """Up to the first reply without a call, where they end: a task of one wish is done by then."""
    write_rows(judged, tmp_path, "--env", "tool_agent", "--count", "64")
    tasks = judged.tasks("tool_agent", 64)
    rollouts, native = [], []
    for place, task in enumerate(tasks):
        solution = solve(task)
        end = next(at for at, one in enumerate(solution) if one["role"] == "assistant" and not one.get("tool_calls"))
        played = solution[: end + 1]
        rollouts.append((place, [build_reply(one) for one in played if one["role"] == "assistant"]))
        group = {"task_id": task["task_id"], "completions": [{"messages": played}]}
        native += judged.scored("tool_agent", {"groups": [group], "run": "native"})["rewards"]
    told = play(judged, tmp_path, "tool_agent/run=tools", *rollouts, times=2)
    assert [[one["reward"] for one in rollout] for rollout in told] == [[reward] * 2 for reward in native]
    assert (judged.counts("tools"), set(native)) == ({"groups": 64, "scored": 64}, {0.0, 1.0})


def solve(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of the known solution."""
    made = ToolAgent().task("train", task["metadata"]["index"], ToolAgent.Params())
    return [one.model_dump(mode="json") for one in ToolAgent().gold(made).messages or ()]


def build_reply(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"id": one["id"], **one["function"]} for one in message.get("tool_calls", ())]
    return {"text": message.get("content"), "calls": calls}


def test_no_reward_is_invented_while_the_judge_is_away(judged: Judged, tmp_path: Path) -> None:
    write_rows(judged, tmp_path, *preferring(groups=1))
    rollouts = [(0, [{"text": answer}]) for answer in ("No.", "No, by no means.")]  # of which no verdict is known
    with away(judged.judge):
        told = play(judged, tmp_path, "rlaif/run=away&group_size=2&wait_seconds=3&gather_seconds=2", *rollouts)
    assert [(one["reward"], one["metrics"]["mask_sample"], one["info"]["failure_kind"]) for (one,) in told] == [
        (0.0, 1.0, "judge_failed")
    ] * 2
