"""The store of events: told, corrected, withdrawn, listed, and searched.

An event is told once, in one world, and branches see it where they stand: a branch has its parent's events up to the
time of the branch. So a write to a world says what its branches keep. A correction replaces a world's own event in its
place, and an inherited one by an event of the world's own; branches made before keep a copy of the former one.
A withdrawal marks a world's own event in its row, and an inherited one in `event_withdrawals`. Earlier texts are kept.

Each write locks the world and its past, and changes the index in the same transaction: what was answered is found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection, delete, exists, select, update

from app.domain.errors import Conflict, NotFound
from app.domain.values import digest_of_model
from app.domain.worlds import (
    Event,
    EventsAdded,
    EventSearch,
    KnownEvent,
    SearchFindings,
    World,
)
from app.features.worlds.store_memories import forget_world, memories
from app.features.worlds.store_search import (
    EventIndexes,
    PostedEvent,
    add_postings,
    index_event,
    remove_postings,
    search_events,
)
from app.features.worlds.store_worlds import (
    Document,
    LineageLevel,
    WrittenBody,
    add_to_event_count,
    branch_world,
    build_order_key,
    close_world,
    compute_sequence,
    copy_newest_text,
    decode_event,
    events,
    find_text_before,
    keep_text,
    load_newest_events,
    load_valid_events,
    load_world_lineage,
    load_worlds,
    lock_lineage,
    reopen_world,
    successions,
    withdrawals,
    worlds,
)
from app.store.database import Database, StorePart, reads, writes
from app.store.statements import Row, encode, insert_rows, is_storable, to_micros


class EventStore(StorePart):
    """Events of worlds. A branch sees its parent's events up to the branch time, and its parent's lorebooks. `author`
    is the name of the key, empty where none is needed."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._indexes = EventIndexes()

    @writes(build_order_key)
    def add_events(self, connection: Connection, world: str, events: Sequence[Event], author: str = "") -> EventsAdded:
        """Adds all events or none, and creates the world if it does not exist. Conflict naming `events[i].id` when the
        id exists, in this world or its past, with different content."""
        levels = lock_lineage(connection, self.database, world)
        mine = levels[0]
        known = {
            event_id: decode_event(one.written.body)
            for event_id, one in _find_lineage_events(connection, levels, [event.id for event in events]).items()
        }
        new, now = _EventRows(), self.database.read_clock()
        for index, event in enumerate(events):
            if event.id in known:
                if known[event.id] != event:
                    raise Conflict(
                        f"event {event.id!r} already exists with different content: "
                        f"to correct it, PUT it to /worlds/{world}/events/{event.id}",
                        field=f"events[{index}].id",
                    )
                continue
            known[event.id] = event  # the same id may stand in this batch twice
            new.add(mine.number, compute_sequence(mine.number, mine.events + len(new.events)), event, author, now)
        new.insert(connection)
        if new.events:
            add_to_event_count(connection, mine.number, len(new.events))
        return EventsAdded(new=len(new.events), known=len(events) - len(new.events))

    @reads
    def find_event(self, connection: Connection, world: str, event_id: str) -> KnownEvent | None:
        """The event of this id in the world or its past; None without the world or the event."""
        if not is_storable(world, event_id):
            return None
        seen = _find_seen_event(connection, load_world_lineage(connection, world), event_id)
        return None if seen is None else _tell_known(seen)

    @writes(build_order_key)
    def correct(
        self, connection: Connection, world: str, event: Event, based_on: str | None = None, author: str = ""
    ) -> bool:
        """Replaces the event of this id, also a withdrawn one, in this world and in branches that are made later. A
        parent and earlier branches keep what they have. The same content again changes nothing. Returns whether there
        was such an event. NotFound without the world; Conflict where the known event has another digest than
        `based_on`: it was changed, withdrawn or brought back."""
        levels = _lock_existing(connection, self.database, world)
        mine = levels[0]
        seen = _find_seen_event(connection, levels, event.id)
        if seen is None:
            return False
        former = seen.event
        if based_on not in (None, digest_of_model(_tell_known(seen))):
            raise Conflict(f"event {event.id!r} was changed by somebody else: read it again, then repeat the change")
        if seen.standing and seen.decoded == event:
            return True
        inherited = former.world != mine.number
        sequence = compute_sequence(mine.number, mine.events) if inherited else former.sequence
        correction = _Correction(mine.number, sequence, event, author, former, seen.standing)
        if not seen.kept:
            keep_text(connection, self.database, _identify_event(mine.number, event.id), former.written, author)
        # Before the former event is gone: branches get copies of it.
        _keep_in_branches(connection, self.database, correction)
        _replace_event(connection, self.database, correction)
        return True

    @writes(build_order_key)
    def withdraw(self, connection: Connection, world: str, event_id: str, author: str = "") -> bool:
        """Removes an event from this world and its branches; a parent keeps its own. Returns whether the event existed.
        Adding it again has no effect; correcting it brings it back. NotFound without the world."""
        levels = _lock_existing(connection, self.database, world)
        seen = _find_seen_event(connection, levels, event_id)
        if seen is None:
            return False
        known = seen.event
        if seen.standing:
            document = _identify_event(levels[0].number, event_id)
            keep_text(connection, self.database, document, known.written, author)
        if known.world == levels[0].number:
            here = events.c.sequence == known.sequence
            connection.execute(update(events).where(here).values(withdrawn=1))
            _remove_postings(connection, known)
        else:
            _insert_withdrawals(connection, self.database, [{"world": levels[0].number, "sequence": known.sequence}])
        return True

    @writes(build_order_key)
    def branch(self, connection: Connection, world: str, parent: str, at: datetime) -> World:
        """Creates a branch; repeats return the same world. NotFound without the parent; Conflict when `world` exists
        with another parent or time, or the branches are nested too deeply."""
        branch_world(connection, self.database, world, parent, at)
        return _load_world(connection, world)[0]

    @writes(build_order_key)
    def close(self, connection: Connection, world: str) -> World | None:
        """Closes the world: it is kept, but every write to it, and every new branch of it, is a Conflict. Branches that
        exist go on. Closing it twice is not an error. None without the world."""
        if not is_storable(world):
            return None
        close_world(connection, self.database, world)
        return next(iter(_load_world(connection, world)), None)

    @writes(build_order_key)
    def reopen(self, connection: Connection, world: str) -> World | None:
        """Undoes `close`, however often. None without the world."""
        if not is_storable(world):
            return None
        reopen_world(connection, world)
        return next(iter(_load_world(connection, world)), None)

    @writes(build_order_key)
    def set_memory(self, connection: Connection, world: str, *, kept: bool) -> World | None:
        """Whether the world keeps memories from now on. What it kept until now is forgotten where it does not. Conflict
        when it is closed; None without the world."""
        levels = load_world_lineage(connection, world) if is_storable(world) else []
        if not levels:
            return None
        levels[0].require_open()
        connection.execute(update(worlds).where(worlds.c.number == levels[0].number).values(memory=kept))
        if not kept:
            forget_world(connection, levels[0].number)
        return next(iter(_load_world(connection, world)), None)

    async def erase_forgotten(self) -> None:
        """From the file of the database too."""
        await self.database.erase_deleted([memories])

    @reads
    def get_world(self, connection: Connection, name: str) -> World | None:
        return next(iter(_load_world(connection, name)), None) if is_storable(name) else None

    @reads
    def list_worlds(
        self, connection: Connection, limit: int, after: str | None, *, closed: bool = False
    ) -> list[World]:
        """By name. `closed`: whether closed worlds are listed too."""
        page = load_worlds(connection, limit, after=after, closed=closed)
        return [_add_newest_time(connection, one) for one in page]

    @reads
    def list_newest(
        self, connection: Connection, world: str, limit: int, before: tuple[datetime, str] | None = None
    ) -> list[Event]:
        """Events by time and id, descending, including the past, without withdrawn ones. `before`: the last event of
        the previous page."""
        levels = load_world_lineage(connection, world)
        return [one.event for one in load_newest_events(connection, levels, limit, before)]

    @reads
    def search(self, connection: Connection, search: EventSearch) -> SearchFindings | None:
        """Searches events; None without the world, InvalidRequest naming `world` when it is closed. Filters before
        ranking: events that the asker may not know are only in `hidden`, and only if they are near by terms, time or
        importance."""
        levels = load_world_lineage(connection, search.world) if is_storable(search.world) else []
        if not levels:
            return None
        levels[0].require_usable()
        return search_events(connection, self._indexes, levels, search)


