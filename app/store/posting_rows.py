"""The index of events on PostgreSQL: a row for each posting. Many keys are looked up by one statement.

Lists are passed as one text in both directions, which avoids taking the interpreter lock once per row.
"""

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, text

from app.store.posting_index import PostingHits, PostingIndex, PostingSeek
from app.store.posting_keys import PostedEvent
from app.store.prepared_statements import PreparedStatement, format_integers

_COUNT_POSTINGS: Final = PreparedStatement(
    lambda _: text(
        """
        SELECT CAST(coalesce(json_agg(n ORDER BY place), '[]') AS text) FROM (
            SELECT k.place, (
                SELECT count(*) FROM (
                    SELECT 1 FROM event_postings p WHERE p.key = k.key AND p.time <= k.until LIMIT k.most
                ) AS found
            ) AS n
            FROM unnest(CAST(:keys AS bigint[]), CAST(:untils AS bigint[]), CAST(:mosts AS bigint[]))
                WITH ORDINALITY AS k(key, until, most, place)
        ) AS counted
        """
    )
)

_SELECT_NEWEST: Final = PreparedStatement(
    lambda _: text(
        """
        SELECT CAST(coalesce(json_agg(json_build_array(k.place - 1, p.time, p.sequence)), '[]') AS text)
        FROM unnest(CAST(:keys AS bigint[]), CAST(:untils AS bigint[]), CAST(:mosts AS bigint[]))
            WITH ORDINALITY AS k(key, until, most, place)
        CROSS JOIN LATERAL (
            SELECT time, sequence FROM event_postings p WHERE p.key = k.key AND p.time <= k.until
            ORDER BY time DESC, sequence DESC LIMIT k.most
        ) AS p
        """
    )
)

_SELECT_FOLLOWING: Final = PreparedStatement(
    lambda _: text(
        """
        SELECT CAST(coalesce(json_agg(json_build_array(k.place - 1, p.time, p.sequence)), '[]') AS text)
        FROM unnest(
            CAST(:keys AS bigint[]), CAST(:untils AS bigint[]), CAST(:mosts AS bigint[]), CAST(:afters AS bigint[])
        ) WITH ORDINALITY AS k(key, until, most, after, place)
        CROSS JOIN LATERAL (
            SELECT time, sequence FROM event_postings p WHERE p.key = k.key AND p.time > k.after AND p.time <= k.until
            ORDER BY time, sequence LIMIT k.most
        ) AS p
        """
    )
)

_INSERT_POSTINGS: Final = PreparedStatement(
    lambda _: text(
        """
        INSERT INTO event_postings (key, time, sequence)
        SELECT key, time, sequence
        FROM unnest(CAST(:keys AS bigint[]), CAST(:times AS bigint[]), CAST(:sequences AS bigint[]))
            AS p(key, time, sequence)
        ORDER BY key
        """
    )
)

_DELETE_POSTINGS: Final = PreparedStatement(
    lambda _: text(
        "DELETE FROM event_postings WHERE key = ANY(CAST(:keys AS bigint[])) AND time = :time AND sequence = :sequence"
    )
)


class RowIndex(PostingIndex):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def count(self, seeks: Sequence[PostingSeek]) -> list[list[int]]:
        found = iter(self._run(_COUNT_POSTINGS, seeks))
        return [list(islice(found, len(seek.queries))) for seek in seeks]

    def find(self, seeks: Sequence[PostingSeek]) -> list[PostingHits]:
        hits: list[PostingHits] = [[] for _ in seeks]
        for statement, newest in ((_SELECT_NEWEST, True), (_SELECT_FOLLOWING, False)):
            numbers = [number for number, seek in enumerate(seeks) if (seek.after is None) == newest]
            owners = [number for number in numbers for _ in seeks[number].queries]
            for place, time, sequence in self._run(statement, [seeks[number] for number in numbers]):
                hits[owners[place]].append((time, sequence))
        return [sorted(found, reverse=seek.after is None) for found, seek in zip(hits, seeks, strict=True)]

    def _run(self, statement: PreparedStatement, seeks: Sequence[PostingSeek]) -> Any:
        rows = [
            (_combine_key(query.key), query.until, seek.most, seek.after or 0)
            for seek in seeks
            for query in seek.queries
        ]
        if not rows:
            return []
        columns = (format_integers(column, postgres=True) for column in zip(*rows, strict=True))
        given = dict(zip(("keys", "untils", "mosts", "afters"), columns, strict=True))
        return json.loads(statement.run(self._connection, **given).scalar_one())


def _combine_key(key: tuple[int, int]) -> int:
    scope, feature = key
    return scope ^ feature


def insert_postings(connection: Connection, posted: Sequence[PostedEvent]) -> None:
    rows = [(key, one.time, one.sequence) for one in posted for key in {_combine_key(key) for key in one.keys}]
    columns = (format_integers(column, postgres=True) for column in zip(*rows, strict=True))
    _INSERT_POSTINGS.run(connection, **dict(zip(("keys", "times", "sequences"), columns, strict=True)))


def delete_postings(connection: Connection, posted: PostedEvent) -> None:
    keys = format_integers((_combine_key(key) for key in posted.keys), postgres=True)
    _DELETE_POSTINGS.run(connection, keys=keys, time=posted.time, sequence=posted.sequence)
