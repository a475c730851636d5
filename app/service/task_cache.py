"""Cache of recent tasks: most tasks are scored shortly after they were handed out."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import BaseModel, JsonValue

from app.domain.errors import NotFound
from app.domain.groups import TaskPrompt, TaskRecord
from app.domain.runs import Stream
from app.domain.tasks import Context, Task, TaskKey
from app.domain.values import Split
from app.ports.environment import Environment
from app.ports.store import TaskStore
from app.service.catalogue import ServedEnvironment
from app.service.identity import compute_task_id

FAILED_CONTEXT_METADATA: Final[Mapping[str, JsonValue]] = {"context": "failed"}
"""Metadata of a task that is handed out without passages because retrieval failed."""


def place_context(environment: Environment, task: Task, context: Context | None) -> Task:
    """The task with the context in its prompt. Pure. None means that nothing was requested."""
    if context is None:
        return task
    told = environment.place(task, context)
    if context.failure is None:
        return told
    return told.model_copy(update={"metadata": {**told.metadata, **FAILED_CONTEXT_METADATA}})


MAX_SECONDS_PER_PASS: Final = 0.005
"""Maximum time spent per pass of the event loop; a single task may take longer."""


async def build_tasks(wanted: Sequence[tuple[Environment, int]], split: Split, params: BaseModel) -> list[Task]:
    """Builds one task per environment and index, in order."""
    tasks: list[Task] = []
    began = time.perf_counter()
    for environment, index in wanted:
        if time.perf_counter() - began > MAX_SECONDS_PER_PASS:
            await asyncio.sleep(0)
            began = time.perf_counter()
        tasks.append(environment.task(split, index, params))
    return tasks


KeptT = TypeVar("KeptT")
WrittenT = TypeVar("WrittenT")

ROOM = 8_192
"""Maximum number of cached tasks; the oldest are evicted."""


@dataclass
class TaskCache:
    """A cache in front of the store. A missing task is read from the store and rebuilt. A cached one may be missing in
    the store, which loses rows when it fails over to a replica that lagged, or is restored from a backup."""

    tasks: TaskStore
    _records: dict[str, TaskRecord] = field(default_factory=dict)
    _made: dict[str, Task] = field(default_factory=dict)

    async def put(self, records: Sequence[TaskRecord], made: Sequence[Task]) -> None:
        """Durable on return."""
        cached = [record.task_id for record in records if record.task_id in self._records]
        lost = await self.tasks.find_missing(cached) if cached else set()
        wanted = [record for record in records if record.task_id in lost or record.task_id not in self._records]
        if wanted:
            await self.tasks.put(wanted)
        for record, task in zip(records, made, strict=True):
            _add_bounded(self._records, record.task_id, record)
            _add_bounded(self._made, record.task_id, task)

    async def write_with_tasks(self, task_ids: Collection[str], write: Callable[[], Awaitable[WrittenT]]) -> WrittenT:
        """The result of a write that refers to tasks. If it finds that one is not stored, cached ones are stored again
        and the write is repeated."""
        try:
            return await write()
        except NotFound:
            cached = [self._records[name] for name in task_ids if name in self._records]
            if not cached:
                raise
            await self.tasks.put(cached)
        return await write()

    async def get(self, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
        found = {name: self._records[name] for name in task_ids if name in self._records}
        missing = [name for name in task_ids if name not in found]
        if missing:
            read = await self.tasks.get(missing)
            for name, record in read.items():
                _add_bounded(self._records, name, record)
            found |= read
        return found

    def get_task(self, hosted: ServedEnvironment, record: TaskRecord) -> Task:
        """The task of a record made by `hosted` in its current version, including the reference."""
        task = self._made.get(record.task_id)
        if task is None:
            task = rebuild_task(hosted, record)
            _add_bounded(self._made, record.task_id, task)
        return task


def rebuild_task(hosted: ServedEnvironment, record: TaskRecord) -> Task:
    environment = hosted.environment
    params = hosted.validate_params(record.key.params)
    task = environment.task(record.key.split, record.key.index, params)
    return place_context(environment, task, record.key.context)


def build_record(
    hosted: ServedEnvironment, stream: Stream, index: int, task: Task, context: Context | None
) -> TaskRecord:
    """What is stored of a task that is handed out."""
    key = TaskKey(
        environment=hosted.name,
        version=hosted.environment.version,
        data_digest=hosted.data_digest,
        split=stream.split,
        index=index,
        params=stream.params,
        context=context,
    )
    prompt = TaskPrompt(messages=task.messages, tools=task.tools, max_turns=task.max_turns, metadata=task.metadata)
    label = task.metadata.get(hosted.environment.stats_label or "")
    return TaskRecord(
        task_id=compute_task_id(key), key=key, prompt=prompt, label=label if isinstance(label, str) else None
    )


def _add_bounded(kept: dict[str, KeptT], name: str, value: KeptT) -> None:
    if name not in kept and len(kept) >= ROOM:
        del kept[next(iter(kept))]
    kept[name] = value
