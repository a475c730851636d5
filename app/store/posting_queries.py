"""Queries of the event index: many keys in one statement.

Lists are passed as one text in both directions, which avoids taking the interpreter lock once per row.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, TextClause, text

from app.store.posting_keys import PostedEvent
from app.store.prepared_statements import PreparedStatement


@dataclass(frozen=True)
class PostingQuery:
    """A query for events under `key` with times up to `until`."""

    key: int
    until: int


PostingHits = list[tuple[int, int]]
"""Pairs of time and sequence."""


def build_dialect_sql(postgresql: str, sqlite: str) -> Callable[[bool], TextClause]:
    return lambda postgres: text(postgresql if postgres else sqlite)


_COUNT_POSTINGS = PreparedStatement(
    build_dialect_sql(
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
        """,
        """
        SELECT json_group_array(n) FROM (
            SELECT (
                SELECT count(*) FROM (
                    SELECT 1 FROM event_postings p
                    WHERE p.key = json_extract(k.value, '$[0]') AND p.time <= json_extract(k.value, '$[1]')
                    LIMIT :most
                )
            ) AS n
            FROM json_each(:seeks) k
        )
        """,
    )
)

_SELECT_NEWEST = PreparedStatement(
    build_dialect_sql(
        """
        SELECT CAST(coalesce(json_agg(json_build_array(k.place - 1, p.time, p.sequence)), '[]') AS text)
        FROM unnest(CAST(:keys AS bigint[]), CAST(:untils AS bigint[])) WITH ORDINALITY AS k(key, until, place)
        CROSS JOIN LATERAL (
            SELECT time, sequence FROM event_postings p WHERE p.key = k.key AND p.time <= k.until
            ORDER BY time DESC, sequence DESC LIMIT :most
        ) AS p
        """,
        # SQLite joins nothing laterally: it looks from which time on first.
        """
        SELECT json_group_array(json_array(k.key, p.time, p.sequence))
        FROM json_each(:seeks) k CROSS JOIN event_postings p
        WHERE p.key = json_extract(k.value, '$[0]') AND p.time <= json_extract(k.value, '$[1]')
        AND p.time >= coalesce((
            SELECT q.time FROM event_postings q
            WHERE q.key = json_extract(k.value, '$[0]') AND q.time <= json_extract(k.value, '$[1]')
            ORDER BY q.time DESC, q.sequence DESC LIMIT 1 OFFSET :most - 1
        ), -9223372036854775807)
        """,
    )
)

_SELECT_FOLLOWING = PreparedStatement(
    build_dialect_sql(
        """
        SELECT CAST(coalesce(json_agg(json_build_array(k.place - 1, p.time, p.sequence)), '[]') AS text)
        FROM unnest(CAST(:keys AS bigint[]), CAST(:untils AS bigint[])) WITH ORDINALITY AS k(key, until, place)
        CROSS JOIN LATERAL (
            SELECT time, sequence FROM event_postings p WHERE p.key = k.key AND p.time > :after AND p.time <= k.until
            ORDER BY time, sequence LIMIT :most
        ) AS p
        """,
        """
        SELECT json_group_array(json_array(k.key, p.time, p.sequence))
        FROM json_each(:seeks) k CROSS JOIN event_postings p
        WHERE p.key = json_extract(k.value, '$[0]') AND p.time > :after
        AND p.time <= min(json_extract(k.value, '$[1]'), coalesce((
            SELECT q.time FROM event_postings q
            WHERE q.key = json_extract(k.value, '$[0]') AND q.time > :after
            ORDER BY q.time, q.sequence LIMIT 1 OFFSET :most - 1
        ), 9223372036854775807))
        """,
    )
)

_INSERT_POSTINGS = PreparedStatement(
    build_dialect_sql(
        """
        INSERT INTO event_postings (key, time, sequence)
        SELECT key, time, sequence
        FROM unnest(CAST(:keys AS bigint[]), CAST(:times AS bigint[]), CAST(:sequences AS bigint[]))
            AS p(key, time, sequence)
        ORDER BY key
        """,
        """
        WITH told AS MATERIALIZED (
            SELECT json_extract(value, '$[0]') AS sequence, json_extract(value, '$[1]') AS time,
                json_extract(value, '$[2]') AS keys
            FROM json_each(:posted)
        )
        INSERT INTO event_postings (key, time, sequence)
        SELECT k.value, told.time, told.sequence FROM told CROSS JOIN json_each(told.keys) k ORDER BY 1
        """,
    )
)

_DELETE_POSTINGS = PreparedStatement(
    build_dialect_sql(
        "DELETE FROM event_postings WHERE key = ANY(CAST(:keys AS bigint[])) AND time = :time AND sequence = :sequence",
        """
        DELETE FROM event_postings
        WHERE key IN (SELECT value FROM json_each(:keys)) AND time = :time AND sequence = :sequence
        """,
    )
)


