"""OpenRLHF's own code asks a running gateway for rewards."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.reward_trainers import Judged
from tests.trainers.installed import PROGRAMS, ROOT

INSTALLED = ROOT / ".cache" / "openrlhf"
NEEDS = (INSTALLED / ".installed",)
PROMPT = "<|im_start|>user\nMay I?<|im_end|>\n<|im_start|>assistant\n"
EOS = "&eos=%3C%7Cim_end%7C%3E"


def rolled_out(label: Any, answers: Sequence[tuple[str, str]], *urls: str) -> list[dict[str, Any]]:
    job = {"urls": urls, "prompt": PROMPT, "label": label, "answers": answers}
    command = [sys.executable, str(PROGRAMS / "openrlhf_rewards.py"), str(INSTALLED)]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.wire
def test_a_group_of_rollouts_earns_what_it_would_at_the_native_door(judged: Judged) -> None:
    task = judged.preferring()
    answers = ["Yes.", "Yes, of course.", "Yes.", "Yes, of"]
    reasons = ["stop", "stop", "stop", "length"]
    url = f"{judged.gateway.url}/compat/openrlhf/rlaif/get_reward?run=real&group_size=4{EOS}"
    said = [answer + "<|im_end|>" * (reason == "stop") for answer, reason in zip(answers, reasons, strict=True)]
    told = rolled_out(task, list(zip(said, reasons, strict=True)), url)
    group = {
        "task_id": task,
        "completions": [{"text": text, "finish_reason": reason} for text, reason in zip(answers, reasons, strict=True)],
    }
    native = judged.scored("rlaif", {"groups": [group], "run": "native"})
    assert [one["reward"] for one in told] == [[reward] for reward in native["rewards"]]
    assert [one["truncated"] for one in told] == [False, False, False, True]
    assert len({tuple(one["extra_logs"]) for one in told}) == 1
    assert judged.stored("real") == [sorted(answers, key=lambda text: (len(text), text))]


def test_several_addresses_take_turns(judged: Judged) -> None:
    task = judged.preferring(1)
    root = f"{judged.gateway.url}/compat/openrlhf/rlaif"
    urls = [f"{root}?run=turns&group_size=2", f"{root}/get_reward?run=turns&group_size=2"]
    told = rolled_out(json.dumps({"task_id": task}), [("Yes.</s>", "stop"), ("Yes, do.</s>", "stop")], *urls)
    assert (told[0]["reward"] > told[1]["reward"], judged.stored("turns")) == (True, [["Yes.", "Yes, do."]])


def test_a_judge_that_is_away_for_a_moment_costs_no_reward(judged: Judged) -> None:
    """The gateway asks again while the trainer waits."""
    judged.judge.refusals = 4
    url = f"{judged.gateway.url}/compat/openrlhf/rlaif?run=away"
    (told,) = rolled_out(judged.preferring(2), [("Yes.</s>", "stop")], url)
    assert (told["reward"], told["extra_logs"]["unscored"], judged.judge.refusals) == ([0.5], [0.0], 0)
