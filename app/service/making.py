"""Builds the tasks of a batch without blocking the event loop for long."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel

from app.domain.tasks import Task
from app.domain.values import Split
from app.ports.environment import Environment

MOST_SECONDS: Final = 0.005
"""Maximum time spent per pass of the event loop; a single task may take longer."""


async def made(wanted: Sequence[tuple[Environment, int]], split: Split, params: BaseModel) -> list[Task]:
    """Builds one task per environment and index, in order."""
    tasks: list[Task] = []
    began = time.perf_counter()
    for environment, index in wanted:
        if time.perf_counter() - began > MOST_SECONDS:
            await asyncio.sleep(0)
            began = time.perf_counter()
        tasks.append(environment.task(split, index, params))
    return tasks
