"""The store of lorebooks."""

from sqlalchemy import Connection, delete, insert, select, update

from app.domain.digests import digest_of_model
from app.domain.errors import Conflict
from app.domain.lorebooks import Lorebook
from app.ports.retrieval import LorebookStore
from app.store.database import Database
from app.store.event_tables import lorebooks
from app.store.rows import decode, encode, filter_storable
from app.store.world_branches import load_world_lineage, lock_lineage


class SqlLorebookStore(LorebookStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, world: str, name: str, book: Lorebook, based_on: str | None = None) -> None:
        body = encode(book)
        await self._database.write(
            lambda connection: _put_lorebook(connection, self._database, world, name, body, based_on),
            f"worlds {world}",
        )

    async def remove(self, world: str, name: str) -> bool:
        if len(filter_storable([world, name])) < len({world, name}):
            return False
        return await self._database.write(
            lambda connection: _remove_lorebook(connection, self._database, world, name), f"worlds {world}"
        )

    async def list_lorebooks(self, world: str) -> dict[str, Lorebook]:
        if not filter_storable([world]):
            return {}
        return await self._database.read(lambda connection: _load_lorebooks(connection, world))


def _put_lorebook(
    connection: Connection, database: Database, world: str, name: str, body: str, based_on: str | None
) -> None:
    number = lock_lineage(connection, database, world)[0].number
    if based_on is not None:
        _require_based(connection, world, name, based_on)
    said = {"body": body, "updated_at": database.read_clock()}
    here = (lorebooks.c.world == number, lorebooks.c.name == name)
    if connection.execute(update(lorebooks).where(*here).values(said)).rowcount == 0:
        connection.execute(insert(lorebooks).values(world=number, name=name, **said))


def _require_based(connection: Connection, world: str, name: str, based_on: str) -> None:
    book = _load_lorebooks(connection, world).get(name)
    if based_on != ("" if book is None else digest_of_model(book)):
        raise Conflict(f"the lorebook {name!r} was changed by somebody else: read it again, then repeat the change")


def _remove_lorebook(connection: Connection, database: Database, world: str, name: str) -> bool:
    if not load_world_lineage(connection, world):
        return False
    number = lock_lineage(connection, database, world)[0].number
    here = (lorebooks.c.world == number, lorebooks.c.name == name)
    return connection.execute(delete(lorebooks).where(*here)).rowcount > 0


def _load_lorebooks(connection: Connection, world: str) -> dict[str, Lorebook]:
    found: dict[str, str] = {}
    for level in reversed(load_world_lineage(connection, world)):
        statement = select(lorebooks.c.name, lorebooks.c.body).where(lorebooks.c.world == level.number)
        found |= {name: body for name, body in connection.execute(statement)}
    return {name: decode(Lorebook, found[name]) for name in sorted(found)}
