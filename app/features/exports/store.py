"""Stored groups with their tasks, page by page, for exports.

Filters differ in how rare what they want is, so a page is found in one of three ways: times in their index, a label or
scene with few groups by these groups, and everything else along an index of the groups, in pieces where they are looked
at one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, func, literal_column, select

from app.domain.groups import GroupFilter
from app.features.exports.model import ExportFilter, ExportRequest, StoredGroup
from app.store.database import StorePart, reads
from app.store.group_rows import load_groups
from app.store.search import Stretch, build_narrowings, match_task, open_stretch
from app.store.statements import encode_json, filter_storable, to_micros
from app.store.tables import groups, tasks
from app.store.tasks import load_tasks
from app.store.views import load_readings

NEAR: Final = 2048
"""Groups that are looked through for some of the wanted times, before these are looked up."""
AT_ONCE: Final = 20_000
"""Groups that one read looks through, in some tenths of a second."""


@dataclass(frozen=True)
class _SequenceRange:
    """Sequences after one and up to another."""

    after: int
    last: int

    def match(self, sequence: ColumnElement[int]) -> tuple[ColumnElement[bool], ...]:
        return sequence > self.after, sequence <= self.last


class ExportStore(StorePart):
    """Reads stored groups for exports."""

    @reads
    def get_newest_group_sequence(self, connection: Connection) -> int:
        """The sequence of the newest group; 0 where nothing is stored."""
        return connection.execute(select(func.max(groups.c.sequence))).scalar() or 0

    async def read_page(self, where: ExportFilter, after: int, last: int, limit: int) -> list[StoredGroup]:
        """Groups with sequences above `after` up to `last`, in order."""
        named = [name for name in (where.env, where.run, where.task_id) if name is not None]
        if filter_storable(named) != list(dict.fromkeys(named)):
            return []
        span: _SequenceRange | None = _SequenceRange(after, last)
        if where.since is not None or where.until is not None:
            near = _SequenceRange(after, min(last, after + NEAR))
            if page := await self._load_page(where, near, limit):
                return page
            span = await self._find_ends(where, _SequenceRange(near.last, last))
        for piece in () if span is None else _split_span(where, span):
            if page := await self._load_page(where, piece, limit):
                return page
        return []

    @reads
    def _find_ends(self, connection: Connection, where: ExportFilter, span: _SequenceRange) -> _SequenceRange | None:
        """Between which groups those of these times lie. Times grow with the sequence, but not always, so all of them
        are looked at, in their index."""
        sequence = groups.c.sequence + literal_column("0")  # or the databases walk along the groups themselves
        ends = select(func.min(sequence), func.max(sequence)).where(*_match_times(where), *span.match(sequence))
        if span.after == span.last:
            return None
        first, last = connection.execute(ends).one()
        return None if first is None else _SequenceRange(first - 1, last)

    @reads
    def _load_page(
        self, connection: Connection, where: ExportFilter, span: _SequenceRange, limit: int
    ) -> list[StoredGroup]:
        stretch = _open_stretch(connection, where, span)
        stretch = replace(stretch, beside=(*stretch.beside, *_match_times(where)))
        within = stretch.narrow(after=span.after, before=span.last + 1)
        with_readings = isinstance(where, ExportRequest) and where.shape == "judgements"
        if not (page := load_groups(connection, and_(*within.match()), limit, within.order(rising=True))):
            return []
        ids = [group.group_id for group in page]
        rows = connection.execute(select(groups.c.group_id, groups.c.sequence).where(groups.c.group_id.in_(ids)))
        sequences = {group_id: sequence for group_id, sequence in rows}
        records = load_tasks(connection, [group.task_id for group in page])
        readings = load_readings(connection, ids) if with_readings else {}
        return [
            StoredGroup(
                sequence=sequences[group.group_id],
                group=group,
                task=records[group.task_id],
                readings=tuple(readings.get(group.group_id, ())),
            )
            for group in page
        ]


_NARROWING: Final = (
    *("scene", "reason", "model", "flag"),
    *("min_step", "max_step", "min_mean", "max_mean", "min_std", "max_std"),
)
"""Filters that no index answers."""


def _split_span(where: ExportFilter, span: _SequenceRange) -> Iterator[_SequenceRange]:
    """In pieces where groups are looked at one by one: a rare flag would otherwise keep a reader, and an old state of
    the database, for as long as a walk along all groups takes."""
    if all(getattr(where, name) is None for name in _NARROWING):
        yield span
        return
    for after in range(span.after, span.last, AT_ONCE):
        yield _SequenceRange(after, min(span.last, after + AT_ONCE))


def _open_stretch(connection: Connection, where: ExportFilter, span: _SequenceRange) -> Stretch:
    if where.label is None and where.scene is None:
        return _open_filtered(connection, where, where.env)
    if (few := _name_few(connection, where, span)) is not None:
        stretch = _open_filtered(connection, where, where.env)
        return replace(stretch, equal=(), terms=(), beside=(groups.c.sequence.in_(few), *stretch.match_each()))
    if where.label is None:
        return _open_filtered(connection, where, where.env)
    label = encode_json(where.label)
    stretch = _open_filtered(connection, where, where.env or _find_only_environment(connection, label))
    # Not as a join, which PostgreSQL may begin with the tasks.
    own = select(tasks.c.label).where(tasks.c.task_id == groups.c.task_id).scalar_subquery()
    return replace(stretch, beside=(*stretch.beside, own == label))


def _open_filtered(connection: Connection, where: ExportFilter, environment: str | None) -> Stretch:
    if where.purpose == "eval":
        stretch = open_stretch(
            connection, environment=environment, run=where.run, purpose="eval", task_id=where.task_id
        )
    else:
        stretch = open_stretch(
            connection,
            environment=environment,
            run=where.run,
            outcome=where.outcome if where.outcome in {"pending", "unscored"} else None,
            task_id=where.task_id,
        )
    return replace(stretch, beside=(*stretch.beside, *_match_beside(where)))


def _match_beside(where: ExportFilter) -> Iterator[ColumnElement[bool]]:
    yield groups.c.purpose == where.purpose
    if where.outcome is not None:
        yield groups.c.outcome == where.outcome
    yield from build_narrowings(GroupFilter(**{name: getattr(where, name) for name in _NARROWING}))


def _match_times(where: ExportFilter) -> Iterator[ColumnElement[bool]]:
    if where.since is not None:
        yield groups.c.created_at >= to_micros(where.since)
    if where.until is not None:
        yield groups.c.created_at < to_micros(where.until)


FEW_TASKS: Final = 100
"""A label or scene with no more tasks is looked up by them."""
FEW_GROUPS: Final = 500
"""Of one label or scene, of these few tasks."""


def _name_few(connection: Connection, where: ExportFilter, span: _SequenceRange) -> Sequence[int] | None:
    """The groups of a label or scene that has few. Where there are many, one soon comes to some."""
    of_them = select(tasks.c.task_id).where(*match_task(where.label, where.scene))
    ids = connection.execute(of_them.limit(FEW_TASKS + 1)).scalars().all()
    if len(ids) > FEW_TASKS:
        return None
    named = select(groups.c.sequence).where(groups.c.task_id.in_(ids), *span.match(groups.c.sequence))
    sequences = connection.execute(named.limit(FEW_GROUPS + 1)).scalars().all()
    return sequences if len(sequences) <= FEW_GROUPS else None


def _find_only_environment(connection: Connection, label: str) -> str | None:
    """Among whose groups one comes to those of the label sooner. None for a label of several."""
    ends = select(func.min(tasks.c.environment), func.max(tasks.c.environment)).where(tasks.c.label == label)
    first, last = connection.execute(ends).one()
    return first if first == last else None
