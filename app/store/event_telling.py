"""Inserts events with their index entries, and withdraws events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from app.domain.errors import Conflict, NotFound
from app.domain.worlds import Event, EventsTold
from app.store import seeks
from app.store.database import Database
from app.store.event_rows import read, sequence_of
from app.store.event_tables import events, successions, withdrawals
from app.store.lineages import Level, counted, held, lineage
from app.store.postings import Posted, posted
from app.store.rows import Row, encode, insert_rows, to_micros


@dataclass(frozen=True)
class Known:
    """An existing event of a lineage, found by its id."""

    sequence: int
    world: int
    body: str


def tell(connection: Connection, database: Database, world: str, told: Sequence[Event]) -> EventsTold:
    levels = held(connection, database, world)
    mine = levels[0]
    known = {event_id: one.body for event_id, one in _known(connection, levels, [event.id for event in told]).items()}
    rows: list[Row] = []
    found: list[Posted] = []
    successors: list[Row] = []
    for place, event in enumerate(told):
        body = encode(event)
        if event.id in known:
            if known[event.id] != body and read(known[event.id]) != event:
                raise Conflict(f"event {event.id!r} already exists with different content", field=f"events[{place}].id")
            continue
        known[event.id] = body
        sequence, time = sequence_of(mine.number, mine.events + len(rows)), to_micros(event.time)
        row: Row = {"sequence": sequence, "world": mine.number, "event_id": event.id, "time": time}
        rows.append({**row, "withdrawn": 0, "body": body})
        found.append(posted(sequence, time, mine.number, event))
        successors += [
            {"world": mine.number, "superseded": former, "time": time, "sequence": sequence}
            for former in dict.fromkeys(event.supersedes)
        ]
    if rows:
        insert_rows(connection, events, rows)
        insert_rows(connection, successions, successors)
        seeks.add(connection, found)
        counted(connection, mine.number, len(rows))
    return EventsTold(new=len(rows), known=len(told) - len(rows))


def withdraw(connection: Connection, database: Database, world: str, event_id: str) -> bool:
    if not lineage(connection, world):
        raise NotFound(f"there is no world {world!r}")
    levels = held(connection, database, world)
    known = _known(connection, levels, [event_id]).get(event_id)
    if known is None:
        return False
    if known.world == levels[0].number:
        here = events.c.sequence == known.sequence
        connection.execute(update(events).where(here).values(withdrawn=1))
        event = read(known.body)
        seeks.remove(connection, posted(known.sequence, to_micros(event.time), known.world, event))
    else:
        row = {"world": levels[0].number, "sequence": known.sequence}
        connection.execute(database.insert_new(withdrawals), row)
    return True


def _known(connection: Connection, levels: Sequence[Level], event_ids: Sequence[str]) -> Mapping[str, Known]:
    """The nearest event of each id, including withdrawn ones."""
    columns = (events.c.event_id, events.c.world, events.c.time, events.c.sequence, events.c.body)
    numbers = [level.number for level in levels]
    wanted = select(*columns).where(events.c.world.in_(numbers), events.c.event_id.in_(event_ids))
    rows = connection.execute(wanted).all()
    found: dict[str, Known] = {}
    for level in reversed(levels):
        found |= {
            event_id: Known(sequence, number, body)
            for event_id, number, time, sequence, body in rows
            if number == level.number and time <= level.until
        }
    return found
