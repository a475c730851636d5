"""TRL's GRPOTrainer with the examples' reward function and environment, against a live gateway."""

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.commands import ended
from tests.support.openenv import right_actions
from tests.support.played_episodes import PARAMS as PLAYED
from tests.support.played_episodes import SAID, find_index, serving_player
from tests.support.reward_trainers import judged_gateway
from tests.support.serving import ROOT, Served, free_port, serving
from tests.trainers.installed import PROGRAMS, TUNERS, TUNING, running, wait_until, written

NEEDS = TUNING
MINUTES = 15 * 60


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway with a package that brings an environment some of whose scores fail."""
    folder = tmp_path_factory.mktemp("odd")
    information = folder / "odd-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n", encoding="utf-8")
    points = "[atropos_environments.envs]\nodd = tests.trainers.odd_environment:Odd\n"
    (information / "entry_points.txt").write_text(points, encoding="utf-8")
    with serving(folder, settings={"PYTHONPATH": f"{ROOT}:{folder}"}) as served:
        yield served


def rollouts(url: str, run: str) -> list[dict[str, Any]]:
    lines = httpx.get(f"{url}/export", params={"run": run}, timeout=60).raise_for_status().text.splitlines()
    return [json.loads(line) for line in lines]


def advantages(rewards: Sequence[float]) -> list[float]:
    """Of a group, by GRPO's formula: what has no reward is in neither mean nor spread, and teaches nothing."""
    scored = [reward for reward in rewards if not math.isnan(reward)]
    if len(scored) < 2:
        return [0.0 for _ in rewards]
    mean, spread = statistics.fmean(scored), statistics.stdev(scored)
    return [0.0 if math.isnan(reward) else (reward - mean) / (spread + 1e-4) for reward in rewards]


@pytest.mark.wire
def test_what_has_no_score_is_in_no_baseline(odd: Served, tmp_path: Path) -> None:
    record = tmp_path / "steps.jsonl"
    with running(tmp_path, "grpo.py", odd.url, "odd", "whole", record, 12, installed=TUNERS) as trainer:
        trainer.finish(MINUTES)
    steps = written(record)
    stored = rollouts(odd.url, "whole")
    rewards = [reward for step in steps for reward in step["rewards"]]
    groups = [step["rewards"][first : first + 4] for step in steps for first in (0, 4)]
    mixed = [group for group in groups if any(map(math.isnan, group)) and not all(map(math.isnan, group))]
    assert len(steps) == 12
    assert len(mixed) > 3
    assert [None if math.isnan(one) else one for one in rewards] == [row["reward"] for row in stored]
    assert [row["step"] for row in stored] == [step for step in range(12) for _ in range(8)]
    assert [one for step in steps for one in step["advantages"]] == pytest.approx(
        [one for group in groups for one in advantages(group)], abs=1e-4
    )
    for step in steps:
        scored = [one for one in step["rewards"] if not math.isnan(one)]
        assert step["rationales"] == ["nobody could say" if math.isnan(one) else f"{one}" for one in step["rewards"]]
        assert step["logs"]["unscored"] == pytest.approx(1 - len(scored) / 8)
        assert step["logs"]["reward"] == pytest.approx(statistics.fmean(scored), abs=1e-4)


def test_two_processes_score_their_groups_once_each(odd: Served, tmp_path: Path) -> None:
    record = tmp_path / "steps.jsonl"
    launch = ("torchrun", "--nproc_per_node", 2, "--master_port", free_port(), PROGRAMS / "grpo.py")
    with running(tmp_path, *launch, odd.url, "odd", "two", record, 3, installed=TUNERS) as trainer:
        trainer.finish(MINUTES)
    stored = rollouts(odd.url, "two")
    groups = {row["group_id"]: (row["step"], row["task_id"]) for row in stored}
    told = [(step["step"] - 1, sorted(map(str, step["rewards"]))) for step in written(record)]
    rewards = {step: [row["reward"] for row in stored if row["step"] == step] for step in range(3)}
    assert [len(found) for found in rewards.values()] == [16, 16, 16]
    assert (len(groups), len({*groups.values()})) == (12, 12)
    assert told == [
        (step, sorted("nan" if one is None else str(one) for one in found)) for step, found in rewards.items()
    ]


