"""Inserts events with their index entries, and corrects and withdraws events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, exists, select, update

from app.domain.errors import Conflict, NotFound
from app.domain.worlds import Event, EventsAdded
from app.store.database import Database
from app.store.event_index import add_postings, remove_postings
from app.store.event_revisions import KnownEvent, build_event_place, find_known_events, find_seen_event
from app.store.event_rows import compute_sequence, decode_event
from app.store.event_tables import events, successions, withdrawals, worlds
from app.store.inserts import insert_rows
from app.store.posting_keys import PostedEvent, index_event
from app.store.rows import Row, encode, to_micros
from app.store.world_branches import LineageLevel, add_to_event_count, load_world_lineage, lock_lineage
from app.store.world_revisions import Writing, copy_to_branches, keep_revision, keep_withdrawn


@dataclass(frozen=True)
class _EventRows:
    """Rows of events and of what finds them."""

    events: list[Row] = field(default_factory=list)
    postings: list[PostedEvent] = field(default_factory=list)
    successions: list[Row] = field(default_factory=list)

    def add(self, world: int, sequence: int, event: Event, written: Writing) -> None:
        time = to_micros(event.time)
        self.events.append(
            {
                "sequence": sequence,
                "world": world,
                "event_id": event.id,
                "time": time,
                "withdrawn": 0,
                "body": encode(event),
                "revision": written.revision,
                "author": written.author,
                "written_at": written.at,
            }
        )
        self.postings.append(index_event(sequence, time, world, event))
        self.successions.extend(
            {"world": world, "superseded": former, "time": time, "sequence": sequence}
            for former in dict.fromkeys(event.supersedes)
        )

    def insert(self, connection: Connection) -> None:
        if self.events:
            insert_rows(connection, events, self.events)
            insert_rows(connection, successions, self.successions)
            add_postings(connection, self.postings)


@dataclass(frozen=True)
class _Correction:
    """A new revision of `former` in a world. `standing`: whether the world had the former one until now."""

    world: int
    sequence: int
    event: Event
    author: str
    former: KnownEvent
    standing: bool

    @property
    def in_place(self) -> bool:
        return self.sequence == self.former.sequence


def insert_events(
    connection: Connection, database: Database, world: str, told: Sequence[Event], author: str
) -> EventsAdded:
    levels = lock_lineage(connection, database, world)
    mine = levels[0]
    known = {
        event_id: decode_event(one.body)
        for event_id, one in find_known_events(connection, levels, [event.id for event in told]).items()
    }
    new, written = _EventRows(), Writing(1, author, database.read_clock())
    for place, event in enumerate(told):
        if event.id in known:
            if known[event.id] != event:
                raise Conflict(
                    f"event {event.id!r} already exists with different content: "
                    f"to correct it, PUT it to /worlds/{world}/events/{event.id}",
                    field=f"events[{place}].id",
                )
            continue
        known[event.id] = event
        new.add(mine.number, compute_sequence(mine.number, mine.events + len(new.events)), event, written)
    new.insert(connection)
    if new.events:
        add_to_event_count(connection, mine.number, len(new.events))
    return EventsAdded(new=len(new.events), known=len(told) - len(new.events))


def correct_event(
    connection: Connection, database: Database, world: str, event: Event, based_on: int | None, author: str
) -> int | None:
    """Returns the number of the revision that is in force; None without an event of this id."""
    levels = _lock_existing(connection, database, world)
    mine = levels[0]
    seen = find_seen_event(connection, levels, event.id)
    if seen is None:
        return None
    former, revision = seen.event, seen.event.written.revision
    if based_on not in (None, revision):
        raise Conflict(f"revision {revision} of {event.id!r} is in force, and this is based on {based_on}")
    if seen.standing and decode_event(former.body) == event:
        return revision
    inherited = former.world != mine.number
    sequence = compute_sequence(mine.number, mine.events) if inherited else former.sequence
    correction = _Correction(mine.number, sequence, event, author, former, seen.standing)
    keep_revision(connection, database, build_event_place(mine.number, event.id), former.body, former.written)
    _keep_in_branches(connection, database, correction)
    _replace_event(connection, database, correction)
    return revision + 1


def _replace_event(connection: Connection, database: Database, correction: _Correction) -> None:
    """Replaces a world's own event in its place. An inherited one stays with the parent."""
    former = correction.former
    if correction.in_place:
        _delete_event(connection, former)
    else:
        _insert_withdrawals(connection, database, [{"world": correction.world, "sequence": former.sequence}])
        add_to_event_count(connection, correction.world, 1)
    new = _EventRows()
    written = Writing(former.written.revision + 1, correction.author, database.read_clock())
    new.add(correction.world, correction.sequence, correction.event, written)
    new.insert(connection)


