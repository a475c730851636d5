"""Writes the event index of a database anew from its events."""

import logging
from functools import partial
from typing import Final

from sqlalchemy import Connection, delete, select

from app.store.database import Database
from app.store.event_index import add_postings, clear_segments
from app.store.event_rows import compute_sequence, decode_event
from app.store.event_tables import events, postings, worlds
from app.store.posting_keys import index_event

log = logging.getLogger(__name__)

_EVENTS_AT_ONCE: Final = 1000


def convert_postings(database: Database) -> None:
    """Blocking. Earlier releases wrote rows on SQLite too, and one may have run on this database since the last start.
    Each world is one transaction; the rows go when all worlds have segments, so an interrupted conversion begins
    again."""
    if database.postgres or not database.write_blocking(_has_postings):
        return
    numbers = database.write_blocking(_list_worlds)
    log.info("the event index of %d worlds is written anew, which takes some 10 s for 100,000 events", len(numbers))
    for number in numbers:
        database.write_blocking(partial(_convert_world, number=number))
    database.write_blocking(lambda connection: connection.execute(delete(postings)))


def index_events(connection: Connection) -> None:
    """Of a database without an index."""
    for number in _list_worlds(connection):
        _index_world(connection, number)


def _has_postings(connection: Connection) -> bool:
    return connection.execute(select(postings.c.sequence).limit(1)).first() is not None


def _list_worlds(connection: Connection) -> list[int]:
    return list(connection.execute(select(worlds.c.number).order_by(worlds.c.number)).scalars())


def _convert_world(connection: Connection, number: int) -> None:
    clear_segments(connection, number)
    _index_world(connection, number)


def _index_world(connection: Connection, number: int) -> None:
    place = compute_sequence(number, 0)
    while True:
        standing = (events.c.sequence >= place, events.c.sequence < compute_sequence(number + 1, 0))
        wanted = select(events.c.sequence, events.c.time, events.c.withdrawn, events.c.body).where(*standing)
        rows = connection.execute(wanted.order_by(events.c.sequence).limit(_EVENTS_AT_ONCE)).all()
        if not rows:
            return
        posted = [
            index_event(sequence, time, number, decode_event(body))
            for sequence, time, withdrawn, body in rows
            if not withdrawn
        ]
        if posted:
            add_postings(connection, posted)
        place = rows[-1].sequence + 1
