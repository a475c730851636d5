"""The store of events and worlds."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from app.domain.worlds import Event, EventSearch, EventsTold, Findings, World
from app.ports.retrieval import Events
from app.store.database import Database
from app.store.event_rows import newest
from app.store.event_search import search
from app.store.event_telling import tell, withdraw
from app.store.lineages import branch, described, lineage
from app.store.rows import findable


class StoredEvents(Events):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def tell(self, world: str, events: Sequence[Event]) -> EventsTold:
        return await self._database.write(
            lambda connection: tell(connection, self._database, world, events), _order(world)
        )

    async def withdraw(self, world: str, event_id: str) -> bool:
        return await self._database.write(
            lambda connection: withdraw(connection, self._database, world, event_id), _order(world)
        )

    async def branch(self, world: str, parent: str, at: datetime) -> World:
        def unit(connection: Connection) -> World:
            branch(connection, self._database, world, parent, at)
            return _described(connection, world)[0]

        return await self._database.write(unit, _order(world))

    async def world(self, name: str) -> World | None:
        if not findable([name]):
            return None
        found = await self._database.read(lambda connection: _described(connection, name))
        return found[0] if found else None

    async def worlds(self, limit: int, after: str | None) -> list[World]:
        def query(connection: Connection) -> list[World]:
            return [_dated(connection, one) for one in described(connection, limit, after=after)]

        return await self._database.read(query)

    async def newest(self, world: str, limit: int, before: tuple[datetime, str] | None = None) -> list[Event]:
        def query(connection: Connection) -> list[Event]:
            levels = lineage(connection, world)
            return [one.event for one in newest(connection, levels, limit, before)]

        return await self._database.read(query)

    async def search(self, wanted: EventSearch) -> Findings | None:
        def query(connection: Connection) -> Findings | None:
            levels = lineage(connection, wanted.world)
            return search(connection, levels, wanted) if levels else None

        return await self._database.read(query) if findable([wanted.world]) else None


def _order(world: str) -> str:
    return f"worlds {world}"


def _described(connection: Connection, name: str) -> list[World]:
    return [_dated(connection, one) for one in described(connection, 1, name=name)]


def _dated(connection: Connection, world: World) -> World:
    latest = newest(connection, lineage(connection, world.name), 1)
    return world.model_copy(update={"newest": latest[0].event.time}) if latest else world
