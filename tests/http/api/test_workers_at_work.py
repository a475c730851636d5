"""A verifier in workers behind the whole service: what it is told of texts that cannot be checked."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from app.domain.scores import Score
from app.domain.tasks import Completion, Limits, Message, Task
from app.domain.values import Split
from app.main.application import create_app
from app.ports.environment import Environment, Tools
from app.settings import Settings
from tests.support import untrusted
from tests.support.playground import started

CHECKS = {"fine": untrusted.echoed, "endless": untrusted.busy, "broken": untrusted.no_json}


class Checked(Environment):
    """Each answer names what happens when it is checked."""

    name: ClassVar[str] = "checked"
    version: ClassVar[str] = "1"

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return Task(messages=(Message(role="user", content=f"Task {index}"),))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        for completion in group:
            await tools.workers.run(CHECKS[completion.answer], limits=Limits(seconds=0.3))
        return [Score.exact(True)] * len(group)


async def scores(settings: Settings) -> tuple[list[tuple[object, object, object]], set[str]]:
    """Reward, reason and rationale of one answer of each kind, and the metrics' samples that count them."""
    app = create_app(settings, environments={"checked": Checked})
    async with started(app) as door:
        batch = (await door.post("/envs/checked/next-batch", json={"batch_size": 3, "run": "a"})).json()
        groups = [
            {"task_id": task["task_id"], "completions": [{"text": kind}]}
            for task, kind in zip(batch["tasks"], CHECKS, strict=True)
        ]
        reply = (await door.post("/envs/checked/score", json={"groups": groups, "run": "a"})).json()
        lines = (await door.get("/metrics")).text.splitlines()
    told = [one for group in reply["groups"] for one in group["scores"]]
    return [(one["reward"], one["reason"], one["rationale"]) for one in told], {
        line for line in lines if line.startswith("atropos_envs_worker_calls_total")
    }


def test_what_cannot_be_checked_has_no_reward_and_says_why(database: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{database}", workers=2)
    assert asyncio.run(scores(settings)) == (
        [
            (1.0, None, ""),
            (None, "verifier_killed", "tests.support.untrusted:busy needs more than the 0.3 seconds that it may use"),
            (None, "verifier_failed", "tests.support.untrusted:no_json broke; see the log"),
        ],
        {
            'atropos_envs_worker_calls_total{function="tests.support.untrusted:echoed",outcome="done"} 1.0',
            'atropos_envs_worker_calls_total{function="tests.support.untrusted:busy",outcome="seconds"} 2.0',
            'atropos_envs_worker_calls_total{function="tests.support.untrusted:no_json",outcome="broke"} 1.0',
        },
    )
