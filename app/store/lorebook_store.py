"""The store of lorebooks."""

from sqlalchemy import Connection, delete, insert, select, update

from app.domain.lorebooks import Lorebook
from app.ports.retrieval import LorebookStore
from app.store.database import Database
from app.store.event_tables import lorebooks
from app.store.rows import decode, encode, filter_storable
from app.store.world_branches import load_world_lineage, lock_lineage


class SqlLorebookStore(LorebookStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, world: str, name: str, book: Lorebook) -> None:
        body = encode(book)
        await self._database.write(
            lambda connection: _put_lorebook(connection, self._database, world, name, body), f"worlds {world}"
        )

    async def remove(self, world: str, name: str) -> bool:
        if len(filter_storable([world, name])) < len({world, name}):
            return False
        return await self._database.write(
            lambda connection: _remove_lorebook(connection, world, name), f"worlds {world}"
        )

    async def list_lorebooks(self, world: str) -> dict[str, Lorebook]:
        if not filter_storable([world]):
            return {}
        return await self._database.read(lambda connection: _load_lorebooks(connection, world))


def _put_lorebook(connection: Connection, database: Database, world: str, name: str, body: str) -> None:
    number = lock_lineage(connection, database, world)[0].number
    said = {"body": body, "updated_at": database.read_clock()}
    here = (lorebooks.c.world == number, lorebooks.c.name == name)
    if connection.execute(update(lorebooks).where(*here).values(said)).rowcount == 0:
        connection.execute(insert(lorebooks).values(world=number, name=name, **said))


def _remove_lorebook(connection: Connection, world: str, name: str) -> bool:
    levels = load_world_lineage(connection, world)
    if not levels:
        return False
    levels[0].require_open()
    here = (lorebooks.c.world == levels[0].number, lorebooks.c.name == name)
    return connection.execute(delete(lorebooks).where(*here)).rowcount > 0


def _load_lorebooks(connection: Connection, world: str) -> dict[str, Lorebook]:
    found: dict[str, str] = {}
    for level in reversed(load_world_lineage(connection, world)):
        statement = select(lorebooks.c.name, lorebooks.c.body).where(lorebooks.c.world == level.number)
        found |= {name: body for name, body in connection.execute(statement)}
    return {name: decode(Lorebook, found[name]) for name in sorted(found)}
