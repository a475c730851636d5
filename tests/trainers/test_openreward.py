"""The released client of the Open Reward Standard, against a live gateway with ports for it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.lossy_gateway import losing_replies
from tests.support.preferring import FEWER
from tests.support.reward_trainers import Judged, judged_gateway
from tests.support.serving import free_port
from tests.trainers.conftest import away
from tests.trainers.installed import OPENREWARD, do_job

NEEDS = (OPENREWARD / ".installed",)
ANSWERS = ("Yes.", "Yes, of course.", "", "Yes, why not?")
PORTS = {"rlaif": free_port(), "mastermind": free_port()}
PARAMS = {"preference": FEWER}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    settings = {f"ATROPOS_ENVS_ORS_PORTS__{name.upper()}__PORT": str(port) for name, port in PORTS.items()}
    settings |= {f"ATROPOS_ENVS_ORS_PORTS__{name.upper()}__ENVIRONMENT": name for name in PORTS}
    settings |= {f"ATROPOS_ENVS_ORS_PORTS__{name.upper()}__RUN": "ors" for name in PORTS}
    settings["ATROPOS_ENVS_ORS_PORTS__RLAIF__PARAMS"] = json.dumps(PARAMS)
    settings["ATROPOS_ENVS_ORS_PORTS__RLAIF__WAIT_SECONDS"] = "3"
    with judged_gateway(tmp_path_factory.mktemp("ors"), **settings) as judged:
        yield judged


def play(folder: Path, url: str, episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    job = {"url": url, "episodes": episodes}
    told: list[dict[str, Any]] = do_job(folder, job, "openreward_sessions.py", installed=OPENREWARD)[0]
    return told


@pytest.mark.parametrize("count", [pytest.param(10, marks=pytest.mark.wire), 200])
def test_groups_earn_what_they_would_at_the_native_route(judged: Judged, tmp_path: Path, count: int) -> None:
    """Every third stream breaks off after its first event."""
    tasks = [one["task_id"] for one in judged.tasks("rlaif", count, run="ors", params=PARAMS)]
    pairs = [(ANSWERS[place % 4], ANSWERS[(place + 1) % 4]) for place in range(count)]
    episodes = [{"index": place, "calls": [], "last": pair[0], "group": pair} for place, pair in enumerate(pairs)]
    with losing_replies(f"http://127.0.0.1:{PORTS['rlaif']}", 3, ends=("/call", "/score_group"), kept=60) as lossy:
        told = play(tmp_path, lossy.url, episodes)
    native = [judged.native(task, pair) for task, pair in zip(tasks, pairs, strict=True)]
    alone = [judged.native(task, pair[:1], "alone") for task, pair in zip(tasks, pairs, strict=True)]
    assert ([one["group"] for one in told], [one["calls"] for one in told]) == (native, alone)
    found = sum(lossy.lost.values()) > count // 2, len({reward for one in native for reward in one}) > 1
    assert found == (True, True)


def test_turns_are_paid_as_natively(judged: Judged, tmp_path: Path) -> None:
    tasks = judged.tasks("mastermind", 24, run="ors")
    guesses = [f"<answer>{'ABCDEF'[place % 6] * 3}A</answer>" for place in range(24)]
    episodes = [
        {"index": place, "calls": [["reply", {"text": guess}]], "last": guess, "group": []}
        for place, guess in enumerate(guesses)
    ]
    told = play(tmp_path, f"http://127.0.0.1:{PORTS['mastermind']}", episodes)
    native = []
    for task, guess in zip(tasks, guesses, strict=True):
        said = {"role": "assistant", "content": guess}
        body = {"task_id": task["task_id"], "messages": [said]}
        step = httpx.post(f"{judged.gateway.url}/envs/mastermind/step", json=body)
        observed = step.raise_for_status().json()["messages"]
        group = {"task_id": task["task_id"], "completions": [{"messages": [said, *observed, said]}]}
        native += judged.scored("mastermind", {"groups": [group], "run": "native"})["rewards"]
    assert [one["calls"] for one in told] == [[None, reward] for reward in native]


def test_no_reward_is_invented_while_the_judge_is_away(judged: Judged, tmp_path: Path) -> None:
    pair = ("No.", "No, by no means.")  # of which no verdict is known
    with away(judged.judge):
        url = f"http://127.0.0.1:{PORTS['rlaif']}"
        (told,) = play(tmp_path, url, [{"index": 0, "calls": [], "last": "Never.", "group": pair}])
    assert told == {"calls": [None], "group": [None, None]}
