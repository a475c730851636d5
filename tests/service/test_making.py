"""Tasks of a batch are made in turns with whatever else waits."""

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import NoParams, Split
from app.ports.environment import Environment, Tools
from app.service.task_cache import MAX_SECONDS_PER_PASS, build_tasks


class Slow(Environment):
    name: ClassVar[str] = "slow"
    version: ClassVar[str] = "1"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        until = time.perf_counter() + self._seconds
        while time.perf_counter() < until:
            pass
        return Task(messages=(Message(role="user", content=f"{split} {index}"),))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return []


def turns_of_others(seconds: float, count: int) -> tuple[list[str | None], int]:
    """What the tasks ask, and how often something else had its turn before they were there."""

    async def scene() -> tuple[list[str | None], int]:
        making = asyncio.ensure_future(
            build_tasks([(Slow(seconds), index) for index in range(count)], "train", NoParams())
        )
        turns = 0
        while not making.done():
            await asyncio.sleep(0)
            turns += 1
        return [task.messages[0].content for task in making.result()], turns

    return asyncio.run(scene())


def test_slow_tasks_let_others_have_their_turn_between_them() -> None:
    asked, turns = turns_of_others(2 * MAX_SECONDS_PER_PASS, 8)
    assert (asked, turns >= 8) == ([f"train {index}" for index in range(8)], True)
