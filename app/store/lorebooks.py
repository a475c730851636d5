"""The store of lorebooks."""

from sqlalchemy import Connection, delete, insert, select, update

from app.domain.lorebooks import Lorebook
from app.ports.retrieval import Lorebooks
from app.store.database import Database
from app.store.event_tables import lorebooks
from app.store.lineages import held, lineage
from app.store.rows import decode, encode, findable


class StoredLorebooks(Lorebooks):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, world: str, name: str, book: Lorebook) -> None:
        body = encode(book)
        await self._database.write(
            lambda connection: _put(connection, self._database, world, name, body), f"worlds {world}"
        )

    async def remove(self, world: str, name: str) -> bool:
        if len(findable([world, name])) < len({world, name}):
            return False
        return await self._database.write(lambda connection: _remove(connection, world, name), f"worlds {world}")

    async def of(self, world: str) -> dict[str, Lorebook]:
        if not findable([world]):
            return {}
        return await self._database.read(lambda connection: _of(connection, world))


def _put(connection: Connection, database: Database, world: str, name: str, body: str) -> None:
    number = held(connection, database, world)[0].number
    said = {"body": body, "updated_at": database.stamp()}
    here = (lorebooks.c.world == number, lorebooks.c.name == name)
    if connection.execute(update(lorebooks).where(*here).values(said)).rowcount == 0:
        connection.execute(insert(lorebooks).values(world=number, name=name, **said))


def _remove(connection: Connection, world: str, name: str) -> bool:
    levels = lineage(connection, world)
    if not levels:
        return False
    here = (lorebooks.c.world == levels[0].number, lorebooks.c.name == name)
    return connection.execute(delete(lorebooks).where(*here)).rowcount > 0


def _of(connection: Connection, world: str) -> dict[str, Lorebook]:
    found: dict[str, str] = {}
    for level in reversed(lineage(connection, world)):
        statement = select(lorebooks.c.name, lorebooks.c.body).where(lorebooks.c.world == level.number)
        found |= {name: body for name, body in connection.execute(statement)}
    return {name: decode(Lorebook, found[name]) for name in sorted(found)}
