"""Revisions of the files that authors write. They are only ever added."""

from collections.abc import Sequence

from sqlalchemy import BigInteger, Connection, Row, Select, Text, and_, func, select
from sqlmodel import Field

from app.domain.authored_files import ListedRevision
from app.domain.errors import Conflict
from app.domain.values import digest_of_text
from app.features.authoring.model import AuthoredChange, AuthoredRevision, AuthoredStore
from app.store.database import Database
from app.store.statements import decode_json, encode_json, from_micros, is_storable
from app.store.table_records import TableRecord, get_table


class AuthoredTable(TableRecord, table=True):
    """Revisions of files of characters. They are never changed."""

    __tablename__ = "authored"
    file: str = Field(primary_key=True)
    revision: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    body: str | None = Field(default=None, sa_type=Text)
    """JSON string; null for a withdrawal."""
    note: str = Field(sa_type=Text)
    """JSON string."""
    author: str
    digest: str | None = None
    created_at: int = Field(sa_type=BigInteger)


authored = get_table(AuthoredTable)


class SqlAuthoredStore(AuthoredStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def count(self) -> int:
        return await self._database.read(
            lambda connection: connection.execute(select(func.count()).select_from(authored)).scalar_one()
        )

    async def load_newest(self) -> dict[str, AuthoredRevision]:
        newest = _select_newest()
        return await self._database.read(
            lambda connection: {row.file: _build_revision(row) for row in connection.execute(newest)}
        )

    async def add(self, changes: Sequence[AuthoredChange], author: str, note: str) -> list[AuthoredRevision]:
        return await self._database.write(
            lambda connection: _add_revisions(connection, self._database, changes, author, note), "authored"
        )

    async def list_revisions(self, file: str, limit: int, before: int | None = None) -> list[ListedRevision]:
        if not is_storable(file):
            return []
        statement = _select_listed().where(authored.c.file == file)
        if before is not None:
            statement = statement.where(authored.c.revision < before)
        ordered = statement.order_by(authored.c.revision.desc()).limit(limit)
        return await self._database.read(
            lambda connection: [_build_listed(*row) for row in connection.execute(ordered)]
        )

    async def get(self, file: str, revision: int) -> AuthoredRevision | None:
        if not is_storable(file):
            return None
        statement = select(authored).where(authored.c.file == file, authored.c.revision == revision)
        row = await self._database.read(lambda connection: connection.execute(statement).one_or_none())
        return None if row is None else _build_revision(row)


def _select_newest() -> "Select[tuple[object, ...]]":
    numbers = select(authored.c.file, func.max(authored.c.revision).label("revision")).group_by(authored.c.file)
    newest = numbers.subquery()
    here = and_(authored.c.file == newest.c.file, authored.c.revision == newest.c.revision)
    return select(authored).join(newest, here).order_by(authored.c.file)


def _select_listed() -> "Select[int, str, str, int, str | None]":
    """A text may be large."""
    columns = authored.c
    return select(columns.revision, columns.note, columns.author, columns.created_at, columns.digest)


def _build_listed(revision: int, note: str, author: str, at: int, digest: str | None) -> ListedRevision:
    return ListedRevision(
        revision=revision, note=str(decode_json(note)), author=author, at=from_micros(at), digest=digest
    )


def _build_revision(row: "Row[tuple[object, ...]]") -> AuthoredRevision:
    return AuthoredRevision(
        file=row.file,
        revision=row.revision,
        text=None if row.body is None else str(decode_json(row.body)),
        note=str(decode_json(row.note)),
        author=row.author,
        at=from_micros(row.created_at),
        digest=row.digest,
    )


def _add_revisions(
    connection: Connection, database: Database, changes: Sequence[AuthoredChange], author: str, note: str
) -> list[AuthoredRevision]:
    stamp = database.read_clock()
    added = []
    for change in sorted(changes, key=lambda change: change.file):
        numbers = select(func.max(authored.c.revision)).where(authored.c.file == change.file)
        newest = connection.execute(numbers).scalar() or 0
        row = {
            "file": change.file,
            "revision": change.based_on + 1,
            "body": None if change.text is None else encode_json(change.text),
            "note": encode_json(note),
            "author": author,
            "digest": None if change.text is None else digest_of_text(change.text),
            "created_at": stamp,
        }
        # another replica may store one between the two statements: the key lets only one of them in
        if newest != change.based_on or not connection.execute(database.insert_new(authored), row).rowcount:
            raise _build_conflict(change, newest if newest != change.based_on else newest + 1)
        added.append(
            AuthoredRevision(
                file=change.file,
                revision=change.based_on + 1,
                text=change.text,
                note=note,
                author=author,
                at=from_micros(stamp),
                digest=None if change.text is None else digest_of_text(change.text),
            )
        )
    return added


def _build_conflict(change: AuthoredChange, newest: int) -> Conflict:
    return Conflict(
        f"{change.file}: revision {newest} is stored, and this change is based on {change.based_on}: read it again, "
        "then repeat the change",
        field="based_on",
    )
