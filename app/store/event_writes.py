"""Inserts events with their index entries, and withdraws events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from app.domain.errors import Conflict, NotFound
from app.domain.worlds import Event, EventsAdded
from app.store import posting_queries
from app.store.database import Database
from app.store.event_rows import compute_sequence, decode_event
from app.store.event_tables import events, successions, withdrawals
from app.store.posting_keys import PostedEvent, index_event
from app.store.rows import Row, encode, insert_rows, to_micros
from app.store.world_branches import LineageLevel, add_to_event_count, load_world_lineage, lock_lineage


@dataclass(frozen=True)
class KnownEvent:
    """An existing event of a lineage, found by its id."""

    sequence: int
    world: int
    body: str


def insert_events(connection: Connection, database: Database, world: str, told: Sequence[Event]) -> EventsAdded:
    levels = lock_lineage(connection, database, world)
    mine = levels[0]
    known = {
        event_id: one.body
        for event_id, one in _find_known_events(connection, levels, [event.id for event in told]).items()
    }
    rows: list[Row] = []
    found: list[PostedEvent] = []
    successors: list[Row] = []
    for place, event in enumerate(told):
        body = encode(event)
        if event.id in known:
            if known[event.id] != body and decode_event(known[event.id]) != event:
                raise Conflict(f"event {event.id!r} already exists with different content", field=f"events[{place}].id")
            continue
        known[event.id] = body
        sequence, time = compute_sequence(mine.number, mine.events + len(rows)), to_micros(event.time)
        row: Row = {"sequence": sequence, "world": mine.number, "event_id": event.id, "time": time}
        rows.append({**row, "withdrawn": 0, "body": body})
        found.append(index_event(sequence, time, mine.number, event))
        successors += [
            {"world": mine.number, "superseded": former, "time": time, "sequence": sequence}
            for former in dict.fromkeys(event.supersedes)
        ]
    if rows:
        insert_rows(connection, events, rows)
        insert_rows(connection, successions, successors)
        posting_queries.insert_postings(connection, found)
        add_to_event_count(connection, mine.number, len(rows))
    return EventsAdded(new=len(rows), known=len(told) - len(rows))


def withdraw_event(connection: Connection, database: Database, world: str, event_id: str) -> bool:
    if not load_world_lineage(connection, world):
        raise NotFound(f"there is no world {world!r}")
    levels = lock_lineage(connection, database, world)
    known = _find_known_events(connection, levels, [event_id]).get(event_id)
    if known is None:
        return False
    if known.world == levels[0].number:
        here = events.c.sequence == known.sequence
        connection.execute(update(events).where(here).values(withdrawn=1))
        event = decode_event(known.body)
        posting_queries.delete_postings(
            connection, index_event(known.sequence, to_micros(event.time), known.world, event)
        )
    else:
        row = {"world": levels[0].number, "sequence": known.sequence}
        connection.execute(database.insert_new(withdrawals), row)
    return True


def _find_known_events(
    connection: Connection, levels: Sequence[LineageLevel], event_ids: Sequence[str]
) -> Mapping[str, KnownEvent]:
    """The nearest event of each id, including withdrawn ones."""
    columns = (events.c.event_id, events.c.world, events.c.time, events.c.sequence, events.c.body)
    numbers = [level.number for level in levels]
    wanted = select(*columns).where(events.c.world.in_(numbers), events.c.event_id.in_(event_ids))
    rows = connection.execute(wanted).all()
    found: dict[str, KnownEvent] = {}
    for level in reversed(levels):
        found |= {
            event_id: KnownEvent(sequence, number, body)
            for event_id, number, time, sequence, body in rows
            if number == level.number and time <= level.until
        }
    return found
