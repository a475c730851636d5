"""A judge that is down for a minute by the clock, under every wire for single samples and episodes at once."""

import asyncio
import json
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.nemo_gym import NemoGym, build_response, build_row, say
from tests.support.openenv import PREFIX as OPENENV
from tests.support.ors import Ors
from tests.support.preferring import FEWER
from tests.support.reward_trainers import Judged, OpenRlhf, Slime, judged_gateway

DOWN_SECONDS = 60
ANSWERS = ("Yes.", "Yes, of course.")
RUNS = ("brief", "nemo", "openrlhf", "slime", "openenv", "ors")

pytestmark = [pytest.mark.slow, pytest.mark.faults]


def test_no_wire_tells_a_reward_before_the_judge_is_back(tmp_path: Path) -> None:
    """Whoever waits for less is told that there is none, and is told so for good."""
    with judged_gateway(tmp_path) as judged:
        tasks = [judged.preferring(place) for place in range(6)]
        compat = f"{judged.gateway.url}/compat"
        options = "group_size=2&gather_seconds=5&wait_seconds=110"
        nemo = NemoGym(f"{compat}/nemo_gym/rlaif/run=nemo&{options}")
        brief = NemoGym(f"{compat}/nemo_gym/rlaif/run=brief&group_size=2&gather_seconds=5&wait_seconds=20")
        openrlhf = OpenRlhf(f"{compat}/openrlhf/rlaif?run=openrlhf&{options}")
        slime = Slime(f"{compat}/slime/rlaif?run=slime&{options}")
        rollouts = [
            [(build_row(task, 0, place), build_response(say(answer))) for place, answer in enumerate(ANSWERS)]
            for task in tasks[:2]
        ]

        async def ask() -> list[tuple[Any, float]]:
            async def time_it(asking: Awaitable[Any]) -> tuple[Any, float]:
                return await asking, time.monotonic() - began

            async def come_back() -> None:
                await asyncio.sleep(DOWN_SECONDS)
                judged.judge.refusals = 0

            judged.judge.refusals = float("inf")
            began = time.monotonic()
            asked: tuple[Awaitable[Any], ...] = (
                brief.verify_all(*rollouts[0]),
                nemo.verify_all(*rollouts[1]),
                openrlhf.rewards([f"?{answer}" for answer in ANSWERS], ["?"] * 2, [tasks[2]] * 2),
                slime.rewards([(answer, {"task_id": tasks[3]}) for answer in ANSWERS]),
                asyncio.to_thread(play_openenv, judged, tasks[4]),
                asyncio.to_thread(play_ors, judged, 5),
            )
            back = asyncio.create_task(come_back())
            told = await asyncio.gather(*map(time_it, asked))
            await back
            return told

        told = asyncio.run(ask())
        (masked, masked_after), (verified, *_), (rewarded, *_), (slimed, *_), (stepped, *_), (called, *_) = told
        again = asyncio.run(brief.verify_all(*rollouts[0]))
        counts = {run: len(judged.groups(run)) for run in RUNS}
        native = [judged.native(task, ANSWERS) for task in tasks]
    placeholder = {"reward": 0.0, "mask_sample": True, "failure_kind": "judge_failed"}
    assert [{name: one[name] for name in placeholder} for one in masked] == [placeholder] * 2
    assert (again, masked_after < DOWN_SECONDS) == (masked, True)
    assert [after >= DOWN_SECONDS for _, after in told[1:]] == [True] * 5
    assert {one["mask_sample"] for one in verified} == {False}
    assert [[one["reward"] for one in verified], rewarded["rewards"], slimed, stepped, called] == native[1:]
    assert counts == dict.fromkeys(RUNS, 1)


def play_openenv(judged: Judged, task_id: str) -> list[float]:
    """A step that has no score is refused, and sent again."""
    group = {"task_id": task_id, "run": "openenv", "group_size": 2, "gather_seconds": 5}

    def play(answer: str) -> float:
        deadline = time.monotonic() + 3 * DOWN_SECONDS
        while True:
            body = {"action": {"text": answer}, **group}
            reply = httpx.post(f"{judged.gateway.url}{OPENENV}/rlaif/step", json=body, timeout=60)
            if reply.is_success:
                return float(reply.json()["reward"])
            if reply.status_code != 503 or time.monotonic() > deadline:
                raise RuntimeError(reply.text)
            time.sleep(1)

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(play, ANSWERS))


def play_ors(judged: Judged, index: int) -> list[float]:
    """Streams are kept alive for as long as the options say."""
    options = {"run": "ors", "group_size": "2", "gather_seconds": "5", "wait_seconds": "110"}
    asked = {**options, "params": json.dumps({"preference": FEWER})}

    def play(answer: str) -> float:
        client = Ors(f"{judged.gateway.url}/compat/ors/rlaif", asked)
        client.begin(index)
        return float(client.finish("reply", text=answer)["reward"])

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(play, ANSWERS))
