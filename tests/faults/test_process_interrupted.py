"""Each task is once in the output, whoever is killed meanwhile."""

from pathlib import Path

from tests.interrupted_processing import interrupted

TASKS = 300


def test_each_task_is_there_once(tmp_path: Path) -> None:
    done = interrupted(tmp_path, TASKS, "--group-size", "2", "--concurrency", "8", "--lease-seconds", "10")
    tasks = [line.task_id for line in done.lines]
    groups = {line.group_id for line in done.lines}
    between = TASKS // 3 <= done.at_policy_kill < 2 * TASKS // 3 <= done.at_kill < TASKS
    told = (done.exit_code, len(tasks), len(set(tasks)), len(groups), between)
    assert told == (0, TASKS, TASKS, TASKS, True), done.told


def test_scores_are_those_of_the_answers_after_it_too(tmp_path: Path) -> None:
    done = interrupted(tmp_path, 60, "--group-size", "4", "--concurrency", "4", "--lease-seconds", "5", "--cursor", "0")
    scores = [line.scores for line in done.lines]
    assert (done.exit_code, scores) == (0, [[1.0, 0.0, 1.0, 0.0]] * 60), done.told
