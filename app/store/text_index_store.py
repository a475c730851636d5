"""The store of the index of texts: a few groups at a time are read beforehand, then taken in by one short write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, exists, func, insert, literal_column, select, text, update

from app.ports.text_index import GroupSnapshot, IndexedBatch, TextIndexStore
from app.store.database import Database
from app.store.group_texts import load_words
from app.store.group_words import Words, add_words, create_words, drop_words
from app.store.inserts import upsert_rows
from app.store.pruning import load_states
from app.store.tables import groups
from app.store.task_store import fill_scenes, find_missing_scenes
from app.store.text_tables import group_texts, text_progress

FORM: Final = 2
"""Of how texts become words. An index of another form is made anew: it could not be told what to forget."""
_IS_WAITING: Final = group_texts.c.waiting == literal_column("1")  # names the partial index
_IS_PENDING: Final = groups.c.outcome == "pending"


class SqlTextIndexStore(TextIndexStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_snapshot(self) -> GroupSnapshot:
        return await self._database.read(_take_snapshot)

    async def find_open_writers(self, snapshot: GroupSnapshot) -> frozenset[str]:
        return snapshot.writers and snapshot.writers & await self._database.read(_list_writers)

    async def is_behind(self) -> bool:
        return await self._database.read(_is_behind)

    async def index_texts(self, up_to: int, limit: int) -> IndexedBatch:
        prepared = await self._database.read(lambda connection: _prepare(connection, up_to, limit))
        if prepared.through is None or prepared.sequences:
            await self._database.write(lambda connection: _take_in(connection, prepared), "groups")
        return IndexedBatch(len(prepared.words), prepared.through is not None and len(prepared.sequences) < limit)


@dataclass(frozen=True)
class _PreparedTexts:
    through: int | None
    """How far the index was; None without one of this form."""
    sequences: tuple[int, ...]
    """Of the groups that are passed by this batch."""
    words: Words
    """Of those that have scores."""
    states: dict[int, tuple[Any, ...]]
    scenes: dict[str, str]
    """That tasks lack. Here, since every stored group comes by once, and soon."""


def read_through(connection: Connection) -> int | None:
    """Up to which sequence groups are indexed; None without an index of this form."""
    through: int | None = connection.execute(
        select(text_progress.c.through).where(text_progress.c.form == FORM)
    ).scalar()
    return through


def list_unindexed(connection: Connection, after: int, before: int, most: int, *, rising: bool) -> list[int]:
    """Groups between these sequences of which the index has no words, at most so many, in the order of a search."""
    newer = select(groups.c.sequence).where(groups.c.sequence > max(after, read_through(connection) or 0))
    waiting = select(group_texts.c.sequence).where(_IS_WAITING, group_texts.c.sequence > after)
    found: set[int] = set()
    for wanted, column in ((newer, groups.c.sequence), (waiting, group_texts.c.sequence)):
        order = column.asc() if rising else column.desc()
        found |= {*connection.execute(wanted.where(column < before).order_by(order).limit(most)).scalars()}
    return sorted(found, reverse=not rising)[:most]


def count_unindexed(connection: Connection) -> int:
    """About how many groups are newer than the index: sequences are not all in use."""
    newest = connection.execute(select(func.max(groups.c.sequence))).scalar() or 0
    return max(0, newest - (read_through(connection) or 0))


_SELECT_WRITERS: Final = text(
    "SELECT CONCAT(virtualtransaction, ' of process ', pid) FROM pg_locks"
    " WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND relation = CAST('groups' AS regclass)"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def _take_snapshot(connection: Connection) -> GroupSnapshot:
    """The writers are looked for last: one that had taken a lower sequence had the lock of the table before it did."""
    newest = connection.execute(select(func.max(groups.c.sequence))).scalar() or 0
    return GroupSnapshot(newest, _list_writers(connection))


def _list_writers(connection: Connection) -> frozenset[str]:
    """None on SQLite, which gives out sequences in the order of commits."""
    if connection.dialect.name == "sqlite":
        return frozenset()
    return frozenset(connection.execute(_SELECT_WRITERS).scalars())


def _select_scored_since() -> Any:
    """Groups that waited."""
    scored = exists().where(groups.c.sequence == group_texts.c.sequence, ~_IS_PENDING)
    return select(group_texts.c.sequence).where(_IS_WAITING, scored)


def _is_behind(connection: Connection) -> bool:
    through = read_through(connection) or 0
    newer = select(groups.c.sequence).where(groups.c.sequence > through).limit(1)
    return (
        connection.execute(newer).first() is not None
        or connection.execute(_select_scored_since().limit(1)).first() is not None
    )


def _prepare(connection: Connection, up_to: int, limit: int) -> _PreparedTexts:
    through = read_through(connection)
    if through is None:
        return _PreparedTexts(None, (), {}, {}, {})
    waited = connection.execute(_select_scored_since().order_by(group_texts.c.sequence).limit(limit)).scalars().all()
    stored = select(groups.c.sequence).where(groups.c.sequence > through, groups.c.sequence <= up_to)
    newer = connection.execute(stored.order_by(groups.c.sequence).limit(limit - len(waited))).scalars().all()
    passed = (*waited, *newer)
    scored = select(groups.c.sequence).where(groups.c.sequence.in_(passed), ~_IS_PENDING)
    ready = connection.execute(scored).scalars().all()
    words, states = load_words(connection, ready), load_states(connection, ready)
    return _PreparedTexts(max([through, *newer]), passed, words, states, find_missing_scenes(connection, passed))


def _take_in(connection: Connection, prepared: _PreparedTexts) -> None:
    if prepared.through is None:
        _begin_anew(connection)
        return
    fill_scenes(connection, prepared.scenes)
    held = select(groups.c.sequence).where(groups.c.sequence.in_(prepared.sequences)).order_by(groups.c.sequence)
    there = connection.execute(held.with_for_update()).scalars().all()
    states = load_states(connection, there)
    words = {one: words for one, words in prepared.words.items() if states.get(one) == prepared.states[one]}
    add_words(connection, words)
    rows = [{"sequence": one, "waiting": int(one not in words)} for one in there]
    upsert_rows(connection, group_texts, "waiting", rows)
    _forget_absent(connection, sorted({*prepared.sequences} - {*there}))
    here = text_progress.c.form == FORM
    connection.execute(update(text_progress).where(here).values(through=prepared.through))


def _forget_absent(connection: Connection, sequences: Sequence[int]) -> None:
    if sequences:
        connection.execute(delete(group_texts).where(group_texts.c.sequence.in_(sequences)))


def _begin_anew(connection: Connection) -> None:
    drop_words(connection)
    create_words(connection)
    for table in (group_texts, text_progress):
        connection.execute(delete(table))
    connection.execute(insert(text_progress).values(form=FORM, through=0))
