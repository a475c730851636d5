"""Storage of worlds, as the feature asks for it: their events and lorebooks."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from app.domain.worlds import (
    Event,
    EventRevision,
    EventsAdded,
    EventSearch,
    ListedWriting,
    Lorebook,
    SearchFindings,
    World,
    WrittenEvent,
    WrittenLorebook,
)


class EventStore(Protocol):
    """Events of worlds. A branch sees its parent's events up to the branch time, and its parent's lorebooks. Writes are
    durable on return. `author` is the name of the key, empty where none is needed."""

    async def add_events(self, world: str, events: Sequence[Event], author: str = "") -> EventsAdded:
        """Adds all events or none, and creates the world if it does not exist. Conflict naming `events[i].id` when the
        id exists, in this world or its past, with different content."""

    async def find_event(self, world: str, event_id: str) -> EventRevision | None:
        """The event of this id in the world or its past; None without the world or the event."""

    async def correct(self, world: str, event: Event, based_on: int | None = None, author: str = "") -> int | None:
        """Replaces the event of this id, also a withdrawn one, in this world and in branches that are made later. A
        parent and earlier branches keep what they have. Returns the revision in force, which stays the same for the
        same content; None without such an event. NotFound without the world; Conflict when another revision than
        `based_on` is in force."""

    async def withdraw(self, world: str, event_id: str, author: str = "") -> bool:
        """Removes an event from this world and its branches; a parent keeps its own. Returns whether the event existed.
        Adding it again has no effect; correcting it brings it back. NotFound without the world."""

    async def list_revisions(
        self, world: str, event_id: str, limit: int, before: int | None = None
    ) -> list[ListedWriting]:
        """Newest first, those before the revision `before`; the first one of all is in force. Empty without the event.
        A branch lists those of its own, and those of the world that it has the event from until it corrects it."""

    async def get_revision(self, world: str, event_id: str, revision: int) -> WrittenEvent | None:
        """One of the listed ones."""

    async def branch(self, world: str, parent: str, at: datetime) -> World:
        """Creates a branch; repeats return the same world. NotFound without the parent; Conflict when `world` exists
        with another parent or time, or the branches are nested too deeply."""

    async def close(self, world: str) -> World | None:
        """Closes the world for good: it is kept, but every write to it, and every new branch of it, is a Conflict.
        Branches that exist go on. Closing it twice is not an error. None without the world."""

    async def get_world(self, name: str) -> World | None: ...

    async def list_worlds(self, limit: int, after: str | None, *, closed: bool = False) -> list[World]:
        """By name. `closed`: whether closed worlds are listed too."""

    async def list_newest(self, world: str, limit: int, before: tuple[datetime, str] | None = None) -> list[Event]:
        """Events by time and id, descending, including the past, without withdrawn ones. `before`: the last event of
        the previous page."""

    async def search(self, search: EventSearch) -> SearchFindings | None:
        """Searches events; None without the world, InvalidRequest naming `world` when it is closed. Filters before
        ranking: events that the asker may not know are only in `hidden`, and only if they are near by terms, time or
        importance."""


class LorebookStore(Protocol):
    """Lorebooks of worlds, by name within their world."""

    async def put(self, world: str, name: str, book: Lorebook, based_on: str | None = None, author: str = "") -> None:
        """Stores or replaces a lorebook; durable on return. Creates the world if it does not exist. Conflict where the
        world has another lorebook of that name than `based_on`, its digest, or one although that is empty."""

    async def remove(self, world: str, name: str, author: str = "") -> bool: ...

    async def list_revisions(self, world: str, name: str, limit: int, before: int | None = None) -> list[ListedWriting]:
        """Newest first, those before the revision `before`: of the world itself, or else of the next parent that has
        some."""

    async def get_revision(self, world: str, name: str, revision: int) -> WrittenLorebook | None:
        """One of the listed ones."""

    async def list_lorebooks(self, world: str) -> dict[str, Lorebook]:
        """Lorebooks ordered by name, including those of parent worlds unless the world has one of the same name."""
