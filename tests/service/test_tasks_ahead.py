"""Tasks of a batch are made in turns with whatever else waits."""

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from app.domain.runs import Slot
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import NoParams, Split
from app.ports.environment import Environment, Tools
from app.service.task_cache import MAX_SECONDS_PER_PASS, SLOW_TASK, TasksAhead, build_tasks


class Slow(Environment):
    name: ClassVar[str] = "slow"
    version: ClassVar[str] = "1"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.built: list[int] = []

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        until = time.perf_counter() + self._seconds
        while time.perf_counter() < until:
            pass
        self.built.append(index)
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


def built_ahead(seconds: float) -> tuple[list[int], list[str | None], list[int]]:
    """What is built once a stream has handed out four tasks from its third position on and nobody asks; what the next
    asker gets, of whom others took one task; and what was built then."""
    environment, params, ahead = Slow(seconds), NoParams(), TasksAhead()

    def locate(position: int) -> Slot:
        return Slot(position=position, epoch=0, index=100 + position)

    async def scene() -> tuple[list[int], list[str | None], list[int]]:
        await ahead.build([(environment, 103 + place) for place in range(4)], "train", params)
        ahead.plan(environment, "train", params, locate, [locate(3 + place) for place in range(4)])
        if ahead.work is not None:
            await ahead.work
        before = [*environment.built]
        tasks = await ahead.build([(environment, 108 + place) for place in range(4)], "train", params)
        return before, [task.messages[0].content for task in tasks], environment.built[len(before) :]

    return asyncio.run(scene())


def test_slow_tasks_that_come_next_are_built_while_nobody_asks() -> None:
    said = [f"train {index}" for index in range(108, 112)]
    assert built_ahead(2 * SLOW_TASK) == ([*range(103, 111)], said, [111])
    assert built_ahead(0) == ([*range(103, 107)], said, [*range(108, 112)])
