"""Each task is once in the output, whoever is killed or stopped meanwhile."""

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as serving_policy
from tests.support.gateways import Gateways
from tests.support.interrupted_processing import Programs, interrupted
from tests.support.policy_server import answers_rows, script
from tests.support.processing import arguments, lines_of

pytestmark = pytest.mark.slow

TASKS = 120
ROWS = 40
SECONDS = 0.4
"""What an answer takes to a `process` that is stopped."""
HOW = ("--env", "gsm8k", "--split", "test", "--concurrency", "4")


def test_each_task_is_there_once_with_the_scores_of_its_answers(tmp_path: Path) -> None:
    done = interrupted(tmp_path, TASKS, "--group-size", "4", "--concurrency", "4", "--lease-seconds", "5")
    counts = (len(done.lines), len({line.task_id for line in done.lines}), len({line.group_id for line in done.lines}))
    between = TASKS // 3 <= done.at_policy_kill < 2 * TASKS // 3 <= done.at_kill < TASKS
    assert (done.exit_code, counts, between) == (0, (TASKS,) * 3, True), done.told
    assert [line.scores for line in done.lines] == [[1.0, 0.0, 1.0, 0.0]] * TASKS


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_once_finishes_what_is_in_hand_and_twice_leaves_it_to_the_next_start(
    gateways: Gateways, tmp_path: Path, times: int
) -> None:
    out, answers = tmp_path / "out.jsonl", script(answers_rows)

    def slow(number: int, received: Received) -> Reply:
        return Reply(answers(number, received).body, seconds=SECONDS if number else 0.0)

    how = (*HOW, "--run", f"stopped-{times}", "--group-size", "2", "--lease-seconds", "10")
    with serving_policy(slow) as policy, Programs(tmp_path) as programs:
        given = arguments(gateways.of_rows(ROWS).url, policy.url, out, *how)
        first = programs.start("app.cli", *given)
        ends = time.monotonic() + 60
        while len(policy.received) < 6 and time.monotonic() < ends:
            time.sleep(0.01)
        for _ in range(times):
            first.send_signal(signal.SIGINT)
            time.sleep(0.05)
        codes = [first.wait(60)]
        told, left = programs.told, len(policy.received) - 1 - len(lines_of(out))
        codes.append(programs.start("app.cli", *given).wait(120))
    tasks = Counter(line.task_id for line in lines_of(out))
    assert (codes, left == 0, list(tasks.values())) == ([130, 0], times == 1, [1] * ROWS), told
    assert times == 2 or "run the same command again to resume" in told
