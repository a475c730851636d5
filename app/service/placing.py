"""A task with what was retrieved for it, and the mark of one for which that failed."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from app.domain.tasks import Context, Task
from app.ports.environment import Environment

WITHOUT: Final[Mapping[str, JsonValue]] = {"context": "failed"}
"""In the metadata of a task that went out without the passages it should have had."""


def placed(environment: Environment, task: Task, context: Context | None) -> Task:
    """Pure. None: nothing was asked for."""
    if context is None:
        return task
    told = environment.place(task, context)
    if context.failure is None:
        return told
    return told.model_copy(update={"metadata": {**told.metadata, **WITHOUT}})
