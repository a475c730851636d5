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

from app.store.postings import Posted
from app.store.prepared import Prepared


@dataclass(frozen=True)
class Seek:
    """A query for events under `key` with times up to `until`."""

    key: int
    until: int


Hits = list[tuple[int, int]]
"""Pairs of time and sequence."""


def by_dialect(postgresql: str, sqlite: str) -> Callable[[bool], TextClause]:
    return lambda postgres: text(postgresql if postgres else sqlite)


_COUNT = Prepared(
    by_dialect(
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

_NEWEST = Prepared(
    by_dialect(
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

_NEXT = Prepared(
    by_dialect(
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

_ADD = Prepared(
    by_dialect(
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

_REMOVE = Prepared(
    by_dialect(
        "DELETE FROM event_postings WHERE key = ANY(CAST(:keys AS bigint[])) AND time = :time AND sequence = :sequence",
        """
        DELETE FROM event_postings
        WHERE key IN (SELECT value FROM json_each(:keys)) AND time = :time AND sequence = :sequence
        """,
    )
)


def listed(values: Iterable[int], *, postgres: bool) -> str:
    """A list of integers as one text, in the database's syntax."""
    written = ",".join(map(str, values))
    return f"{{{written}}}" if postgres else f"[{written}]"


def count(connection: Connection, groups: Sequence[Sequence[Seek]], mosts: Sequence[int]) -> list[list[int]]:
    """Number of events per query, by group, counted up to the group's limit in `mosts`."""
    seeks = [(seek.key, seek.until, most) for group, most in zip(groups, mosts, strict=True) for seek in group]
    found = iter(
        _counts_at_once(connection, seeks) if connection.dialect.name == "postgresql" else _counts(connection, seeks)
    )
    return [list(islice(found, len(group))) for group in groups]


def _counts_at_once(connection: Connection, seeks: Sequence[tuple[int, int, int]]) -> list[int]:
    if not seeks:
        return []
    keys, untils, mosts = (listed(column, postgres=True) for column in zip(*seeks, strict=True))
    counted: list[int] = json.loads(_COUNT.run(connection, keys=keys, untils=untils, mosts=mosts).scalar_one())
    return counted


def _counts(connection: Connection, seeks: Sequence[tuple[int, int, int]]) -> Iterator[int]:
    """Counts on SQLite, with one statement per limit."""
    for most, alike in groupby(seeks, key=itemgetter(2)):
        given = json.dumps([(key, until) for key, until, _ in alike])
        yield from json.loads(_COUNT.run(connection, seeks=given, most=most).scalar_one())


def newest(connection: Connection, groups: Sequence[Sequence[Seek]], most: int) -> list[Hits]:
    """The newest `most` events of each query, by group, newest first. May contain duplicates."""
    found = sorted(_run(_NEWEST, connection, groups, most=most), reverse=True)
    return [sorted(hits, reverse=True) for hits in _by_group(found, groups, most)]


def following(connection: Connection, groups: Sequence[Sequence[Seek]], after: int, most: int) -> list[Hits]:
    """The first `most` events after `after` of each query, by group, oldest first."""
    found = sorted(_run(_NEXT, connection, groups, most=most, after=after))
    return [sorted(hits) for hits in _by_group(found, groups, most)]


def _by_group(found: Sequence[tuple[int, int, int]], groups: Sequence[Sequence[Seek]], most: int) -> list[Hits]:
    """Splits hits by group, at most `most` per query. SQLite returns more when times are equal."""
    hits: list[Hits] = [[] for _ in groups]
    of_place = [hits[number] for number, group in enumerate(groups) for _ in group]
    before, left = -1, 0
    for place, time, sequence in found:
        if place != before:
            before, left = place, most
        if left:
            left -= 1
            of_place[place].append((time, sequence))
    return hits


def add(connection: Connection, posted: Sequence[Posted]) -> None:
    if connection.dialect.name == "postgresql":
        rows = [(key, one.time, one.sequence) for one in posted for key in one.keys]
        columns = (listed(column, postgres=True) for column in zip(*rows, strict=True))
        _ADD.run(connection, **dict(zip(("keys", "times", "sequences"), columns, strict=True)))
    else:
        _ADD.run(connection, posted=json.dumps([[one.sequence, one.time, one.keys] for one in posted]))


def remove(connection: Connection, posted: Posted) -> None:
    keys = listed(posted.keys, postgres=connection.dialect.name == "postgresql")
    _REMOVE.run(connection, keys=keys, time=posted.time, sequence=posted.sequence)


def _run(statement: Prepared, connection: Connection, groups: Sequence[Sequence[Seek]], **bounds: int) -> Any:
    seeks = [seek for group in groups for seek in group]
    if not seeks:
        return []
    if connection.dialect.name == "postgresql":
        keys = listed((seek.key for seek in seeks), postgres=True)
        untils = listed((seek.until for seek in seeks), postgres=True)
        given = {"keys": keys, "untils": untils}
    else:
        given = {"seeks": f"[{','.join(f'[{seek.key},{seek.until}]' for seek in seeks)}]"}
    return json.loads(statement.run(connection, **given, **bounds).scalar_one())
