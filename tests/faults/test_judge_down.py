"""A judge that is down for a minute by the clock, under every wire for single samples at once."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.support.nemo_gym import NemoGym, build_response, build_row, say
from tests.support.reward_trainers import OpenRlhf, Slime, judged_gateway

DOWN_SECONDS = 60
ANSWERS = ("Yes.", "Yes, of course.")

pytestmark = [pytest.mark.slow, pytest.mark.faults]


def test_no_wire_tells_a_reward_before_the_judge_is_back(tmp_path: Path) -> None:
    """Whoever waits for less is told that there is none, and is told so for good."""
    with judged_gateway(tmp_path) as judged:
        tasks = [judged.preferring(place) for place in range(4)]
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
            asked = (
                brief.verify_all(*rollouts[0]),
                nemo.verify_all(*rollouts[1]),
                openrlhf.rewards([f"?{answer}" for answer in ANSWERS], ["?"] * 2, [tasks[2]] * 2),
                slime.rewards([(answer, {"task_id": tasks[3]}) for answer in ANSWERS]),
            )
            back = asyncio.create_task(come_back())
            told = await asyncio.gather(*map(time_it, asked))
            await back
            return told

        (masked, masked_after), (verified, *_), (rewarded, *_), (slimed, *_) = told = asyncio.run(ask())
        again = asyncio.run(brief.verify_all(*rollouts[0]))
        counts = {run: len(judged.groups(run)) for run in ("brief", "nemo", "openrlhf", "slime")}
        native = [judged.native(task, ANSWERS) for task in tasks]
    placeholder = {"reward": 0.0, "mask_sample": True, "failure_kind": "judge_failed"}
    assert [{name: one[name] for name in placeholder} for one in masked] == [placeholder] * 2
    assert (again, masked_after < DOWN_SECONDS) == (masked, True)
    assert [after >= DOWN_SECONDS for _, after in told[1:]] == [True] * 3
    assert {one["mask_sample"] for one in verified} == {False}
    assert [[one["reward"] for one in verified], rewarded["rewards"], slimed] == native[1:]
    assert counts == {"brief": 1, "nemo": 1, "openrlhf": 1, "slime": 1}
