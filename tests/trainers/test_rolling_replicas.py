"""Released trainers go on while each of four replicas is replaced, and three are taken away, under a slow judge."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as chat_serving
from tests.support.databases import Postgres
from tests.support.reward_trainers import Judge, write_judge
from tests.support.rolling import Replicas, Training, rolling, training
from tests.support.serving import serving
from tests.trainers.installed import INSTALLED, TUNERS, TUNING, running, wait_until, written
from tests.trainers.policy import generate
from tests.trainers.test_openrlhf import NEEDS as OPENRLHF
from tests.trainers.test_openrlhf import rolled_out
from tests.trainers.test_serving_environments import environment, rows, trained
from tests.trainers.test_trl import rollouts

NEEDS = (INSTALLED / ".installed", INSTALLED / ".torch", *TUNING, *OPENRLHF)
JUDGE_SECONDS = 3.0
POLICY_SECONDS = 0.7
"""For a group of Atropos' environment."""
REPLICAS = 4
TRL_STEPS = 24
ATROPOS_STEPS = 120
MINUTES = 15 * 60
ANSWERS = ("Yes.", "Yes, of course.", "Yes, why not?", "Yes, of course, if you like it so much.")


def generate_slowly(number: int, received: Received) -> Reply:
    return replace(generate(number, received), seconds=POLICY_SECONDS)


@contextmanager
def judged_slowly(folder: Path, postgres: Postgres) -> Iterator[Replicas]:
    with chat_serving(Judge(seconds=JUDGE_SECONDS)) as judge:
        settings = {
            "ATROPOS_ENVS_DATABASE_URL": postgres.migrated(),
            "ATROPOS_ENVS_SHUTDOWN_SECONDS": "175",
            "ATROPOS_ENVS_SETTINGS": str(write_judge(folder, judge.url, deadline_seconds=60)),
        }
        with rolling(folder, settings, REPLICAS, leaving_seconds=2, grace_seconds=190) as replicas:
            yield replicas


def tasks_of(url: str) -> list[str]:
    """The ones that TRL trains on, of which OpenRLHF is given some too."""
    ask = {"run": "trl", "batch_size": 4 * TRL_STEPS, "cursor": 0}
    batch = httpx.post(f"{url}/envs/rlaif/next-batch", json=ask, timeout=60).raise_for_status().json()
    return [task["task_id"] for task in batch["tasks"]]


def groups_of(url: str, run: str) -> dict[str, list[tuple[str, str, float]]]:
    """What is stored: task, text and reward by group."""
    groups: dict[str, list[tuple[str, str, float]]] = {}
    for row in rollouts(url, run):
        said = row["completion"]
        text = said if isinstance(said, str) else said[-1]["content"]
        groups.setdefault(row["group_id"], []).append((row["task_id"], text, row["reward"]))
    return groups


def score_still(folder: Path, groups: dict[str, list[tuple[str, str, float]]]) -> list[list[float]]:
    """What one service pays for them whose judge answers at once and that nobody stops."""
    with chat_serving(Judge()) as judge:
        settings = {"ATROPOS_ENVS_SETTINGS": str(write_judge(folder, judge.url))}
        with serving(folder, settings=settings) as gateway:
            tasks_of(gateway.url)
            asked = [
                {"task_id": members[0][0], "completions": [{"text": text} for _, text, _ in members]}
                for members in groups.values()
            ]
            body = {"groups": asked, "run": "still"}
            reply = httpx.post(f"{gateway.url}/score", json=body, timeout=300).raise_for_status().json()
    return [one["rewards"] for one in reply["groups"]]


def roll_and_scale_in(replicas: Replicas, asking: Training) -> None:
    for _ in range(REPLICAS):
        replicas.start()
        replicas.stop_oldest()
        asking.go_on(1, 120)
    for leaving in (2, 1):
        for _ in range(leaving):
            replicas.stop_oldest()
        asking.go_on(2, 120)


def test_released_trainers_do_not_notice_that_replicas_leave(
    tmp_path: Path, postgres: Postgres, tokenizer: Path
) -> None:
    learnt, fed = tmp_path / "trl.jsonl", tmp_path / "atropos.jsonl"
    with judged_slowly(tmp_path, postgres) as replicas, chat_serving(generate_slowly) as policy:
        url = replicas.balancer.url
        tasks, queue = tasks_of(url), f"{url}/compat/atropos/rolled"
        rewards = f"{url}/compat/openrlhf/rlaif/get_reward?run=openrlhf&group_size={len(ANSWERS)}"

        def ask(step: int) -> list[Any]:
            answers = [(f"{answer}</s>", "stop") for answer in ANSWERS]
            return [one["reward"] for one in rolled_out(tasks[step], answers, rewards)]

        asking = Training("openrlhf", ask)
        letters = environment(tmp_path, queue, policy.url, tokenizer, "letters", groups=2 * ATROPOS_STEPS, group_size=4)
        learning = running(tmp_path, "grpo.py", url, "rlaif", "trl", learnt, TRL_STEPS, installed=TUNERS)
        with (
            letters as (_, made),
            running(tmp_path, "example_loop.py", queue, fed, 8, 2, ATROPOS_STEPS) as feeding,
            learning as tuning,
        ):
            with training(asking):
                wait_until(lambda: bool(written(learnt) and written(fed)), MINUTES)
                roll_and_scale_in(replicas, asking)
                busy = [one.process.poll() for one in (feeding, tuning)], [len(written(one)) for one in (learnt, fed)]
            feeding.finish(MINUTES)
            tuning.finish(MINUTES)
        url = replicas.urls[0]
        asked, learned = groups_of(url, "openrlhf"), groups_of(url, "trl")
    assert (asking.error, busy[0], [stop.killed for stop in replicas.stops]) == (None, [None] * 2, [False] * 7), busy
    assert [one[2] for members in asked.values() for one in members] == [
        reward for step in asking.steps for (reward,) in step
    ]
    assert [one[2] for members in learned.values() for one in members] == [
        reward for step in written(learnt) for reward in step["rewards"]
    ]
    both = {**asked, **learned}
    assert [[one[2] for one in members] for members in both.values()] == score_still(tmp_path, both)
    assert trained(written(fed)) == [row for group in written(made) for row in rows(group)]
