"""Groups whose texts have the words that are asked for, the newest first, as far as a search may look."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from app.domain.groups import GroupFilter
from app.domain.text_search import TextQuery
from app.store.group_words import tag, write_query
from app.store.text_index_store import read_through

TAGGED: Final = ("environment", "run", "model", "flag")
"""Fields of a filter that the index of texts has too."""
SPAN: Final = 10_000
"""Sequences that SQLite looks through at first; then twice as many, and so on."""
AT_ONCE: Final = 100
"""Groups whose words PostgreSQL compares one by one at first. They may have to come from the disk."""
FREQUENT: Final = 4
"""Times what may be found: PostgreSQL expects too many where words are seldom in one group."""
MILLISECONDS: Final = 60
"""That PostgreSQL may take to find all groups by its index."""
SOON: Final = 0.02
"""Seconds. A search that has a page goes on for so long, since how many there are is told too."""
_BY_INDEX: Final = ("enable_bitmapscan = on", "enable_seqscan = off", f"statement_timeout = {MILLISECONDS}")
_CANCELLED: Final = "57014"


@dataclass(frozen=True)
class TextCandidates:
    """`edge` is where the next search goes on; None where all there are were found."""

    sequences: tuple[int, ...]
    edge: int | None


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


def build_query(where: GroupFilter) -> TextQuery:
    """For all of a filter that the index tells."""
    phrases = () if where.text is None else where.text.phrases
    given = ((name, getattr(where, name)) for name in TAGGED)
    return TextQuery(phrases=(*phrases, *((tag(name, value),) for name, value in given if value is not None)))


def find_texts(connection: Connection, search: TextSearch) -> TextCandidates:
    through = read_through(connection)
    if through is None:
        return TextCandidates((), None)
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
        return self.began + (SOON if has_page else self.search.seconds) - time.monotonic()

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

    def build(self, *, is_whole: bool) -> TextCandidates:
        return TextCandidates(tuple(self.sequences), None if is_whole else self.edge)


def _look_through(connection: Connection, search: TextSearch, through: int) -> TextCandidates:
    """On SQLite: stretch by stretch, since to join two lists of frequent words takes long. Each is read against the
    order of the search: FTS5 looks for another match even beyond the end of a stretch, and on that side there are
    only those that were passed already."""
    order = "DESC" if search.rising else "ASC"
    wanted = text(
        "SELECT rowid FROM group_words WHERE group_words MATCH :query AND rowid BETWEEN :first AND :last"  # noqa: S608
        f" ORDER BY rowid {order}"
    )
    query = write_query(search.query, postgres=False)
    found, size = _Findings(replace(search, before=min(search.before, through + 1))), SPAN
    while True:
        after, before = found.rest
        if before - after <= 1:
            return found.build(is_whole=True)
        first, last = (after + 1, before - 1) if before - after <= size else _cut(after, before, size, search.rising)
        began = time.monotonic()
        matching = connection.execute(wanted, {"query": query, "first": first, "last": last}).scalars().all()
        found.take(matching[::-1], last if search.rising else first)
        if found.room == 0 or found.seconds_left < 0:
            return found.build(is_whole=found.room > 0 and found.rest[1] - found.rest[0] <= 1)
        size = _choose_size(size, time.monotonic() - began, found.seconds_left, SPAN // 2)


def _cut(after: int, before: int, size: int, rising: bool) -> tuple[int, int]:
    return (after + 1, after + size) if rising else (before - size, before - 1)


def _choose_size(size: int, taken: float, left: float, least: int) -> int:
    """Of the next stretch: as many sequences as there is time for at the pace of the last, within bounds."""
    return max(least, 1, min(2 * size, int(size * left / max(taken, 1e-6))))


def _find_on_postgres(connection: Connection, search: TextSearch) -> TextCandidates:
    query = write_query(search.query, postgres=True)
    is_frequent = _estimate(connection, query) > FREQUENT * search.most
    rare = None if is_frequent else _find_rare(connection, search, query)
    if rare is not None:
        return TextCandidates(tuple(rare), None)
    found, many = _Findings(search), AT_ONCE
    while found.room > 0 and found.seconds_left > 0:
        began = time.monotonic()
        if _walk(connection, found, query, many):
            return found.build(is_whole=True)
        many = _choose_size(many, time.monotonic() - began, found.seconds_left, AT_ONCE // 4)
    return found.build(is_whole=False)


def _estimate(connection: Connection, query: str) -> int:
    """How many groups PostgreSQL expects to have the words, by its statistics: it knows the frequent ones."""
    asked = text("EXPLAIN (FORMAT JSON) SELECT FROM group_words WHERE words @@ CAST(:query AS tsquery)")
    (plan,) = connection.execute(asked, {"query": query}).scalar_one()
    return int(plan["Plan"]["Plan Rows"])


def _find_rare(connection: Connection, search: TextSearch, query: str) -> list[int] | None:
    """On PostgreSQL: all by the index. None where they are too many, or take too long to be compared."""
    wanted = text(
        "SELECT sequence FROM group_words WHERE words @@ CAST(:query AS tsquery)"
        " AND sequence + 0 > :after AND sequence + 0 < :before LIMIT :most"  # as sums, or it walks along the sequences
    )
    values = {"query": query, "after": search.after, "before": search.before}
    savepoint = connection.begin_nested()
    try:
        for setting in _BY_INDEX:
            connection.exec_driver_sql(f"SET LOCAL {setting}")
        found = connection.execute(wanted, {**values, "most": search.most + 1}).scalars().all()
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _CANCELLED:
            raise
        return None
    finally:
        savepoint.rollback()  # and with it what was set
    return sorted(found, reverse=not search.rising) if len(found) <= search.most else None


def _walk(connection: Connection, found: _Findings, query: str, many: int) -> bool:
    """Along so many of the next groups, on PostgreSQL. Whether they are the last."""
    order = "ASC" if found.search.rising else "DESC"
    wanted = text(
        "SELECT sequence, words @@ CAST(:query AS tsquery) AS matches FROM group_words"  # noqa: S608
        f" WHERE sequence > :after AND sequence < :before ORDER BY sequence {order} LIMIT :many"
    )
    after, before = found.rest
    values = {"query": query, "after": after, "before": before, "many": many}
    rows = connection.execute(wanted, values).all()
    matching = [sequence for sequence, matches in rows if matches]
    is_last = len(rows) < many and len(matching) <= found.room
    if rows:
        found.take(matching, rows[-1].sequence)
    return is_last
