"""Each task is once in the output, whoever is killed meanwhile."""

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.data_sets import numbered_rows
from tests.support.interrupted_processing import Programs, interrupted, wait_for
from tests.support.processing import arguments, lines_of
from tests.support.serving import free_port, serving

pytestmark = pytest.mark.slow

TASKS = 300


def test_each_task_is_there_once(tmp_path: Path) -> None:
    done = interrupted(tmp_path, TASKS, "--group-size", "2", "--concurrency", "8", "--lease-seconds", "10")
    tasks = [line.task_id for line in done.lines]
    groups = {line.group_id for line in done.lines}
    between = TASKS // 3 <= done.at_policy_kill < 2 * TASKS // 3 <= done.at_kill < TASKS
    told = (done.exit_code, len(tasks), len(set(tasks)), len(groups), between)
    assert told == (0, TASKS, TASKS, TASKS, True), done.told


@pytest.mark.slow
def test_scores_are_those_of_the_answers_after_it_too(tmp_path: Path) -> None:
    done = interrupted(tmp_path, 60, "--group-size", "4", "--concurrency", "4", "--lease-seconds", "5", "--cursor", "0")
    scores = [line.scores for line in done.lines]
    assert (done.exit_code, scores) == (0, [[1.0, 0.0, 1.0, 0.0]] * 60), done.told


@pytest.mark.slow
def test_a_gateway_that_is_killed_is_waited_for(tmp_path: Path) -> None:
    out, port = tmp_path / "out.jsonl", free_port()
    settings = {"ATROPOS_ENVS_DATASETS__GSM8K": str(numbered_rows(tmp_path / "data", 80))}
    how = ("--env", "gsm8k", "--split", "test", "--group-size", "2", "--concurrency", "4", "--lease-seconds", "5")
    with Programs(tmp_path) as programs:
        policy = free_port()
        first = programs.policy(policy, most=60)
        with serving(tmp_path, port=port, settings=settings) as gateway:
            given = arguments(gateway.url, f"http://127.0.0.1:{policy}/v1", out, *how)
            program = programs.start("app.cli", *given)
            killed_at = wait_for(out, 30, program, time.monotonic() + 60)
            gateway.kill()
        first.kill()
        first.wait()
        programs.policy(policy)
        with serving(tmp_path, port=port, settings=settings):
            exit_code = program.wait(120)
        tasks = Counter(line.task_id for line in lines_of(out))
        assert (exit_code, killed_at < 80, list(tasks.values())) == (0, True, [1] * 80), programs.told
