"""Former and withdrawn revisions of events and lorebooks, and who wrote them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from sqlalchemy import ColumnElement, Connection, delete, func, select

from app.domain.worlds import ListedWriting
from app.store.database import Database
from app.store.event_tables import world_revisions, worlds
from app.store.inserts import insert_rows
from app.store.rows import from_micros

KEPT_REVISIONS: Final = 200
"""Of one event or lorebook: a game may correct the same event for years."""

WrittenKind = Literal["event", "lorebook"]


@dataclass(frozen=True)
class Writing:
    """A revision, who wrote it, and when in microseconds since 1970. None where it is older than such notes."""

    revision: int
    author: str | None
    at: int | None

    def build_listed(self) -> ListedWriting:
        return ListedWriting(revision=self.revision, author=self.author, at=_convert(self.at))


@dataclass(frozen=True)
class KeptRevision:
    body: str
    written: Writing


@dataclass(frozen=True)
class WrittenPlace:
    """An event or a lorebook of a world."""

    world: int
    kind: WrittenKind
    name: str

    @property
    def here(self) -> tuple[ColumnElement[bool], ...]:
        columns = world_revisions.c
        return columns.world == self.world, columns.kind == self.kind, columns.name == self.name


def keep_revision(connection: Connection, database: Database, place: WrittenPlace, body: str, written: Writing) -> None:
    """Keeps a revision that another one is about to replace. One that was withdrawn is there already."""
    _insert(connection, database, place, {"body": body, **_build_columns(written)})


def keep_withdrawn(
    connection: Connection, database: Database, place: WrittenPlace, body: str, written: Writing, author: str
) -> None:
    """The first withdrawal of a revision counts."""
    by: dict[str, str | int | None] = {"withdrawn_by": author, "withdrawn_at": database.read_clock()}
    _insert(connection, database, place, {"body": body, **_build_columns(written), **by})


def copy_to_branches(connection: Connection, place: WrittenPlace, revision: int, to: Collection[int]) -> None:
    """A kept revision, as one of those branches that keep none."""
    columns = world_revisions.c
    row = connection.execute(select(world_revisions).where(*place.here, columns.revision == revision)).one()
    branches = select(worlds.c.number).where(worlds.c.parent == place.world)
    have = select(columns.world).where(columns.kind == place.kind, columns.name == place.name)
    having = set(connection.execute(have.where(columns.world.in_(branches))).scalars())
    insert_rows(connection, world_revisions, [{**row._mapping, "world": one} for one in to if one not in having])


def _build_columns(written: Writing) -> dict[str, str | int | None]:
    return {"revision": written.revision, "author": written.author, "written_at": written.at}


def _insert(connection: Connection, database: Database, place: WrittenPlace, row: dict[str, str | int | None]) -> None:
    key = {"world": place.world, "kind": place.kind, "name": place.name}
    connection.execute(database.insert_new(world_revisions), {**key, **row})
    oldest = int(row["revision"] or 0) - KEPT_REVISIONS
    if oldest > 0:
        connection.execute(delete(world_revisions).where(*place.here, world_revisions.c.revision <= oldest))


def find_last_number(connection: Connection, place: WrittenPlace) -> int:
    """0 without any."""
    last = select(func.max(world_revisions.c.revision)).where(*place.here)
    return connection.execute(last).scalar() or 0


def find_newest_kept(connection: Connection, place: WrittenPlace) -> KeptRevision | None:
    columns = world_revisions.c
    kept = (columns.body, columns.revision, columns.author, columns.written_at)
    newest = select(*kept).where(*place.here).order_by(columns.revision.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return None if row is None else KeptRevision(row[0], Writing(*row[1:]))


def list_kept(connection: Connection, place: WrittenPlace, limit: int, before: int | None) -> list[ListedWriting]:
    """Newest first, without their bodies."""
    columns = world_revisions.c
    told = (columns.revision, columns.author, columns.written_at, columns.withdrawn_by, columns.withdrawn_at)
    statement = select(*told).where(*place.here).order_by(columns.revision.desc()).limit(limit)
    if before is not None:
        statement = statement.where(columns.revision < before)
    return [
        ListedWriting(
            revision=revision,
            author=author,
            at=_convert(at),
            withdrawn_by=withdrawn_by,
            withdrawn_at=_convert(withdrawn_at),
        )
        for revision, author, at, withdrawn_by, withdrawn_at in connection.execute(statement)
    ]


def find_body(connection: Connection, place: WrittenPlace, revision: int) -> str | None:
    found = select(world_revisions.c.body).where(*place.here, world_revisions.c.revision == revision)
    return connection.execute(found).scalar()


def merge_listed(
    lists: Iterable[Collection[ListedWriting]], limit: int, before: int | None = None
) -> list[ListedWriting]:
    """One of each revision, newest first. What stands in an earlier list counts."""
    found: dict[int, ListedWriting] = {}
    for listed in lists:
        for one in listed:
            if before is None or one.revision < before:
                found.setdefault(one.revision, one)
    return [found[number] for number in sorted(found, reverse=True)][:limit]


def _convert(at: int | None) -> datetime | None:
    return None if at is None else from_micros(at)
