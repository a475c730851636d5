"""An event as a world has it, and its revisions: the world's own, and before them those of the worlds above it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from app.domain.worlds import EventRevision, ListedWriting, WrittenEvent
from app.store.event_rows import decode_event, load_valid_events
from app.store.event_tables import events
from app.store.world_branches import LineageLevel, load_world_lineage
from app.store.world_revisions import Writing, WrittenPlace, find_body, find_newest_kept, list_kept, merge_listed


@dataclass(frozen=True)
class KnownEvent:
    """An existing event of a lineage, found by its id."""

    sequence: int
    world: int
    time: int
    body: str
    written: Writing
    withdrawn: bool
    """From its own world. The index has no postings of it then."""


@dataclass(frozen=True)
class SeenEvent:
    """An event as a world has or last had it: one that was withdrawn here stays what it was, whatever the parent makes
    of it later. `levels`: the part of the lineage that its revisions are of."""

    event: KnownEvent
    standing: bool
    levels: Sequence[LineageLevel]
    told: Mapping[int, KnownEvent]
    """The event of this id by world, where the lineage reaches it."""


def find_known_events(
    connection: Connection, levels: Sequence[LineageLevel], event_ids: Sequence[str]
) -> Mapping[str, KnownEvent]:
    """The nearest event of each id, including withdrawn ones."""
    rows = _load_known(connection, levels, event_ids)
    found: dict[str, KnownEvent] = {}
    for level in reversed(levels):
        found |= {event_id: one for event_id, one in rows if one.world == level.number and one.time <= level.until}
    return found


def _load_known(
    connection: Connection, levels: Sequence[LineageLevel], event_ids: Sequence[str]
) -> list[tuple[str, KnownEvent]]:
    of_event = (events.c.sequence, events.c.world, events.c.time, events.c.body, events.c.withdrawn)
    columns = (*of_event, events.c.revision, events.c.author, events.c.written_at)
    numbers = [level.number for level in levels]
    wanted = select(events.c.event_id, *columns).where(events.c.world.in_(numbers), events.c.event_id.in_(event_ids))
    return [
        (event_id, KnownEvent(sequence, number, time, body, Writing(*written), bool(withdrawn)))
        for event_id, sequence, number, time, body, withdrawn, *written in connection.execute(wanted)
    ]


def find_seen_event(connection: Connection, levels: Sequence[LineageLevel], event_id: str) -> SeenEvent | None:
    """None without an event of this id."""
    known = {one.world: one for _, one in _load_known(connection, levels, [event_id])}
    told = {one.number: known[one.number] for one in levels if _reaches(one, known)}
    first = next((place for place, level in enumerate(levels) if level.number in told), len(levels))
    nearest = told[levels[first].number] if told else None
    if nearest is not None and nearest.sequence in load_valid_events(connection, levels, [nearest.sequence]):
        return SeenEvent(nearest, True, levels[first:], told)
    for place, level in enumerate(levels[:first]):
        above = next((known[one.number] for one in levels[place + 1 :] if one.number in known), None)
        kept = above and find_newest_kept(connection, build_event_place(level.number, event_id))
        if above and kept:
            withdrawn = replace(above, body=kept.body, written=kept.written)
            return SeenEvent(withdrawn, False, levels[place:], told)
    return None if nearest is None else SeenEvent(nearest, False, levels[first:], told)


def _reaches(level: LineageLevel, known: Mapping[int, KnownEvent]) -> bool:
    return level.number in known and known[level.number].time <= level.until


def find_revision(connection: Connection, world: str, event_id: str) -> EventRevision | None:
    """The event as it is in force; None without one of this id."""
    seen = find_seen_event(connection, load_world_lineage(connection, world), event_id)
    if seen is None:
        return None
    event, revision = decode_event(seen.event.body), seen.event.written.revision
    return EventRevision(event=event, revision=revision, is_withdrawn=not seen.standing)


def list_event_revisions(
    connection: Connection, world: str, event_id: str, limit: int, before: int | None
) -> list[ListedWriting]:
    seen = find_seen_event(connection, load_world_lineage(connection, world), event_id)
    return [] if seen is None else _list_revisions(connection, seen, event_id, limit, before)


def _list_revisions(
    connection: Connection, seen: SeenEvent, event_id: str, limit: int, before: int | None
) -> list[ListedWriting]:
    """A parent's revisions from the lowest of its branch on are what it made of the event since."""
    listed: list[ListedWriting] = []
    for level in seen.levels:
        kept = list_kept(connection, build_event_place(level.number, event_id), limit, before)
        told = [seen.told[level.number].written.build_listed()] if level.number in seen.told else []
        listed += merge_listed([kept, told], limit, before)
        before = listed[-1].revision if listed else before
        if len(listed) >= limit or before == 1:
            break
    return listed[:limit]


def find_event_revision(connection: Connection, world: str, event_id: str, revision: int) -> WrittenEvent | None:
    seen = find_seen_event(connection, load_world_lineage(connection, world), event_id)
    listed = [] if seen is None else _list_revisions(connection, seen, event_id, 1, revision + 1)
    if seen is None or not listed or listed[0].revision != revision:
        return None
    body = next(filter(None, _find_bodies(connection, seen, event_id, revision)))
    return WrittenEvent(event=decode_event(body), **dict(listed[0]))


def _find_bodies(connection: Connection, seen: SeenEvent, event_id: str, revision: int) -> Iterator[str | None]:
    for level in seen.levels:
        told = seen.told.get(level.number)
        in_force = told is not None and told.written.revision == revision
        yield (
            told.body
            if told and in_force
            else find_body(connection, build_event_place(level.number, event_id), revision)
        )


def build_event_place(world: int, event_id: str) -> WrittenPlace:
    return WrittenPlace(world, "event", event_id)
