"""Reads events, and resolves which of them are valid in a world."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from sqlalchemy import Connection, bindparam, literal_column, select, tuple_

from app.domain.worlds import Event
from app.store.event_tables import events, withdrawals
from app.store.prepared_statements import PreparedStatement, build_dialect_sql, format_integers
from app.store.rows import decode, to_micros
from app.store.world_branches import NO_TIME_LIMIT, LineageLevel

_PLACES_PER_WORLD: Final = 2**32
"""Maximum number of events per world."""


@dataclass(frozen=True)
class StoredEvent:
    sequence: int
    time: int
    """Microseconds since 1970."""
    event: Event

    @property
    def world(self) -> int:
        return find_world(self.sequence)


def compute_sequence(world: int, place: int) -> int:
    return world * _PLACES_PER_WORLD + place


def find_world(sequence: int) -> int:
    return sequence // _PLACES_PER_WORLD


@lru_cache(maxsize=8192)
def decode_event(body: str) -> Event:
    """Decodes an event. Cached, since events never change and searches read the same ones again."""
    return decode(Event, body)


_LOAD_EVENTS = PreparedStatement(
    build_dialect_sql(
        """
        SELECT CAST(coalesce(json_agg(json_build_array(sequence, time, body)), '[]') AS text) FROM events
        WHERE withdrawn = 0 AND sequence = ANY(CAST(:sequences AS bigint[]))
        """,
        """
        SELECT json_group_array(json_array(sequence, time, body)) FROM events
        WHERE withdrawn = 0 AND sequence IN (SELECT value FROM json_each(:sequences))
        """,
    )
)


def load_valid_events(
    connection: Connection, levels: Sequence[LineageLevel], sequences: Collection[int]
) -> dict[int, StoredEvent]:
    """The valid events among `sequences`: added before the branch, not withdrawn, and not replaced by a later world's
    event of the same id."""
    if not sequences:
        return {}
    wanted = format_integers(sorted(sequences), postgres=connection.dialect.name == "postgresql")
    rows = json.loads(_LOAD_EVENTS.run(connection, sequences=wanted).scalar_one())
    until = {level.number: level.until for level in levels}
    found = [StoredEvent(sequence, time, decode_event(body)) for sequence, time, body in rows]
    mine = [one for one in found if one.time <= until.get(one.world, one.time - 1)]
    return {one.sequence: one for one in _drop_withdrawn(connection, levels, mine)}


def _drop_withdrawn(
    connection: Connection, levels: Sequence[LineageLevel], found: Sequence[StoredEvent]
) -> list[StoredEvent]:
    """Drops events that a later world of the lineage has withdrawn or replaced."""
    of_the_past = [one for one in found if one.world != levels[0].number]
    if not of_the_past:
        return list(found)
    numbers = [level.number for level in levels]
    gone = select(withdrawals.c.sequence).where(
        withdrawals.c.world.in_(numbers), withdrawals.c.sequence.in_([one.sequence for one in of_the_past])
    )
    withdrawn = set(connection.execute(gone).scalars())
    again = select(events.c.event_id, events.c.world, events.c.time).where(
        events.c.world.in_(numbers), events.c.event_id.in_({one.event.id for one in of_the_past})
    )
    nearest = _find_nearest_worlds(levels, connection.execute(again).all())
    return [one for one in found if one.sequence not in withdrawn and nearest.get(one.event.id, one.world) == one.world]


def _find_nearest_worlds(levels: Sequence[LineageLevel], told: Sequence[tuple[str, int, int]]) -> Mapping[str, int]:
    """The world whose event of an id is valid, seen from the first of `levels`."""
    near = {level.number: (depth, level.until) for depth, level in enumerate(levels)}
    found: dict[str, int] = {}
    for event_id, world, time in sorted(told, key=lambda row: -near[row[1]][0]):
        if time <= near[world][1]:
            found[event_id] = world
    return found


def load_newest_events(
    connection: Connection, levels: Sequence[LineageLevel], limit: int, before: tuple[datetime, str] | None = None
) -> list[StoredEvent]:
    """The newest events by time and id, descending."""
    found: list[StoredEvent] = []
    place = (NO_TIME_LIMIT, "") if before is None else (to_micros(before[0]), before[1])
    while len(found) < limit:
        page = [one for level in levels for one in _load_newest_of_world(connection, level, limit, place)]
        page = sorted(page, key=_order_key, reverse=True)[:limit]
        found += _drop_withdrawn(connection, levels, page)
        if len(page) < limit:
            break
        place = _order_key(page[-1])
    return found[:limit]


def _order_key(one: StoredEvent) -> tuple[int, str]:
    return one.time, one.event.id


_SELECT_NEWEST: Final = PreparedStatement(
    lambda _: (
        select(events.c.sequence, events.c.time, events.c.body)
        .where(events.c.world == bindparam("world"), events.c.withdrawn == literal_column("0"))
        .where(events.c.time <= bindparam("until"))
        .where(tuple_(events.c.time, events.c.event_id) < tuple_(bindparam("time"), bindparam("event_id")))
        .order_by(events.c.time.desc(), events.c.event_id.desc())
        .limit(bindparam("most"))
    )
)


def _load_newest_of_world(
    connection: Connection, level: LineageLevel, limit: int, place: tuple[int, str]
) -> list[StoredEvent]:
    time, event_id = place
    rows = _SELECT_NEWEST.run(
        connection, world=level.number, until=level.until, time=time, event_id=event_id, most=limit
    )
    return [StoredEvent(row["sequence"], row["time"], decode_event(row["body"])) for row in rows.mappings()]
