"""A batch as it was dealt, and as the reply that it becomes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic_core import to_json

from app.domain.runs import Lease, Slot
from app.service.request_models import HandedOutTask, TaskBatch, build_handed_out_task
from app.service.task_cache import MadeTask


@dataclass(frozen=True)
class DealtSlot:
    """A slot of a stream with its lease, if it was leased."""

    slot: Slot
    lease: Lease | None = None


DealtTask = tuple[MadeTask, Lease | None]


@dataclass(frozen=True)
class DealtBatch:
    """See `TaskBatch`."""

    tasks: Sequence[DealtTask]
    next_cursor: int | None
    exhausted: bool
    paced: bool = False
    warnings: tuple[str, ...] = ()

    def to_task_batch(self) -> TaskBatch:
        return self._build_reply([build_handed_out_task(made.record, lease) for made, lease in self.tasks])

    def to_json(self) -> bytes:
        """The JSON of `to_task_batch`, of parts that repeated tasks have ready."""
        empty = self._build_reply(()).model_dump_json().encode()
        opening = b'{"tasks":['
        return b"".join([opening, b",".join(self._write_tasks()), empty[len(opening) :]])

    def _write_tasks(self) -> Iterator[bytes]:
        times: dict[datetime, bytes] = {}
        for made, lease in self.tasks:
            beginning, rest = made.reply_parts
            if lease is None:
                yield b"%bnull%bnull}" % (beginning, rest)
                continue
            if lease.expires_at not in times:
                times[lease.expires_at] = to_json(lease.expires_at)
            yield b'%b"%b"%b%b}' % (beginning, lease.lease_id.encode(), rest, times[lease.expires_at])

    def _build_reply(self, tasks: Sequence[HandedOutTask]) -> TaskBatch:
        return TaskBatch(
            tasks=tuple(tasks),
            next_cursor=self.next_cursor,
            exhausted=self.exhausted,
            paced=self.paced,
            warnings=self.warnings,
        )
