"""verifiers' released OpenEnv task set, against a live gateway."""

import json
from pathlib import Path
from typing import Any

from tests.support.openenv import PREFIX, right_actions
from tests.support.serving import Served
from tests.trainers.installed import VERIFIERS, running

NEEDS = (VERIFIERS / ".installed",)
SEED = 11


def play(gateway: Served, folder: Path, environment: str, *replies: list[str]) -> list[dict[str, Any]]:
    """What the task set records for the replies to one task."""
    job = {
        "base_url": f"{gateway.url}{PREFIX}/{environment}",
        "resets": [{"seed": SEED}] * len(replies),
        "replies": replies,
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    with running(
        folder, "verifiers_openenv.py", folder / "job.json", folder / "out.json", installed=VERIFIERS
    ) as program:
        program.finish()
    told: list[dict[str, Any]] = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    return told


def played(reward: float, *, turns: int = 1, stopped: str | None = None) -> dict[str, Any]:
    return {
        "rewards": {"openenv_reward": reward},
        "stopped": stopped,
        "turns": turns,
        "prompted": True,
        "title": "ModelMessage",
    }


def test_a_right_answer_a_wrong_one_a_bare_number_and_silence(gateway: Served, tmp_path: Path) -> None:
    (right,) = right_actions("gsm8k", SEED)
    number = right["text"].rpartition("#### ")[2]
    told = play(gateway, tmp_path, "gsm8k", [right["text"]], [f"#### {number}1"], [number], [""])
    assert told == [played(1.0), played(0.0), played(0.0), played(0.0, stopped="empty_action")]


def test_a_reply_that_its_client_decodes_to_an_action_that_says_nothing_is_a_miss(
    gateway: Served, tmp_path: Path
) -> None:
    told = play(gateway, tmp_path, "gsm8k", ["{}"], ['{"tool_calls": "x"}'])
    assert told == [played(0.0), played(0.0)]


def test_a_game_of_several_turns(gateway: Served, tmp_path: Path) -> None:
    (right,) = right_actions("mastermind", SEED)
    told = play(gateway, tmp_path, "mastermind", ["I pass.", right["text"]])
    assert told == [played(0.875, turns=2)]
