"""The index of texts: groups are found by words of their prompts, completions and rationales.

The index is written behind everything else, by one replica at a time, so that scoring neither writes to it nor waits
for it: a few groups at a time are read beforehand, then taken in by one short write. `text_progress` says up to which
sequence it is, and groups that it passed before they had scores wait in `group_texts` until they have some.

PostgreSQL may show a group before one of a lower sequence whose transaction has yet to end. So a turn of the index
notes the newest group, then which transactions are writing groups, and begins when those have ended.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import Connection, delete, exists, func, insert, literal_column, select, text, update
from sqlalchemy.exc import DBAPIError

from app.domain.groups import GroupFilter, TextQuery
from app.store.database import StorePart, reads
from app.store.group_texts import Words, add_words, create_words, drop_words, load_words, tag, write_query
from app.store.retention import load_states
from app.store.statements import upsert_rows
from app.store.tables import group_texts, groups, text_progress


@dataclass(frozen=True)
class IndexedBatch:
    """`indexed` groups were taken in. `is_last` where none was left to be taken in."""

    indexed: int
    is_last: bool


@dataclass(frozen=True)
class GroupSnapshot:
    """`newest` is the sequence of the newest group that is stored; 0 without any. `writers` name the transactions that
    may still store one of a lower sequence, as an operator finds them in the database."""

    newest: int
    writers: frozenset[str] = frozenset()


FORM: Final = 2
"""Of how texts become words. An index of another form is made anew: it could not be told what to forget."""
_IS_WAITING: Final = group_texts.c.waiting == literal_column("1")  # names the partial index
_IS_PENDING: Final = groups.c.outcome == "pending"


# Indexing: a few groups at a time are read beforehand, then taken in by one short write.


class TextIndexStore(StorePart):
    """The index of texts, which is written behind everything else."""

    @reads
    def take_snapshot(self, connection: Connection) -> GroupSnapshot:
        # The writers are looked for last: one that had taken a lower sequence had the lock of the table before it did.
        newest = connection.execute(select(func.max(groups.c.sequence))).scalar() or 0
        return GroupSnapshot(newest, _list_writers(connection))

    async def find_open_writers(self, snapshot: GroupSnapshot) -> frozenset[str]:
        """Those of its writers that have not ended. Without any, all groups up to its newest are there that ever will
        be."""
        return snapshot.writers and snapshot.writers & await self.database.read(_list_writers)

    @reads
    def is_begun(self, connection: Connection) -> bool:
        """Whether there is an index, of whatever form."""
        return connection.execute(select(text_progress.c.through).limit(1)).first() is not None

    @reads
    def is_behind(self, connection: Connection) -> bool:
        """Whether a group is stored that the index could take in."""
        through = _read_through(connection) or 0
        newer = select(groups.c.sequence).where(groups.c.sequence > through).limit(1)
        return (
            connection.execute(newer).first() is not None
            or connection.execute(_select_scored_since().limit(1)).first() is not None
        )

    async def index_texts(self, up_to: int, limit: int) -> IndexedBatch:
        """Takes in the oldest groups up to this sequence that the index does not have. Those without scores are passed
        over, and taken in once they have some."""
        prepared = await self.database.read(lambda connection: _prepare(connection, up_to, limit))
        if prepared.through is None or prepared.sequences:
            await self.database.write(lambda connection: _take_in(connection, prepared), "groups")
        return IndexedBatch(len(prepared.words), prepared.through is not None and len(prepared.sequences) < limit)


_SELECT_WRITERS: Final = text(
    "SELECT CONCAT(virtualtransaction, ' of process ', pid) FROM pg_locks"
    " WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND relation = CAST('groups' AS regclass)"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def _list_writers(connection: Connection) -> frozenset[str]:
    """None on SQLite, which gives out sequences in the order of commits."""
    if connection.dialect.name == "sqlite":
        return frozenset()
    return frozenset(connection.execute(_SELECT_WRITERS).scalars())


def _read_through(connection: Connection) -> int | None:
    """Up to which sequence groups are indexed; None without an index of this form."""
    through: int | None = connection.execute(
        select(text_progress.c.through).where(text_progress.c.form == FORM)
    ).scalar()
    return through


def count_unindexed(connection: Connection) -> int:
    """About how many groups are newer than the index: sequences are not all in use."""
    newest = connection.execute(select(func.max(groups.c.sequence))).scalar() or 0
    return max(0, newest - (_read_through(connection) or 0))


def list_unindexed(connection: Connection, after: int, before: int, most: int, *, rising: bool) -> list[int]:
    """Groups between these sequences of which the index has no words, at most so many, in the order of a search."""
    newer = select(groups.c.sequence).where(groups.c.sequence > max(after, _read_through(connection) or 0))
    waiting = select(group_texts.c.sequence).where(_IS_WAITING, group_texts.c.sequence > after)
    sequences: set[int] = set()
    for unindexed, column in ((newer, groups.c.sequence), (waiting, group_texts.c.sequence)):
        order = column.asc() if rising else column.desc()
        sequences |= {*connection.execute(unindexed.where(column < before).order_by(order).limit(most)).scalars()}
    return sorted(sequences, reverse=not rising)[:most]


def _select_scored_since() -> Any:
    """Groups that waited."""
    scored = exists().where(groups.c.sequence == group_texts.c.sequence, ~_IS_PENDING)
    return select(group_texts.c.sequence).where(_IS_WAITING, scored)


@dataclass(frozen=True)
class _PreparedTexts:
    through: int | None
    """How far the index was; None without one of this form."""
    sequences: tuple[int, ...]
    """Of the groups that are passed by this batch."""
    words: Words
    """Of those that have scores."""
    states: dict[int, tuple[Any, ...]]


def _prepare(connection: Connection, up_to: int, limit: int) -> _PreparedTexts:
    through = _read_through(connection)
    if through is None:
        return _PreparedTexts(None, (), {}, {})
    waited = connection.execute(_select_scored_since().order_by(group_texts.c.sequence).limit(limit)).scalars().all()
    stored = select(groups.c.sequence).where(groups.c.sequence > through, groups.c.sequence <= up_to)
    newer = connection.execute(stored.order_by(groups.c.sequence).limit(limit - len(waited))).scalars().all()
    passed = (*waited, *newer)
    scored = select(groups.c.sequence).where(groups.c.sequence.in_(passed), ~_IS_PENDING)
    ready = connection.execute(scored).scalars().all()
    return _PreparedTexts(max([through, *newer]), passed, load_words(connection, ready), load_states(connection, ready))


def _take_in(connection: Connection, prepared: _PreparedTexts) -> None:
    if prepared.through is None:
        _begin_anew(connection)
        return
    # Locked before the states are compared: who scores, reduces or prunes one of them waits, and then finds it indexed.
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


# Searching: groups that have the words, the newest first, as far as a search may look.

TAGGED: Final = ("environment", "run", "model", "flag")
"""Fields of a filter that the index of texts has too."""
SPAN: Final = 10_000
"""Sequences that SQLite looks through at first; then twice as many, and so on."""
AT_ONCE: Final = 100
"""Groups whose words PostgreSQL compares one by one at first. They may have to come from the disk."""
_FREQUENT: Final = 4
"""Words are frequent where PostgreSQL expects so many times what may be found: it expects too many where words are
seldom in one group."""
_MILLISECONDS: Final = 60
"""That PostgreSQL may take to find all groups by its index."""
_SOON: Final = 0.02
"""Seconds. A search that has a page goes on for so long, since how many there are is told too."""


@dataclass(frozen=True)
class TextSearch:
    """Among the sequences between `after` and `before`; `rising` the oldest first. Ends when `most` are found, or when
    `seconds` are over, or sooner once `page` are found."""

    query: TextQuery
    after: int
    before: int
    rising: bool
    page: int
    most: int
    seconds: float


@dataclass(frozen=True)
class _TextCandidates:
    """`edge` is where the next search goes on; None where all there are were found."""

    sequences: tuple[int, ...]
    edge: int | None


def build_query(where: GroupFilter) -> TextQuery:
    """For all of a filter that the index tells."""
    phrases = () if where.text is None else where.text.phrases
    tagged = ((name, getattr(where, name)) for name in TAGGED)
    return TextQuery(phrases=(*phrases, *((tag(name, value),) for name, value in tagged if value is not None)))


def find_texts(connection: Connection, search: TextSearch) -> _TextCandidates:
    through = _read_through(connection)
    if through is None:
        return _TextCandidates((), None)
    if connection.dialect.name == "postgresql":
        return _find_on_postgres(connection, search)
    return _look_through(connection, search, through)


@dataclass
class _Findings:
    """Of a search that goes on piece by piece."""

    search: TextSearch
    began: float = field(default_factory=time.monotonic)
    sequences: list[int] = field(default_factory=list)
    edge: int | None = None
    """The last sequence up to which was looked."""

    @property
    def seconds_left(self) -> float:
        has_page = len(self.sequences) >= self.search.page
        return self.began + (_SOON if has_page else self.search.seconds) - time.monotonic()

    @property
    def room(self) -> int:
        return self.search.most - len(self.sequences)

    @property
    def rest(self) -> tuple[int, int]:
        """The sequences right outside of what was not looked at."""
        after, before = self.search.after, self.search.before
        if self.edge is None:
            return after, before
        return (max(after, self.edge), before) if self.search.rising else (after, min(before, self.edge))

    def take(self, matching: Sequence[int], edge: int) -> None:
        """What was found up to `edge`, as much as there is room for."""
        taken = matching[: self.room]
        self.edge = taken[-1] if len(matching) > len(taken) else edge
        self.sequences += taken

    def build(self, *, is_whole: bool) -> _TextCandidates:
        return _TextCandidates(tuple(self.sequences), None if is_whole else self.edge)


def _look_through(connection: Connection, search: TextSearch, through: int) -> _TextCandidates:
    """On SQLite: stretch by stretch, since to join two lists of frequent words takes long. Each is read against the
    order of the search: FTS5 looks for another match even beyond the end of a stretch, and on that side there are
    only those that were passed already."""
    order = "DESC" if search.rising else "ASC"
    statement = text(
        "SELECT rowid FROM group_words WHERE group_words MATCH :query AND rowid BETWEEN :first AND :last"  # noqa: S608
        f" ORDER BY rowid {order}"
    )
    query = write_query(search.query, postgres=False)
    findings, size = _Findings(replace(search, before=min(search.before, through + 1))), SPAN
    while True:
        after, before = findings.rest
        if before - after <= 1:
            return findings.build(is_whole=True)
        first, last = (after + 1, before - 1) if before - after <= size else _cut(after, before, size, search.rising)
        began = time.monotonic()
        matching = connection.execute(statement, {"query": query, "first": first, "last": last}).scalars().all()
        findings.take(matching[::-1], last if search.rising else first)
        if findings.room == 0 or findings.seconds_left < 0:
            return findings.build(is_whole=findings.room > 0 and findings.rest[1] - findings.rest[0] <= 1)
        size = _choose_size(size, time.monotonic() - began, findings.seconds_left, SPAN // 2)


def _cut(after: int, before: int, size: int, rising: bool) -> tuple[int, int]:
    return (after + 1, after + size) if rising else (before - size, before - 1)


def _choose_size(size: int, taken: float, left: float, least: int) -> int:
    """Of the next stretch: as many sequences as there is time for at the pace of the last, within bounds."""
    return max(least, 1, min(2 * size, int(size * left / max(taken, 1e-6))))


def _find_on_postgres(connection: Connection, search: TextSearch) -> _TextCandidates:
    query = write_query(search.query, postgres=True)
    is_frequent = _estimate(connection, query) > _FREQUENT * search.most
    rare = None if is_frequent else _find_rare(connection, search, query)
    if rare is not None:
        return _TextCandidates(tuple(rare), None)
    findings, many = _Findings(search), AT_ONCE
    while findings.room > 0 and findings.seconds_left > 0:
        began = time.monotonic()
        if _walk(connection, findings, query, many):
            return findings.build(is_whole=True)
        many = _choose_size(many, time.monotonic() - began, findings.seconds_left, AT_ONCE // 4)
    return findings.build(is_whole=False)


def _estimate(connection: Connection, query: str) -> int:
    """How many groups PostgreSQL expects to have the words, by its statistics: it knows the frequent ones."""
    statement = text("EXPLAIN (FORMAT JSON) SELECT FROM group_words WHERE words @@ CAST(:query AS tsquery)")
    (plan,) = connection.execute(statement, {"query": query}).scalar_one()
    return int(plan["Plan"]["Plan Rows"])


_BY_INDEX: Final = ("enable_bitmapscan = on", "enable_seqscan = off", f"statement_timeout = {_MILLISECONDS}")
_CANCELLED: Final = "57014"


def _find_rare(connection: Connection, search: TextSearch, query: str) -> list[int] | None:
    """On PostgreSQL: all by the index. None where they are too many, or take too long to be compared."""
    statement = text(
        "SELECT sequence FROM group_words WHERE words @@ CAST(:query AS tsquery)"
        " AND sequence + 0 > :after AND sequence + 0 < :before LIMIT :most"  # as sums, or it walks along the sequences
    )
    values = {"query": query, "after": search.after, "before": search.before}
    savepoint = connection.begin_nested()
    try:
        for setting in _BY_INDEX:
            connection.exec_driver_sql(f"SET LOCAL {setting}")
        sequences = connection.execute(statement, {**values, "most": search.most + 1}).scalars().all()
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _CANCELLED:
            raise
        return None
    finally:
        savepoint.rollback()  # and with it what was set
    return sorted(sequences, reverse=not search.rising) if len(sequences) <= search.most else None


def _walk(connection: Connection, findings: _Findings, query: str, many: int) -> bool:
    """Along so many of the next groups, on PostgreSQL. Whether they are the last."""
    order = "ASC" if findings.search.rising else "DESC"
    statement = text(
        "SELECT sequence, words @@ CAST(:query AS tsquery) AS matches FROM group_words"  # noqa: S608
        f" WHERE sequence > :after AND sequence < :before ORDER BY sequence {order} LIMIT :many"
    )
    after, before = findings.rest
    values = {"query": query, "after": after, "before": before, "many": many}
    rows = connection.execute(statement, values).all()
    matching = [sequence for sequence, matches in rows if matches]
    is_last = len(rows) < many and len(matching) <= findings.room
    if rows:
        findings.take(matching, rows[-1].sequence)
    return is_last
