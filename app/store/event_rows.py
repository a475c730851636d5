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
from app.store.lineages import ALWAYS, Level
from app.store.prepared import Prepared
from app.store.rows import decode, to_micros
from app.store.seeks import by_dialect, listed

_PLACES: Final = 2**32
"""Maximum number of events per world."""


@dataclass(frozen=True)
class Stored:
    sequence: int
    time: int
    """Microseconds since 1970."""
    event: Event

    @property
    def world(self) -> int:
        return self.sequence // _PLACES


def sequence_of(world: int, place: int) -> int:
    return world * _PLACES + place


@lru_cache(maxsize=8192)
def read(body: str) -> Event:
    """Decodes an event. Cached, since events never change and searches read the same ones again."""
    return decode(Event, body)


_LOAD = Prepared(
    by_dialect(
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


def standing(connection: Connection, levels: Sequence[Level], sequences: Collection[int]) -> dict[int, Stored]:
    """The valid events among `sequences`: added before the branch, not withdrawn, and not replaced by a later world's
    event of the same id."""
    if not sequences:
        return {}
    wanted = listed(sorted(sequences), postgres=connection.dialect.name == "postgresql")
    rows = json.loads(_LOAD.run(connection, sequences=wanted).scalar_one())
    until = {level.number: level.until for level in levels}
    found = [Stored(sequence, time, read(body)) for sequence, time, body in rows]
    mine = [one for one in found if one.time <= until.get(one.world, one.time - 1)]
    return {one.sequence: one for one in _kept(connection, levels, mine)}


def _kept(connection: Connection, levels: Sequence[Level], found: Sequence[Stored]) -> list[Stored]:
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
    nearest = _nearest(levels, connection.execute(again).all())
    return [one for one in found if one.sequence not in withdrawn and nearest.get(one.event.id, one.world) == one.world]


def _nearest(levels: Sequence[Level], told: Sequence[tuple[str, int, int]]) -> Mapping[str, int]:
    """The world whose event of an id is valid, seen from the first of `levels`."""
    near = {level.number: (depth, level.until) for depth, level in enumerate(levels)}
    found: dict[str, int] = {}
    for event_id, world, time in sorted(told, key=lambda row: -near[row[1]][0]):
        if time <= near[world][1]:
            found[event_id] = world
    return found


def newest(
    connection: Connection, levels: Sequence[Level], limit: int, before: tuple[datetime, str] | None = None
) -> list[Stored]:
    """The newest events by time and id, descending."""
    found: list[Stored] = []
    place = (ALWAYS, "") if before is None else (to_micros(before[0]), before[1])
    while len(found) < limit:
        page = [one for level in levels for one in _newest_of(connection, level, limit, place)]
        page = sorted(page, key=_place, reverse=True)[:limit]
        found += _kept(connection, levels, page)
        if len(page) < limit:
            break
        place = _place(page[-1])
    return found[:limit]


def _place(one: Stored) -> tuple[int, str]:
    return one.time, one.event.id


_NEWEST: Final = Prepared(
    lambda _: (
        select(events.c.sequence, events.c.time, events.c.body)
        .where(events.c.world == bindparam("world"), events.c.withdrawn == literal_column("0"))
        .where(events.c.time <= bindparam("until"))
        .where(tuple_(events.c.time, events.c.event_id) < tuple_(bindparam("time"), bindparam("event_id")))
        .order_by(events.c.time.desc(), events.c.event_id.desc())
        .limit(bindparam("most"))
    )
)


def _newest_of(connection: Connection, level: Level, limit: int, place: tuple[int, str]) -> list[Stored]:
    time, event_id = place
    rows = _NEWEST.run(connection, world=level.number, until=level.until, time=time, event_id=event_id, most=limit)
    return [Stored(row["sequence"], row["time"], read(row["body"])) for row in rows.mappings()]