def _load_world(connection: Connection, name: str) -> list[World]:
    return [_add_newest_time(connection, one) for one in load_worlds(connection, 1, name=name)]


def _add_newest_time(connection: Connection, world: World) -> World:
    latest = load_newest_events(connection, load_world_lineage(connection, world.name), 1)
    return world.model_copy(update={"newest": latest[0].event.time}) if latest else world


# An event as a world has it.


@dataclass(frozen=True)
class _LineageEvent:
    """An existing event of a lineage, found by its id."""

    sequence: int
    world: int
    time: int
    written: WrittenBody
    withdrawn: bool
    """From its own world. The index has no postings of it then."""


@dataclass(frozen=True)
class _SeenEvent:
    """An event as a world has or last had it: one that was withdrawn here stays what it was, whatever the parent makes
    of it later."""

    event: _LineageEvent
    standing: bool
    kept: bool = False
    """Whether the world keeps it among its own earlier texts."""

    @property
    def decoded(self) -> Event:
        return decode_event(self.event.written.body)


def _find_lineage_events(
    connection: Connection, levels: Sequence[LineageLevel], event_ids: Sequence[str]
) -> Mapping[str, _LineageEvent]:
    """The nearest event of each id, including withdrawn ones."""
    rows = _load_lineage_events(connection, levels, event_ids)
    nearest: dict[str, _LineageEvent] = {}
    for level in reversed(levels):
        nearest |= {event_id: one for event_id, one in rows if one.world == level.number and one.time <= level.until}
    return nearest


