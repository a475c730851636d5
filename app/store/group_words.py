"""The words of groups, in the database's own index: FTS5 on SQLite, tsvector and GIN on PostgreSQL.

Neither splits texts or reads what people ask for: both are given terms, each a run of letters, marks and digits. The
index has no texts, so SQLite must be told again what it forgets, word for word. What groups have beside texts, such as
a flag, is a word too.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, text

from app.domain.text_search import TextQuery

Words = Mapping[int, Sequence[str]]
"""By the sequences of groups, in the order in which they stand."""

GAP: Final = "\ue000"
"""Between texts: no phrase goes over it, since nothing that people write is made of it."""
_TAG: Final = "\ue001"
_LAST_POSITION: Final = 16_383
"""Of a tsvector."""

_CREATE: Final = {
    "sqlite": (
        "CREATE VIRTUAL TABLE IF NOT EXISTS group_words USING fts5(words, content='', columnsize=0,"
        " tokenize=\"unicode61 remove_diacritics 0 categories 'L* M* N* Co'\")",
    ),
    "postgresql": (
        "CREATE TABLE IF NOT EXISTS group_words (sequence BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
        "CREATE INDEX IF NOT EXISTS ix_group_words ON group_words USING gin (words) WITH (fastupdate = off)",
    ),
}


def tag(field: str, value: str) -> str:
    """The word for a value that is no text. A digest, since an index would fold its letters and split it at signs."""
    digest = hashlib.blake2b(f"{field}\0{value}".encode("utf-8", "surrogatepass"), digest_size=8)
    return _TAG + digest.hexdigest()


def create_words(connection: Connection) -> None:
    for statement in _CREATE[connection.dialect.name]:
        connection.exec_driver_sql(statement)


def drop_words(connection: Connection) -> None:
    connection.execute(text("DROP TABLE IF EXISTS group_words"))


def add_words(connection: Connection, words: Words) -> None:
    """Of groups that the index does not have."""
    if not words:
        return
    if connection.dialect.name == "postgresql":
        into = text("INSERT INTO group_words (sequence, words) VALUES (:sequence, CAST(:words AS tsvector))")
        rows = [{"sequence": one, "words": _write_vector(terms)} for one, terms in words.items()]
    else:
        into = text("INSERT INTO group_words (rowid, words) VALUES (:sequence, :words)")
        rows = [{"sequence": one, "words": " ".join(terms)} for one, terms in words.items()]
    connection.execute(into, rows)


def remove_words(connection: Connection, words: Words) -> None:
    """Of groups that the index has: exactly the words that were added."""
    if not words:
        return
    if connection.dialect.name == "postgresql":
        gone = text("DELETE FROM group_words WHERE sequence = :sequence")
    else:
        gone = text("INSERT INTO group_words (group_words, rowid, words) VALUES ('delete', :sequence, :words)")
    connection.execute(gone, [{"sequence": one, "words": " ".join(terms)} for one, terms in words.items()])


def _write_vector(terms: Sequence[str]) -> str:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, term in enumerate(terms, start=1):
        if term != GAP:
            places[term].append(min(place, _LAST_POSITION))
    return " ".join(f"{_quote(term)}:{','.join(map(str, at))}" for term, at in places.items())


def write_query(query: TextQuery, *, postgres: bool) -> str:
    """In the syntax of the database. Terms have no signs in them; they are quoted nevertheless."""
    if postgres:
        return " & ".join(f"({' <-> '.join(map(_quote, phrase))})" for phrase in query.phrases)
    return " AND ".join('"{}"'.format(" ".join(phrase).replace('"', '""')) for phrase in query.phrases)


def _quote(term: str) -> str:
    escaped = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
