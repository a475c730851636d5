"""Groups whose texts have the words that are asked for, the newest first, as far as a search may look."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
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
"""Sequences that are looked through at first; then twice as many, and so on."""
AT_ONCE: Final = 1_000
"""Groups whose words PostgreSQL compares one by one where a word is frequent."""
MILLISECONDS: Final = 60
"""That PostgreSQL may take to find all groups by its index."""
_BY_INDEX: Final = ("enable_bitmapscan = on", "enable_seqscan = off", f"statement_timeout = {MILLISECONDS}")
_CANCELLED: Final = "57014"


@dataclass(frozen=True)
class TextCandidates:
    """`edge` is where the next search goes on; None where all there are were found."""

    sequences: tuple[int, ...]
    edge: int | None


@dataclass(frozen=True)
class TextSearch:
    """Among the sequences between `after` and `before`; `rising` the oldest first. Ends when `most` are found or
    `seconds` are over."""

    query: TextQuery
    after: int
    before: int
    rising: bool
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
        rare = _find_rare(connection, search)
        return _walk(connection, search) if rare is None else rare
    return _look_through(connection, search, through)


def _look_through(connection: Connection, search: TextSearch, through: int) -> TextCandidates:
    """On SQLite: stretch by stretch, since to join two lists of frequent words takes long."""
    order = "ASC" if search.rising else "DESC"
    wanted = text(
        "SELECT rowid FROM group_words WHERE group_words MATCH :query AND rowid BETWEEN :first AND :last"  # noqa: S608
        f" ORDER BY rowid {order} LIMIT :most"
    )
    query = write_query(search.query, postgres=False)
    end = time.monotonic() + search.seconds
    found: list[int] = []
    for first, last in _split_span(search.after + 1, min(search.before - 1, through), search.rising):
        values = {"query": query, "first": first, "last": last, "most": search.most - len(found)}
        found += connection.execute(wanted, values).scalars()
        if len(found) >= search.most:
            return TextCandidates(tuple(found), found[-1])
        if time.monotonic() > end:
            return TextCandidates(tuple(found), last if search.rising else first)
    return TextCandidates(tuple(found), None)


def _split_span(first: int, last: int, rising: bool) -> Iterator[tuple[int, int]]:
    size = SPAN
    while first <= last:
        if rising:
            yield first, min(last, first + size - 1)
            first += size
        else:
            yield max(first, last - size + 1), last
            last -= size
        size *= 2


def _find_rare(connection: Connection, search: TextSearch) -> TextCandidates | None:
    """On PostgreSQL: all by the index. None where they are too many, or take too long to be compared."""
    wanted = text(
        "SELECT sequence FROM group_words WHERE words @@ CAST(:query AS tsquery)"
        " AND sequence + 0 > :after AND sequence + 0 < :before LIMIT :most"  # as sums, or it walks along the sequences
    )
    values = {"query": write_query(search.query, postgres=True), "after": search.after, "before": search.before}
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
    if len(found) > search.most:
        return None
    return TextCandidates(tuple(sorted(found, reverse=not search.rising)), None)


def _walk(connection: Connection, search: TextSearch) -> TextCandidates:
    order = "ASC" if search.rising else "DESC"
    wanted = text(
        "SELECT sequence, words @@ CAST(:query AS tsquery) AS matches FROM group_words"  # noqa: S608
        f" WHERE sequence > :after AND sequence < :before ORDER BY sequence {order} LIMIT :many"
    )
    values = {"query": write_query(search.query, postgres=True), "after": search.after, "before": search.before}
    end = time.monotonic() + search.seconds
    found: list[int] = []
    while True:
        rows = connection.execute(wanted, {**values, "many": AT_ONCE}).all()
        found += [sequence for sequence, matches in rows if matches]
        if len(found) >= search.most:
            return TextCandidates(tuple(found[: search.most]), found[search.most - 1])
        if len(rows) < AT_ONCE:
            return TextCandidates(tuple(found), None)
        if time.monotonic() > end:
            return TextCandidates(tuple(found), rows[-1].sequence)
        values["after" if search.rising else "before"] = rows[-1].sequence