def _load_lineage_events(
    connection: Connection, levels: Sequence[LineageLevel], event_ids: Sequence[str]
) -> list[tuple[str, _LineageEvent]]:
    of_event = (events.c.sequence, events.c.world, events.c.time, events.c.withdrawn)
    columns = (*of_event, events.c.body, events.c.author, events.c.written_at)
    numbers = [level.number for level in levels]
    statement = select(events.c.event_id, *columns).where(events.c.world.in_(numbers), events.c.event_id.in_(event_ids))
    return [
        (event_id, _LineageEvent(sequence, number, time, WrittenBody(*written), bool(withdrawn)))
        for event_id, sequence, number, time, withdrawn, *written in connection.execute(statement)
    ]


def _tell_known(seen: _SeenEvent) -> KnownEvent:
    return KnownEvent(event=seen.decoded, is_withdrawn=not seen.standing)


def _find_seen_event(connection: Connection, levels: Sequence[LineageLevel], event_id: str) -> _SeenEvent | None:
    """None without an event of this id."""
    known = {one.world: one for _, one in _load_lineage_events(connection, levels, [event_id])}
    holders = [depth for depth, level in enumerate(levels) if level.number in known]
    reached = [depth for depth in holders if known[levels[depth].number].time <= levels[depth].until]
    nearest = known[levels[reached[0]].number] if reached else None
    if nearest is not None and nearest.sequence in load_valid_events(connection, levels, [nearest.sequence]):
        return _SeenEvent(nearest, standing=True)
    # Withdrawn here: what this world last had is among its earlier texts, whatever the parent has made of it since.
    first = reached[0] if reached else holders[-1] if holders else 0
    found = find_text_before(connection, [level.number for level in levels[:first]], event_id)
    if found is not None:
        above = known[max(number for number in known if number < found[0])]
        return _SeenEvent(replace(above, written=found[1]), standing=False, kept=found[0] == levels[0].number)
    if nearest is None:
        return None
    return _SeenEvent(nearest, standing=False, kept=nearest.world == levels[0].number)


