"""Reads stored groups with their tasks, page by page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, func, literal_column, select

from app.domain.exports import ExportFilter, ExportRequest, StoredGroup
from app.domain.groups import GroupFilter
from app.ports.views import ExportStore
from app.store.database import Database
from app.store.group_rows import load_groups
from app.store.group_search import build_narrowings, match_place
from app.store.group_views import load_readings
from app.store.rows import encode_json, filter_storable, to_micros
from app.store.tables import groups, tasks
from app.store.task_store import load_tasks

NEAR: Final = 2048
"""Groups that are looked through for some of the wanted times, before these are looked up."""
FEW_TASKS: Final = 100
_NARROWING: Final = ("reason", "model", "flag", "min_step", "max_step", "min_mean", "max_mean", "min_std", "max_std")
FEW_GROUPS: Final = 500
"""Of one label, of these few tasks."""


class SqlExportStore(ExportStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_newest_group_sequence(self) -> int:
        newest = select(func.max(groups.c.sequence))
        return await self._database.read(lambda connection: connection.execute(newest).scalar() or 0)

    async def read_page(self, where: ExportFilter, after: int, last: int, limit: int) -> list[StoredGroup]:
        named = [name for name in (where.env, where.run, where.task_id) if name is not None]
        if filter_storable(named) != list(dict.fromkeys(named)):
            return []
        return await self._database.read(
            lambda connection: _load_page(connection, where, SequenceRange(after, last), limit)
        )


@dataclass(frozen=True)
class SequenceRange:
    """Sequences after one and up to another."""

    after: int
    last: int

    def match(self, sequence: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
        return sequence > self.after, sequence <= self.last


def _load_page(connection: Connection, where: ExportFilter, span: SequenceRange, limit: int) -> list[StoredGroup]:
    wanted = [*_build_conditions(where)]
    if where.label is not None:
        wanted += _match_label(connection, encode_json(where.label), span)
    if where.since is None and where.until is None:
        return _load_stored_groups(connection, where, [*wanted, *span.match(groups.c.sequence)], limit)
    times = [*_match_times(where)]
    near = SequenceRange(span.after, min(span.last, span.after + NEAR))
    found = _load_stored_groups(connection, where, [*wanted, *times, *near.match(groups.c.sequence)], limit)
    if found or (far := _find_ends(connection, times, SequenceRange(near.last, span.last))) is None:
        return found
    return _load_stored_groups(connection, where, [*wanted, *times, *far.match(groups.c.sequence)], limit)


def _build_conditions(where: ExportFilter) -> Iterator[ColumnElement[bool]]:
    yield groups.c.purpose == where.purpose
    if where.purpose == "eval":
        yield groups.c.purpose == literal_column("'eval'")
    yield from match_place(where.env, where.run, are_few=where.purpose == "eval")
    if where.task_id is not None:
        yield groups.c.task_id == where.task_id
    if where.outcome is not None:
        yield groups.c.outcome == where.outcome
    yield from build_narrowings(GroupFilter(**{name: getattr(where, name) for name in _NARROWING}))


def _match_times(where: ExportFilter) -> Iterator[ColumnElement[bool]]:
    if where.since is not None:
        yield groups.c.created_at >= to_micros(where.since)
    if where.until is not None:
        yield groups.c.created_at < to_micros(where.until)


def _find_ends(
    connection: Connection, times: Sequence[ColumnElement[bool]], span: SequenceRange
) -> SequenceRange | None:
    """Between which groups those of these times lie. Times grow with the sequence, but not always, so all of them are
    looked at, in their index."""
    place = groups.c.sequence + literal_column("0")  # or the databases walk along the groups themselves
    ends = select(func.min(place), func.max(place)).where(*times, *span.match(place))
    first, last = connection.execute(ends).one()
    return None if first is None else SequenceRange(first - 1, last)


def _match_label(connection: Connection, label: str, span: SequenceRange) -> Iterator[ColumnElement[bool]]:
    """Few groups are named. Where there are many, one soon comes to some, sooner among those of the label's only
    environment."""
    labelled = tasks.c.label == label
    ids = connection.execute(select(tasks.c.task_id).where(labelled).limit(FEW_TASKS + 1)).scalars().all()
    if len(ids) <= FEW_TASKS:
        named = select(groups.c.sequence).where(groups.c.task_id.in_(ids), *span.match(groups.c.sequence))
        sequences = connection.execute(named.limit(FEW_GROUPS + 1)).scalars().all()
        if len(sequences) <= FEW_GROUPS:
            yield groups.c.sequence.in_(sequences)
            return
    ends = select(func.min(tasks.c.environment), func.max(tasks.c.environment))
    first, last = connection.execute(ends.where(labelled)).one()
    if first == last:
        yield groups.c.environment == first
    # Not as a join, which PostgreSQL may begin with the tasks.
    yield select(tasks.c.label).where(tasks.c.task_id == groups.c.task_id).scalar_subquery() == label


def _load_stored_groups(
    connection: Connection, where: ExportFilter, wanted: Sequence[ColumnElement[bool]], limit: int
) -> list[StoredGroup]:
    with_readings = isinstance(where, ExportRequest) and where.shape == "judgements"
    if not (found := load_groups(connection, and_(*wanted), limit)):
        return []
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
