"""Places retrieved passages into tasks, and marks tasks whose retrieval failed."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from app.domain.tasks import Context, Task
from app.ports.environment import Environment

WITHOUT: Final[Mapping[str, JsonValue]] = {"context": "failed"}
"""Metadata of a task that is handed out without passages because retrieval failed."""


def placed(environment: Environment, task: Task, context: Context | None) -> Task:
    """The task with the context in its prompt. Pure. None means that nothing was requested."""
    if context is None:
        return task
    told = environment.place(task, context)
    if context.failure is None:
        return told
    return told.model_copy(update={"metadata": {**told.metadata, **WITHOUT}})