def _identify_event(world: int, event_id: str) -> Document:
    return Document(world, "event", event_id)


# Writes.


@dataclass(frozen=True)
class _EventRows:
    """Rows of events and of what finds them."""

    events: list[Row] = field(default_factory=list)
    postings: list[PostedEvent] = field(default_factory=list)
    successions: list[Row] = field(default_factory=list)

    def add(self, world: int, sequence: int, event: Event, author: str | None, at: int | None) -> None:
        time = to_micros(event.time)
        self.events.append(
            {
                "sequence": sequence,
                "world": world,
                "event_id": event.id,
                "time": time,
                "withdrawn": 0,
                "body": encode(event),
                "author": author,
                "written_at": at,
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
    """What takes the place of `former` in a world. `standing`: whether the world had the former one until now."""

    world: int
    sequence: int
    event: Event
    author: str
    former: _LineageEvent
    standing: bool

    @property
    def in_place(self) -> bool:
        return self.sequence == self.former.sequence


def _replace_event(connection: Connection, database: Database, correction: _Correction) -> None:
    """Replaces a world's own event in its place. An inherited one stays with the parent."""
    former = correction.former
    if correction.in_place:
        _delete_event(connection, former)
    else:
        _insert_withdrawals(connection, database, [{"world": correction.world, "sequence": former.sequence}])
        add_to_event_count(connection, correction.world, 1)
    new = _EventRows()
    new.add(correction.world, correction.sequence, correction.event, correction.author, database.read_clock())
    new.insert(connection)


def _delete_event(connection: Connection, former: _LineageEvent) -> None:
    _remove_postings(connection, former)
    if superseded := decode_event(former.written.body).supersedes:
        of_event = (successions.c.time == former.time, successions.c.sequence == former.sequence)
        of_world = (successions.c.world == former.world, successions.c.superseded.in_(superseded))
        connection.execute(delete(successions).where(*of_world, *of_event))
    connection.execute(delete(events).where(events.c.sequence == former.sequence))


def _keep_in_branches(connection: Connection, database: Database, correction: _Correction) -> None:
    """Branches keep what they branched from: the former event, as an event of their own, or no such event. Of one that
    they lost with their parent they keep what it was."""
    former, document = correction.former, _identify_event(correction.world, correction.event.id)
    own = exists().where(events.c.world == worlds.c.number, events.c.event_id == correction.event.id)
    gone = exists().where(withdrawals.c.world == worlds.c.number, withdrawals.c.sequence == former.sequence)
    columns = (worlds.c.number, worlds.c.branched_at, worlds.c.events, own.label("own"), gone.label("gone"))
    branches = connection.execute(select(*columns).where(worlds.c.parent == correction.world)).all()
    new = _EventRows()
    copies: dict[int, int] = {}
    lost: list[int] = []
    for number, branched_at, added, has_own, withdrew in branches:
        if former.time > branched_at or has_own or withdrew:
            continue
        if correction.standing:
            copies[number] = compute_sequence(number, added)
            written = former.written
            new.add(number, copies[number], decode_event(written.body), written.author, written.at)
            add_to_event_count(connection, number, 1)
        else:
            lost.append(number)
    new.insert(connection)
    if lost:
        copy_newest_text(connection, document, lost)
    withdrawn = _find_withdrawals_of_copies(connection, former.sequence, copies)
    # The correction may have moved the event to a time that earlier branches reach.
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


def _lock_existing(connection: Connection, database: Database, world: str) -> list[LineageLevel]:
    if not load_world_lineage(connection, world):
        raise NotFound(f"there is no world {world!r}")
    return lock_lineage(connection, database, world)


def _insert_withdrawals(connection: Connection, database: Database, rows: Sequence[Row]) -> None:
    if rows:
        connection.execute(database.insert_new(withdrawals), rows)


def _remove_postings(connection: Connection, known: _LineageEvent) -> None:
    if known.withdrawn:
        return
    # The index has no list of an event's postings: they are computed again from what was told.
    event = decode_event(known.written.body)
    remove_postings(connection, index_event(known.sequence, known.time, known.world, event))