def _delete_event(connection: Connection, former: KnownEvent) -> None:
    _remove_postings(connection, former)
    if superseded := decode_event(former.body).supersedes:
        of_event = (successions.c.time == former.time, successions.c.sequence == former.sequence)
        of_world = (successions.c.world == former.world, successions.c.superseded.in_(superseded))
        connection.execute(delete(successions).where(*of_world, *of_event))
    connection.execute(delete(events).where(events.c.sequence == former.sequence))


def _keep_in_branches(connection: Connection, database: Database, correction: _Correction) -> None:
    """Branches keep what they branched from: the former revision, as an event of their own, or no such event. Of one
    that they lost with their parent they keep what it was."""
    former, place = correction.former, build_event_place(correction.world, correction.event.id)
    own = exists().where(events.c.world == worlds.c.number, events.c.event_id == correction.event.id)
    gone = exists().where(withdrawals.c.world == worlds.c.number, withdrawals.c.sequence == former.sequence)
    columns = (worlds.c.number, worlds.c.branched_at, worlds.c.events, own.label("own"), gone.label("gone"))
    branches = connection.execute(select(*columns).where(worlds.c.parent == correction.world)).all()
    kept = _EventRows()
    copies: dict[int, int] = {}
    lost: list[int] = []
    for number, branched_at, told, has_own, withdrew in branches:
        if former.time > branched_at or has_own or withdrew:
            continue
        if correction.standing:
            copies[number] = compute_sequence(number, told)
            kept.add(number, copies[number], decode_event(former.body), former.written)
            add_to_event_count(connection, number, 1)
        else:
            lost.append(number)
    kept.insert(connection)
    if lost:
        copy_to_branches(connection, place, former.written.revision, lost)
    withdrawn = _find_withdrawals_of_copies(connection, former.sequence, copies)
    time = to_micros(correction.event.time)
    unseen: list[Row] = [
        {"world": number, "sequence": correction.sequence} for number, at, *_ in branches if time <= at
    ]
    _insert_withdrawals(connection, database, [*withdrawn, *unseen])


def _find_withdrawals_of_copies(connection: Connection, sequence: int, copies: Mapping[int, int]) -> list[Row]:
    """What branches of a branch have withdrawn stays withdrawn when that branch gets a copy."""
    withdrew = connection.execute(select(withdrawals.c.world).where(withdrawals.c.sequence == sequence)).scalars().all()
    if not copies or not withdrew:
        return []
    named = select(worlds.c.number, worlds.c.name).where(worlds.c.number.in_(withdrew))
    return [
        {"world": number, "sequence": copies[level.number]}
        for number, name in connection.execute(named).all()
        for level in load_world_lineage(connection, name)
        if level.number in copies
    ]


def withdraw_event(connection: Connection, database: Database, world: str, event_id: str, author: str) -> bool:
    levels = _lock_existing(connection, database, world)
    seen = find_seen_event(connection, levels, event_id)
    if seen is None:
        return False
    known = seen.event
    if seen.standing:
        place = build_event_place(levels[0].number, event_id)
        keep_withdrawn(connection, database, place, known.body, known.written, author)
    if known.world == levels[0].number:
        here = events.c.sequence == known.sequence
        connection.execute(update(events).where(here).values(withdrawn=1))
        _remove_postings(connection, known)
    else:
        _insert_withdrawals(connection, database, [{"world": levels[0].number, "sequence": known.sequence}])
    return True


def _lock_existing(connection: Connection, database: Database, world: str) -> list[LineageLevel]:
    if not load_world_lineage(connection, world):
        raise NotFound(f"there is no world {world!r}")
    return lock_lineage(connection, database, world)


def _insert_withdrawals(connection: Connection, database: Database, rows: Sequence[Row]) -> None:
    if rows:
        connection.execute(database.insert_new(withdrawals), rows)


def _remove_postings(connection: Connection, known: KnownEvent) -> None:
    if known.withdrawn:
        return
    event = decode_event(known.body)
    remove_postings(connection, index_event(known.sequence, known.time, known.world, event))