def test_the_page_trains_on_a_processor_pays_no_cut_reply_and_evaluates_on_the_same_tasks_in_every_run(
    odd: Served, tmp_path: Path
) -> None:
    with running(tmp_path, "tiny_model.py", tmp_path / "tiny", installed=TUNERS) as writer:
        writer.finish()
    chosen = ("--run", "cut", "--steps", 1, "--tokens", 2, "--held-out", 2, "--params", '{"level": "easy"}')
    command = (ROOT / "examples" / "trl_grpo.py", odd.url, "letter_counting", "tiny", *chosen)
    with running(tmp_path, *command, installed=TUNERS, variables={"CUDA_VISIBLE_DEVICES": ""}) as trainer:
        trainer.finish(MINUTES)
    listed = httpx.get(f"{odd.url}/groups", params={"run": "cut"}).json()["groups"]
    wanted = {"split": "test", "cursor": 0, "batch_size": 2, "params": {"level": "easy"}}
    first = httpx.post(f"{odd.url}/envs/letter_counting/next-batch", json=wanted).json()["tasks"]
    assert sorted((one["purpose"], one["size"]) for one in listed) == [("eval", 8)] * 4 + [("train", 8)] * 4
    assert {one["task_id"] for one in listed if one["purpose"] == "eval"} == {one["task_id"] for one in first}
    told = {(row["finish_reason"], row["reward"], "truncated" in row["flags"]) for row in rollouts(odd.url, "cut")}
    assert told - {("stop", 0.0, False)} == {("length", 0.0, True)}


def test_training_goes_on_when_the_gateway_was_killed(tmp_path: Path) -> None:
    record = tmp_path / "steps.jsonl"
    port = free_port()
    with serving(tmp_path, port=port) as served:
        training = running(tmp_path, "grpo.py", served.url, "letter_counting", "killed", record, 20, installed=TUNERS)
        with training as trainer:
            wait_until(lambda: len(written(record)) > 2, MINUTES)
            served.kill()
            with serving(tmp_path, port=port) as again:
                trainer.finish(MINUTES)
                stored = rollouts(again.url, "killed")
    assert [row["step"] for row in stored] == [step for step in range(20) for _ in range(8)]
    assert [one for step in written(record) for one in step["rewards"]] == [row["reward"] for row in stored]


def write_rows(url: str, file: Path, environments: Sequence[str], count: int, params: str = "{}", *more: str) -> None:
    named = [part for name in environments for part in ("--env", name)]
    done = ended("tasks", file, *named, "--count", str(count), "--params", params, "--url", url, *more)
    assert done.returncode == 0, done.stderr


