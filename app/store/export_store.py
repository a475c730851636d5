"""Reads stored groups with their tasks, page by page."""

from collections.abc import Iterator

from sqlalchemy import ColumnElement, Connection, and_, func, literal_column, select

from app.domain.exports import ExportFilter, ExportRequest, StoredGroup
from app.ports.views import ExportStore
from app.store.database import Database
from app.store.group_rows import load_groups
from app.store.group_views import load_readings
from app.store.rows import encode_json, filter_storable, to_micros
from app.store.tables import groups, tasks
from app.store.task_store import load_tasks


class SqlExportStore(ExportStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_newest_group_sequence(self) -> int:
        newest = select(func.max(groups.c.sequence))
        return await self._database.read(lambda connection: connection.execute(newest).scalar() or 0)

    async def read_page(self, where: ExportFilter, after: int, last: int, limit: int) -> list[StoredGroup]:
        named = [name for name in (where.env, where.run) if name is not None]
        if filter_storable(named) != list(dict.fromkeys(named)):
            return []
        wanted = and_(*_build_conditions(where), groups.c.sequence > after, groups.c.sequence <= last)
        with_readings = isinstance(where, ExportRequest) and where.shape == "judgements"
        return await self._database.read(
            lambda connection: _load_stored_groups(connection, wanted, limit, with_readings=with_readings)
        )


def _build_conditions(where: ExportFilter) -> Iterator[ColumnElement[bool]]:
    yield groups.c.purpose == where.purpose
    if where.purpose == "eval":
        yield groups.c.purpose == literal_column("'eval'")
    if where.env is not None:
        yield groups.c.environment == where.env
    if where.run is not None:
        yield groups.c.run == where.run
    if where.label is not None:
        yield groups.c.task_id.in_(select(tasks.c.task_id).where(tasks.c.label == encode_json(where.label)))
    if where.since is not None:
        yield groups.c.created_at >= to_micros(where.since)
    if where.until is not None:
        yield groups.c.created_at < to_micros(where.until)


def _load_stored_groups(
    connection: Connection, wanted: ColumnElement[bool], limit: int, *, with_readings: bool
) -> list[StoredGroup]:
    found = load_groups(connection, wanted, limit)
    ids = [group.group_id for group in found]
    places = connection.execute(select(groups.c.group_id, groups.c.sequence).where(groups.c.group_id.in_(ids)))
    sequences = {group_id: sequence for group_id, sequence in places}
    of = load_tasks(connection, [group.task_id for group in found])
    readings = load_readings(connection, ids) if with_readings else {}
    return [
        StoredGroup(
            sequence=sequences[group.group_id],
            group=group,
            task=of[group.task_id],
            readings=tuple(readings.get(group.group_id, ())),
        )
        for group in found
    ]
