"""Stored groups with their tasks, page by page, for exports."""

from collections.abc import AsyncGenerator, Sequence

from sqlalchemy import Connection, func, select

from app.domain.groups import GroupFilter
from app.features.exports.model import StoredGroup
from app.store.database import StorePart, reads
from app.store.group_rows import load_groups
from app.store.search import read_in_order, walk_groups
from app.store.tables import groups
from app.store.tasks import load_tasks
from app.store.views import load_readings


class ExportStore(StorePart):
    """Reads stored groups for exports."""

    @reads
    def get_newest_group_sequence(self, connection: Connection) -> int:
        """The sequence of the newest group; 0 where nothing is stored."""
        return connection.execute(select(func.max(groups.c.sequence))).scalar() or 0

    async def read_pages(
        self, where: GroupFilter, after: int, last: int, size: int, *, with_readings: bool = False
    ) -> AsyncGenerator[list[StoredGroup], None]:
        """All groups with sequences above `after` up to `last`, in order, at most so many at once. What is pruned
        meanwhile is left out."""
        async for sequences in walk_groups(self.database, where, after, last):
            for start in range(0, len(sequences), size):
                if page := await self._load_page(sequences[start : start + size], with_readings):
                    yield page

    @reads
    def _load_page(self, connection: Connection, sequences: Sequence[int], with_readings: bool) -> list[StoredGroup]:
        read_in_order(connection)
        page = load_groups(connection, groups.c.sequence.in_(sequences))
        if len(page) < len(sequences):  # some were pruned meanwhile
            kept = select(groups.c.sequence).where(groups.c.sequence.in_(sequences)).order_by(groups.c.sequence)
            sequences = connection.execute(kept).scalars().all()
        records = load_tasks(connection, [group.task_id for group in page])
        readings = load_readings(connection, [group.group_id for group in page]) if with_readings else {}
        return [
            StoredGroup(
                sequence=sequence,
                group=group,
                task=records[group.task_id],
                readings=tuple(readings.get(group.group_id, ())),
            )
            for sequence, group in zip(sequences, page, strict=True)
        ]