def play(
    served: Served,
    folder: Path,
    run: str,
    files: Sequence[Path],
    lost: int = 0,
    broken: int = 0,
    given: list[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """The steps of a training, in which the policy is given what is right for each task, or these turns, and not always
    says it."""
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    gold = {}
    for row in rows:
        task = httpx.get(f"{served.url}/tasks/{row['task_id']}").raise_for_status().json()
        gold[row["prompt"][-1]["content"]] = given or right_actions(row["environment"], task["index"])
    job = {
        "url": served.url,
        "run": run,
        "files": [str(file) for file in files],
        "gold": gold,
        "lost": lost,
        "broken": broken,
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    record = folder / "steps.jsonl"
    with running(folder, "playing.py", folder / "job.json", record, installed=TUNERS) as trainer:
        trainer.finish(MINUTES)
    return written(record)


def paid_natively(url: str, group: dict[str, Any]) -> list[float | None]:
    """What the environment's own route pays for the same messages, in a run of their own."""
    sent = [
        {"messages": each["completion"]["messages"], "finish_reason": each["completion"]["finish_reason"]}
        for each in group["rollouts"]
    ]
    body = {"run": "native", "groups": [{"task_id": group["task_id"], "completions": sent}]}
    reply = httpx.post(f"{url}/envs/{group['environment']}/score", json=body, timeout=60).raise_for_status().json()
    rewards: list[float | None] = reply["groups"][0]["rewards"]
    return rewards


def fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_all_environments_in_one_run_pay_as_their_own_routes_though_replies_get_lost(
    odd: Served, tmp_path: Path
) -> None:
    single, scenes, acting = (tmp_path / f"{name}.jsonl" for name in ("rows", "scenes", "acting"))
    write_rows(odd.url, single, ("npc_arena", "tool_agent", "mastermind", "tool_calling", "letter_counting"), 35)
    write_rows(odd.url, scenes, ("npc_arena",), 25, '{"turns": "multi"}')
    write_rows(odd.url, acting, ("npc_arena",), 8, '{"actions": "only"}')
    steps = play(odd, tmp_path, "mixed", (single, scenes, acting), lost=40)
    pages = [page for step in steps for page in step["table"]["group"]]
    found = [httpx.get(f"{odd.url}/groups/{page.rpartition('/')[2]}").json()["group"] for page in pages[::4]]
    natively = [reward for group in found for reward in paid_natively(odd.url, group)]
    activity = httpx.get(f"{odd.url}/runs/mixed").json()["activity"]
    environments = {"npc_arena": 68, "tool_agent": 35, "mastermind": 35, "tool_calling": 35, "letter_counting": 35}
    assert [reward for step in steps for reward in step["rewards"]] == pytest.approx(natively, abs=1e-6)
    assert {page.rpartition("/")[0] for page in pages} == {f"{odd.url}/view/groups"}
    assert (len(steps), len(pages), len({*pages})) == (52, 832, 208)
    assert {each["environment"]: each["groups"] for each in activity} == environments
    played = {name: samples(found, name) for name in environments}
    assert min(max(each["score"]["reward"] for each in played[name]) for name in environments) > 0
    for name, least in LONG.items():
        assert max(len(each["completion"]["messages"]) for each in played[name]) >= least
    assert not [flags for step in steps for flags in step["table"]["flags"] if "forged" in flags]
    for step, groups in zip(steps, [found[first : first + 4] for first in range(0, 208, 4)], strict=True):
        for name in {group["environment"] for group in groups}:
            scores = [each["score"] for each in samples(groups, name)]
            assert {key: step["logs"][key] for key in logged(name, scores)} == pytest.approx(
                logged(name, scores), abs=1e-5
            )


def test_a_model_that_plays_the_player_is_heard_and_not_trained_on(tmp_path: Path) -> None:
    with serving_player(tmp_path) as served:
        file, params = tmp_path / "rows.jsonl", json.dumps(PLAYED)
        write_rows(served.url, file, ("npc_arena",), 4, params, "--first", str(find_index(served.url)))
        steps = play(served, tmp_path, "played", (file,), lost=7)
        groups = [httpx.get(page.replace("/view", "")).json()["group"] for page in steps[0]["table"]["group"][::4]]
        natively = [reward for group in groups for reward in paid_natively(served.url, group)]
    scene = json.loads(file.read_text(encoding="utf-8").splitlines()[0])["task_id"]
    played = next(group for group in groups if group["task_id"] == scene)
    heard = {one["content"] for each in played["rollouts"] for one in each["completion"]["messages"][1::2]}
    trained = [text for step in steps for text in step["table"]["trained"] if any(line in text for line in SAID)]
    assert (heard <= {*SAID}, len(heard) > 1, trained) == (True, True, [])
    assert steps[0]["rewards"] == pytest.approx(natively, abs=1e-6)


def test_a_single_reply_that_calls_an_unknown_tool_is_scored_as_it_stands(odd: Served, tmp_path: Path) -> None:
    """TRL lets the model speak again, which is no part of the reply."""
    file, call = tmp_path / "rows.jsonl", {"function": {"name": "no_such_tool", "arguments": {}}}
    write_rows(odd.url, file, ("npc_arena",), 4, '{"actions": "only"}')
    (step,) = play(odd, tmp_path, "unknown", (file,), given=[{"text": "", "tool_calls": [call]}])
    groups = [httpx.get(page.replace("/view", "")).json()["group"] for page in step["table"]["group"][::4]]
    said = [one["completion"]["messages"] for group in groups for one in group["rollouts"]]
    called = [one["function"]["name"] for (message,) in said for one in message.get("tool_calls", ())]
    assert (len(called) > 4, {*called}) == (True, {"no_such_tool"})


LONG = {"npc_arena": 4, "tool_agent": 5, "mastermind": 4}
"""The least number of messages in the longest episode."""


def samples(groups: Sequence[dict[str, Any]], environment: str) -> list[dict[str, Any]]:
    return [each for group in groups if group["environment"] == environment for each in group["rollouts"]]


def logged(name: str, scores: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What TRL must log of an environment's scores."""
    flags = {flag for score in scores for flag in score["flags"]}
    values: dict[str, list[float]] = {}
    for criterion in [each for score in scores for each in score["criteria"] if each["value"] is not None]:
        values.setdefault(f"{name}/criteria/{criterion['name']}", []).append(criterion["value"])
    rewards = [score["reward"] for score in scores if score["reward"] is not None]
    return {
        f"{name}/unscored": 1 - len(rewards) / len(scores),
        **({f"{name}/reward": statistics.fmean(rewards)} if rewards else {}),
        **{f"{name}/flags/{flag}": sum(flag in one["flags"] for one in scores) / len(scores) for flag in flags},
        **{key: statistics.fmean(found) for key, found in values.items()},
    }


def test_an_episode_that_the_gateway_broke_off_is_not_scored(odd: Served, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    write_rows(odd.url, file, ("mastermind",), 8)
    steps = play(odd, tmp_path, "broken", (file,), broken=5)
    rewards = [reward for step in steps for reward in step["rewards"]]
    unknown = [math.isnan(reward) for reward in rewards]
    rationales = [said for step in steps for said in step["table"]["rationale"]]
    shares = [statistics.fmean(unknown[first : first + 16]) for first in (0, 16)]
    assert 2 < sum(unknown) < 30
    assert [said == "the gateway was away" for said in rationales] == unknown
    assert [step["logs"]["mastermind/unscored"] for step in steps] == pytest.approx(shares)
    assert [reward for reward in rewards if not math.isnan(reward)] == pytest.approx(
        [row["reward"] for row in rollouts(odd.url, "broken")]
    )


def test_a_judge_that_is_down_costs_its_groups_their_rewards_and_no_others(tmp_path: Path) -> None:
    with judged_gateway(tmp_path) as judged:
        served, file = judged.gateway, tmp_path / "rows.jsonl"
        write_rows(served.url, file, ("rlaif", "letter_counting"), 6)
        runs = {}
        for run, refusals in (("down", math.inf), ("up", 0)):
            judged.judge.refusals = refusals
            steps = play(served, fresh(tmp_path / run), run, (file,))
            stored = rollouts(served.url, run)
            told = [None if math.isnan(one) else one for step in steps for one in step["rewards"]]
            assert (told, len(stored)) == ([row["reward"] for row in stored], 48)
            unscored = {row["environment"] for row in stored if row["reward"] is None}
            runs[run] = (len({row["group_id"] for row in stored}), unscored, steps[-1]["logs"]["judge_usd"] > 0)
    assert runs == {"down": (12, {"rlaif"}, False), "up": (12, set(), True)}
