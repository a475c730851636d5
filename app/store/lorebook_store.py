"""The store of lorebooks."""

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from app.domain.digests import digest_of_model
from app.domain.errors import Conflict
from app.domain.lorebooks import Lorebook
from app.domain.worlds import ListedWriting, WrittenLorebook
from app.ports.retrieval import LorebookStore
from app.store.database import Database
from app.store.event_tables import lorebooks
from app.store.rows import decode, encode, is_storable
from app.store.world_branches import load_world_lineage, lock_lineage
from app.store.world_revisions import (
    KeptRevision,
    Writing,
    WrittenPlace,
    find_body,
    find_last_number,
    keep_revision,
    keep_withdrawn,
    list_kept,
    merge_listed,
)


class SqlLorebookStore(LorebookStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, world: str, name: str, book: Lorebook, based_on: str | None = None, author: str = "") -> None:
        body = encode(book)

        def put_based(connection: Connection) -> None:
            number = lock_lineage(connection, self._database, world)[0].number
            if based_on is not None:
                _require_based(connection, world, name, based_on)
            _put_lorebook(connection, self._database, WrittenPlace(number, "lorebook", name), body, author)

        await self._database.write(put_based, f"worlds {world}")

    async def remove(self, world: str, name: str, author: str = "") -> bool:
        if not is_storable(world, name):
            return False
        return await self._database.write(
            lambda connection: _remove_lorebook(connection, self._database, world, name, author), f"worlds {world}"
        )

    async def list_revisions(self, world: str, name: str, limit: int, before: int | None = None) -> list[ListedWriting]:
        if not is_storable(world, name):
            return []
        return await self._database.read(lambda connection: _list_revisions(connection, world, name, limit, before))

    async def get_revision(self, world: str, name: str, revision: int) -> WrittenLorebook | None:
        if not is_storable(world, name):
            return None
        return await self._database.read(lambda connection: _find_revision(connection, world, name, revision))

    async def list_lorebooks(self, world: str) -> dict[str, Lorebook]:
        if not is_storable(world):
            return {}
        return await self._database.read(lambda connection: _load_lorebooks(connection, world))


def _find_own(connection: Connection, place: WrittenPlace) -> KeptRevision | None:
    columns = (lorebooks.c.body, lorebooks.c.revision, lorebooks.c.author, lorebooks.c.updated_at)
    row = connection.execute(select(*columns).where(*_select_place(place))).one_or_none()
    return None if row is None else KeptRevision(row[0], Writing(*row[1:]))


def _select_place(place: WrittenPlace) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return lorebooks.c.world == place.world, lorebooks.c.name == place.name


def _put_lorebook(connection: Connection, database: Database, place: WrittenPlace, body: str, author: str) -> None:
    """The same content again is no new revision."""
    said = {"body": body, "author": author, "updated_at": database.read_clock()}
    former = _find_own(connection, place)
    if former is None:
        revision = find_last_number(connection, place) + 1
        connection.execute(insert(lorebooks).values(world=place.world, name=place.name, revision=revision, **said))
    elif former.body != body:
        keep_revision(connection, database, place, former.body, former.written)
        new = {"revision": former.written.revision + 1, **said}
        connection.execute(update(lorebooks).where(*_select_place(place)).values(new))


def _require_based(connection: Connection, world: str, name: str, based_on: str) -> None:
    book = _load_lorebooks(connection, world).get(name)
    if based_on != ("" if book is None else digest_of_model(book)):
        raise Conflict(f"the lorebook {name!r} was changed by somebody else: read it again, then repeat the change")


def _remove_lorebook(connection: Connection, database: Database, world: str, name: str, author: str) -> bool:
    if not load_world_lineage(connection, world):
        return False
    place = WrittenPlace(lock_lineage(connection, database, world)[0].number, "lorebook", name)
    former = _find_own(connection, place)
    if former is None:
        return False
    keep_withdrawn(connection, database, place, former.body, former.written, author)
    connection.execute(delete(lorebooks).where(*_select_place(place)))
    return True


def _find_place(connection: Connection, world: str, name: str) -> WrittenPlace | None:
    """The world itself, or else the next parent that has or had a lorebook of this name."""
    places = (WrittenPlace(level.number, "lorebook", name) for level in load_world_lineage(connection, world))
    return next((one for one in places if _find_own(connection, one) or find_last_number(connection, one)), None)


def _list_revisions(
    connection: Connection, world: str, name: str, limit: int, before: int | None
) -> list[ListedWriting]:
    place = _find_place(connection, world, name)
    if place is None:
        return []
    own = _find_own(connection, place)
    in_force = [] if own is None else [own.written.build_listed()]
    return merge_listed([in_force, list_kept(connection, place, limit, before)], limit, before)


def _find_revision(connection: Connection, world: str, name: str, revision: int) -> WrittenLorebook | None:
    place = _find_place(connection, world, name)
    if place is None:
        return None
    own = _find_own(connection, place)
    in_force = own is not None and own.written.revision == revision
    body = own.body if own is not None and in_force else find_body(connection, place, revision)
    if body is None:
        return None
    listed = _list_revisions(connection, world, name, 1, revision + 1)
    return WrittenLorebook(lorebook=decode(Lorebook, body), **dict(listed[0]))


def _load_lorebooks(connection: Connection, world: str) -> dict[str, Lorebook]:
    found: dict[str, str] = {}
    for level in reversed(load_world_lineage(connection, world)):
        statement = select(lorebooks.c.name, lorebooks.c.body).where(lorebooks.c.world == level.number)
        found |= {name: body for name, body in connection.execute(statement)}
    return {name: decode(Lorebook, found[name]) for name in sorted(found)}
