"""The index of events on PostgreSQL: a row for each posting. Many keys are looked up by one statement.

Lists are passed as one text in both directions, which avoids taking the interpreter lock once per row.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, text

from app.store.posting_index import PostingHits, PostingIndex, PostingQuery
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
        FROM unnest(CAST(:keys AS bigint[]), CAST(:untils AS bigint[])) WITH ORDINALITY AS k(key, until, place)
        CROSS JOIN LATERAL (
            SELECT time, sequence FROM event_postings p WHERE p.key = k.key AND p.time <= k.until
            ORDER BY time DESC, sequence DESC LIMIT :most
        ) AS p
        """
    )
)

_SELECT_FOLLOWING: Final = PreparedStatement(
    lambda _: text(
        """
        SELECT CAST(coalesce(json_agg(json_build_array(k.place - 1, p.time, p.sequence)), '[]') AS text)
        FROM unnest(CAST(:keys AS bigint[]), CAST(:untils AS bigint[])) WITH ORDINALITY AS k(key, until, place)
        CROSS JOIN LATERAL (
            SELECT time, sequence FROM event_postings p WHERE p.key = k.key AND p.time > :after AND p.time <= k.until
            ORDER BY time, sequence LIMIT :most
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

    def count(self, groups: Sequence[Sequence[PostingQuery]], mosts: Sequence[int]) -> list[list[int]]:
        seeks = [
            (_combine_key(seek.key), seek.until, most)
            for group, most in zip(groups, mosts, strict=True)
            for seek in group
        ]
        if not seeks:
            return [[] for _ in groups]
        keys, untils, limits = (format_integers(column, postgres=True) for column in zip(*seeks, strict=True))
        ran = _COUNT_POSTINGS.run(self._connection, keys=keys, untils=untils, mosts=limits)
        found = iter(json.loads(ran.scalar_one()))
        return [list(islice(found, len(group))) for group in groups]

    def find_newest(self, groups: Sequence[Sequence[PostingQuery]], most: int) -> list[PostingHits]:
        found = self._run_queries(_SELECT_NEWEST, groups, most=most)
        return [sorted(hits, reverse=True) for hits in _split_hits_by_group(found, groups)]

    def find_following(self, groups: Sequence[Sequence[PostingQuery]], after: int, most: int) -> list[PostingHits]:
        found = self._run_queries(_SELECT_FOLLOWING, groups, most=most, after=after)
        return [sorted(hits) for hits in _split_hits_by_group(found, groups)]

    def _run_queries(
        self, statement: PreparedStatement, groups: Sequence[Sequence[PostingQuery]], **bounds: int
    ) -> Any:
        seeks = [seek for group in groups for seek in group]
        if not seeks:
            return []
        keys = format_integers((_combine_key(seek.key) for seek in seeks), postgres=True)
        untils = format_integers((seek.until for seek in seeks), postgres=True)
        return json.loads(statement.run(self._connection, keys=keys, untils=untils, **bounds).scalar_one())


def _combine_key(key: tuple[int, int]) -> int:
    scope, feature = key
    return scope ^ feature


def _split_hits_by_group(
    found: Iterable[tuple[int, int, int]], groups: Sequence[Sequence[PostingQuery]]
) -> list[PostingHits]:
    hits: list[PostingHits] = [[] for _ in groups]
    of_place = [hits[number] for number, group in enumerate(groups) for _ in group]
    for place, time, sequence in found:
        of_place[place].append((time, sequence))
    return hits


def insert_postings(connection: Connection, posted: Sequence[PostedEvent]) -> None:
    rows = [(key, one.time, one.sequence) for one in posted for key in {_combine_key(key) for key in one.keys}]
    columns = (format_integers(column, postgres=True) for column in zip(*rows, strict=True))
    _INSERT_POSTINGS.run(connection, **dict(zip(("keys", "times", "sequences"), columns, strict=True)))


def delete_postings(connection: Connection, posted: PostedEvent) -> None:
    keys = format_integers((_combine_key(key) for key in posted.keys), postgres=True)
    _DELETE_POSTINGS.run(connection, keys=keys, time=posted.time, sequence=posted.sequence)
