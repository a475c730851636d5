"""Cache of recent tasks: most tasks are scored shortly after they were handed out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from app.domain.groups import TaskRecord
from app.domain.tasks import Task
from app.ports.store import Tasks
from app.service.catalogue import Hosted
from app.service.placing import placed

KeptT = TypeVar("KeptT")

ROOM = 8_192
"""Maximum number of cached tasks; the oldest are evicted."""


@dataclass
class Shelf:
    """A cache in front of the store. A missing task is read from the store and rebuilt."""

    tasks: Tasks
    _records: dict[str, TaskRecord] = field(default_factory=dict)
    _made: dict[str, Task] = field(default_factory=dict)

    async def put(self, records: Sequence[TaskRecord], made: Sequence[Task]) -> None:
        """Durable on return."""
        unknown = [record for record in records if record.task_id not in self._records]
        if unknown:
            await self.tasks.put(unknown)
        for record, task in zip(records, made, strict=True):
            _keep(self._records, record.task_id, record)
            _keep(self._made, record.task_id, task)

    async def get(self, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
        found = {name: self._records[name] for name in task_ids if name in self._records}
        missing = [name for name in task_ids if name not in found]
        if missing:
            read = await self.tasks.get(missing)
            for name, record in read.items():
                _keep(self._records, name, record)
            found |= read
        return found

    def task(self, hosted: Hosted, record: TaskRecord) -> Task:
        """The task of a record made by `hosted` in its current version, including the reference."""
        task = self._made.get(record.task_id)
        if task is None:
            task = made_of(hosted, record)
            _keep(self._made, record.task_id, task)
        return task


def made_of(hosted: Hosted, record: TaskRecord) -> Task:
    environment = hosted.environment
    params = hosted.params(record.key.params)
    task = environment.task(record.key.split, record.key.index, params)
    return placed(environment, task, record.key.context)


def _keep(kept: dict[str, KeptT], name: str, value: KeptT) -> None:
    if name not in kept and len(kept) >= ROOM:
        del kept[next(iter(kept))]
    kept[name] = value