def format_integers(values: Iterable[int], *, postgres: bool) -> str:
    """A list of integers as one text, in the database's syntax."""
    written = ",".join(map(str, values))
    return f"{{{written}}}" if postgres else f"[{written}]"


def count_postings(
    connection: Connection, groups: Sequence[Sequence[PostingQuery]], mosts: Sequence[int]
) -> list[list[int]]:
    """Number of events per query, by group, counted up to the group's limit in `mosts`."""
    seeks = [(seek.key, seek.until, most) for group, most in zip(groups, mosts, strict=True) for seek in group]
    found = iter(
        _count_on_postgres(connection, seeks)
        if connection.dialect.name == "postgresql"
        else _count_on_sqlite(connection, seeks)
    )
    return [list(islice(found, len(group))) for group in groups]


def _count_on_postgres(connection: Connection, seeks: Sequence[tuple[int, int, int]]) -> list[int]:
    if not seeks:
        return []
    keys, untils, mosts = (format_integers(column, postgres=True) for column in zip(*seeks, strict=True))
    counted: list[int] = json.loads(_COUNT_POSTINGS.run(connection, keys=keys, untils=untils, mosts=mosts).scalar_one())
    return counted


def _count_on_sqlite(connection: Connection, seeks: Sequence[tuple[int, int, int]]) -> Iterator[int]:
    """Counts on SQLite, with one statement per limit."""
    for most, alike in groupby(seeks, key=itemgetter(2)):
        given = json.dumps([(key, until) for key, until, _ in alike])
        yield from json.loads(_COUNT_POSTINGS.run(connection, seeks=given, most=most).scalar_one())


def find_newest(connection: Connection, groups: Sequence[Sequence[PostingQuery]], most: int) -> list[PostingHits]:
    """The newest `most` events of each query, by group, newest first. May contain duplicates."""
    found = sorted(_run_queries(_SELECT_NEWEST, connection, groups, most=most), reverse=True)
    return [sorted(hits, reverse=True) for hits in _split_hits_by_group(found, groups, most)]


def find_following(
    connection: Connection, groups: Sequence[Sequence[PostingQuery]], after: int, most: int
) -> list[PostingHits]:
    """The first `most` events after `after` of each query, by group, oldest first."""
    found = sorted(_run_queries(_SELECT_FOLLOWING, connection, groups, most=most, after=after))
    return [sorted(hits) for hits in _split_hits_by_group(found, groups, most)]


def _split_hits_by_group(
    found: Sequence[tuple[int, int, int]], groups: Sequence[Sequence[PostingQuery]], most: int
) -> list[PostingHits]:
    """Splits hits by group, at most `most` per query. SQLite returns more when times are equal."""
    hits: list[PostingHits] = [[] for _ in groups]
    of_place = [hits[number] for number, group in enumerate(groups) for _ in group]
    before, left = -1, 0
    for place, time, sequence in found:
        if place != before:
            before, left = place, most
        if left:
            left -= 1
            of_place[place].append((time, sequence))
    return hits


def insert_postings(connection: Connection, posted: Sequence[PostedEvent]) -> None:
    if connection.dialect.name == "postgresql":
        rows = [(key, one.time, one.sequence) for one in posted for key in one.keys]
        columns = (format_integers(column, postgres=True) for column in zip(*rows, strict=True))
        _INSERT_POSTINGS.run(connection, **dict(zip(("keys", "times", "sequences"), columns, strict=True)))
    else:
        _INSERT_POSTINGS.run(connection, posted=json.dumps([[one.sequence, one.time, one.keys] for one in posted]))


def delete_postings(connection: Connection, posted: PostedEvent) -> None:
    keys = format_integers(posted.keys, postgres=connection.dialect.name == "postgresql")
    _DELETE_POSTINGS.run(connection, keys=keys, time=posted.time, sequence=posted.sequence)


def _run_queries(
    statement: PreparedStatement, connection: Connection, groups: Sequence[Sequence[PostingQuery]], **bounds: int
) -> Any:
    seeks = [seek for group in groups for seek in group]
    if not seeks:
        return []
    if connection.dialect.name == "postgresql":
        keys = format_integers((seek.key for seek in seeks), postgres=True)
        untils = format_integers((seek.until for seek in seeks), postgres=True)
        given = {"keys": keys, "untils": untils}
    else:
        given = {"seeks": f"[{','.join(f'[{seek.key},{seek.until}]' for seek in seeks)}]"}
    return json.loads(statement.run(connection, **given, **bounds).scalar_one())
