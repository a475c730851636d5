"""The store of events and worlds."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from app.domain.worlds import (
    Event,
    EventRevision,
    EventsAdded,
    EventSearch,
    ListedWriting,
    SearchFindings,
    World,
    WrittenEvent,
)
from app.ports.retrieval import EventStore
from app.store.database import Database
from app.store.event_index import EventIndexes
from app.store.event_revisions import find_event_revision, find_revision, list_event_revisions
from app.store.event_rows import load_newest_events
from app.store.event_search import search_events
from app.store.event_writes import correct_event, insert_events, withdraw_event
from app.store.rows import is_storable
from app.store.world_branches import branch_world, close_world, load_world_lineage, load_worlds


class SqlEventStore(EventStore):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._indexes = EventIndexes()

    async def add_events(self, world: str, events: Sequence[Event], author: str = "") -> EventsAdded:
        return await self._database.write(
            lambda connection: insert_events(connection, self._database, world, events, author), _build_order_key(world)
        )

    async def find_event(self, world: str, event_id: str) -> EventRevision | None:
        if not is_storable(world, event_id):
            return None
        return await self._database.read(lambda connection: find_revision(connection, world, event_id))

    async def correct(self, world: str, event: Event, based_on: int | None = None, author: str = "") -> int | None:
        return await self._database.write(
            lambda connection: correct_event(connection, self._database, world, event, based_on, author),
            _build_order_key(world),
        )

    async def withdraw(self, world: str, event_id: str, author: str = "") -> bool:
        return await self._database.write(
            lambda connection: withdraw_event(connection, self._database, world, event_id, author),
            _build_order_key(world),
        )

    async def list_revisions(
        self, world: str, event_id: str, limit: int, before: int | None = None
    ) -> list[ListedWriting]:
        if not is_storable(world, event_id):
            return []
        return await self._database.read(
            lambda connection: list_event_revisions(connection, world, event_id, limit, before)
        )

    async def get_revision(self, world: str, event_id: str, revision: int) -> WrittenEvent | None:
        if not is_storable(world, event_id):
            return None
        return await self._database.read(lambda connection: find_event_revision(connection, world, event_id, revision))

    async def branch(self, world: str, parent: str, at: datetime) -> World:
        def create_branch(connection: Connection) -> World:
            branch_world(connection, self._database, world, parent, at)
            return _load_world(connection, world)[0]

        return await self._database.write(create_branch, _build_order_key(world))

    async def close(self, world: str) -> World | None:
        def close_and_load(connection: Connection) -> World | None:
            close_world(connection, self._database, world)
            return next(iter(_load_world(connection, world)), None)

        return await self._database.write(close_and_load, _build_order_key(world)) if is_storable(world) else None

    async def get_world(self, name: str) -> World | None:
        if not is_storable(name):
            return None
        found = await self._database.read(lambda connection: _load_world(connection, name))
        return found[0] if found else None

    async def list_worlds(self, limit: int, after: str | None, *, closed: bool = False) -> list[World]:
        def load_page(connection: Connection) -> list[World]:
            page = load_worlds(connection, limit, after=after, closed=closed)
            return [_add_newest_time(connection, one) for one in page]

        return await self._database.read(load_page)

    async def list_newest(self, world: str, limit: int, before: tuple[datetime, str] | None = None) -> list[Event]:
        def load_page(connection: Connection) -> list[Event]:
            levels = load_world_lineage(connection, world)
            return [one.event for one in load_newest_events(connection, levels, limit, before)]

        return await self._database.read(load_page)

    async def search(self, wanted: EventSearch) -> SearchFindings | None:
        def run_search(connection: Connection) -> SearchFindings | None:
            levels = load_world_lineage(connection, wanted.world)
            if not levels:
                return None
            levels[0].require_usable()
            return search_events(connection, self._indexes, levels, wanted)

        return await self._database.read(run_search) if is_storable(wanted.world) else None


def _build_order_key(world: str) -> str:
    return f"worlds {world}"


def _load_world(connection: Connection, name: str) -> list[World]:
    return [_add_newest_time(connection, one) for one in load_worlds(connection, 1, name=name)]


def _add_newest_time(connection: Connection, world: World) -> World:
    latest = load_newest_events(connection, load_world_lineage(connection, world.name), 1)
    return world.model_copy(update={"newest": latest[0].event.time}) if latest else world
