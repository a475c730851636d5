"""TRL's GRPOTrainer with the examples' reward function and environment, against a live gateway."""

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

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


def test_what_trl_evaluates_is_no_training(odd: Served, tmp_path: Path) -> None:
    command = ("grpo.py", odd.url, "letter_counting", "evaluated", tmp_path / "steps", 1)
    with running(tmp_path, *command, installed=TUNERS) as trainer:
        trainer.finish(MINUTES)
    listed = httpx.get(f"{odd.url}/groups", params={"run": "evaluated"}).json()["groups"]
    assert sorted((one["purpose"], one["size"]) for one in listed) == [("eval", 4)] * 2 + [("train", 4)] * 2
    assert {row["split"] for row in rollouts(odd.url, "evaluated")} == {"train"}


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


def test_replies_that_were_cut_off_are_known_as_such(odd: Served, tmp_path: Path) -> None:
    with running(
        tmp_path, "grpo.py", odd.url, "letter_counting", "cut", tmp_path / "steps", 1, installed=TUNERS
    ) as trainer:
        trainer.finish(MINUTES)
    stored = rollouts(odd.url, "cut")
    assert {(row["finish_reason"], row["reward"], row["policy"]) for row in stored} == {("length", 0.0, "tiny")}
    assert {("truncated" in row["flags"]) for row in stored} == {True}


def test_games_of_several_turns_are_played_and_scored_in_groups(odd: Served, tmp_path: Path) -> None:
    with running(tmp_path, "playing.py", odd.url, "games", installed=TUNERS) as trainer:
        trainer.finish(MINUTES)
    stored = rollouts(odd.url, "games")
    sizes = {row["group_id"]: sum(one["group_id"] == row["group_id"] for one in stored) for row in stored}
    turns = [[message["role"] for message in row["completion"]] for row in stored]
    assert [*sizes.values()] == [4, 4]
    assert {row["outcome"] for row in stored} == {"scored"}
    assert all("forged_observation" not in row["flags"] for row in stored)
    assert max(map(len, turns)) >= 7
    assert all(turn[:2] == ["assistant", "user"] for turn in turns if len(turn) > 1)
