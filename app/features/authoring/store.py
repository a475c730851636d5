"""Revisions of the files that authors write, which are only ever added, and drafts, which their authors replace."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import BigInteger, Connection, Row, Text, and_, delete, func, select, update
from sqlmodel import Field

from app.domain.authored_files import ListedRevision
from app.domain.errors import Conflict
from app.domain.values import digest_of_text
from app.features.authoring.model import AuthoredChange, AuthoredDraft, AuthoredRevision
from app.store.database import StorePart, reads, writes
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


MOST_DRAFTS: Final = 100
"""Of an author, whose pages list them."""


class DraftTable(TableRecord, table=True):
    """What an author keeps of a file before it is published."""

    __tablename__ = "authored_drafts"
    file: str = Field(primary_key=True)
    author: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)
    """JSON string."""
    digest: str
    based_on: int = Field(sa_type=BigInteger)
    saved_at: int = Field(sa_type=BigInteger)


drafts = get_table(DraftTable)


class AuthoredStore(StorePart):
    """Revisions are only ever added, so their number says whether there are new ones."""

    @reads
    def count(self, connection: Connection) -> int:
        return connection.execute(select(func.count()).select_from(authored)).scalar_one()

    @reads
    def load_newest(self, connection: Connection) -> dict[str, AuthoredRevision]:
        """The newest revision of each file, withdrawals included."""
        numbers = select(authored.c.file, func.max(authored.c.revision).label("revision")).group_by(authored.c.file)
        newest = numbers.subquery()
        here = and_(authored.c.file == newest.c.file, authored.c.revision == newest.c.revision)
        statement = select(authored).join(newest, here).order_by(authored.c.file)
        return {row.file: _build_revision(row) for row in connection.execute(statement)}

    @writes("authored")
    def add(
        self, connection: Connection, changes: Sequence[AuthoredChange], author: str, note: str
    ) -> list[AuthoredRevision]:
        """All or none. Conflict naming the file whose newest revision is another than the change is based on."""
        stamp = self.database.read_clock()
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
            insertion = self.database.insert_new(authored)
            if newest != change.based_on or not connection.execute(insertion, row).rowcount:
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

    @reads
    def list_revisions(
        self, connection: Connection, file: str, limit: int, before: int | None = None
    ) -> list[ListedRevision]:
        """Newest first, those before the revision `before`, without their texts, which may be large."""
        if not is_storable(file):
            return []
        columns = authored.c
        listed = (columns.revision, columns.note, columns.author, columns.created_at, columns.digest)
        statement = select(*listed).where(columns.file == file)
        if before is not None:
            statement = statement.where(columns.revision < before)
        return [
            ListedRevision(
                revision=revision, note=str(decode_json(note)), author=author, at=from_micros(at), digest=digest
            )
            for revision, note, author, at, digest in connection.execute(
                statement.order_by(columns.revision.desc()).limit(limit)
            )
        ]

    @reads
    def get(self, connection: Connection, file: str, revision: int) -> AuthoredRevision | None:
        if not is_storable(file):
            return None
        statement = select(authored).where(authored.c.file == file, authored.c.revision == revision)
        row = connection.execute(statement).one_or_none()
        return None if row is None else _build_revision(row)

    @reads
    def get_draft(self, connection: Connection, file: str, author: str) -> AuthoredDraft | None:
        if not is_storable(file, author):
            return None
        statement = select(drafts).where(drafts.c.file == file, drafts.c.author == author)
        row = connection.execute(statement).one_or_none()
        return None if row is None else _build_draft(row)

    @reads
    def list_drafted(self, connection: Connection, author: str) -> list[str]:
        """The files of which this author keeps a draft."""
        return sorted(connection.execute(select(drafts.c.file).where(drafts.c.author == author)).scalars())

    @reads
    def list_digests(self, connection: Connection, author: str) -> list[tuple[str, str]]:
        """File and digest of each of this author's drafts."""
        statement = select(drafts.c.file, drafts.c.digest).where(drafts.c.author == author).order_by(drafts.c.file)
        return [(file, digest) for file, digest in connection.execute(statement)]

    @writes("authored")
    def put_draft(
        self, connection: Connection, file: str, author: str, text: str, based_on: int, read: str
    ) -> AuthoredDraft:
        """Conflict where the author's draft has another digest than `read`, which is empty for none, or where a new one
        would be one too many."""
        if not read:
            self._require_room(connection, author)
        row = {
            "file": file,
            "author": author,
            "body": encode_json(text),
            "digest": digest_of_text(text),
            "based_on": based_on,
            "saved_at": self.database.read_clock(),
        }
        changing = update(drafts).where(drafts.c.file == file, drafts.c.author == author, drafts.c.digest == read)
        statement = changing.values(row) if read else self.database.insert_new(drafts).values(row)
        stored = connection.execute(statement.returning(drafts)).one_or_none()
        if stored is None:
            raise build_draft_conflict(file)
        return _build_draft(stored)

    def _require_room(self, connection: Connection, author: str) -> None:
        statement = select(func.count()).select_from(drafts).where(drafts.c.author == author)
        if (connection.execute(statement).scalar() or 0) >= MOST_DRAFTS:
            raise Conflict(f"you keep {MOST_DRAFTS} drafts: publish or discard one first", field="draft")

    @writes("authored")
    def remove_draft(self, connection: Connection, file: str, author: str, read: str) -> None:
        """Conflict where the author's draft has another digest than `read`; it stays."""
        here = (drafts.c.file == file, drafts.c.author == author)
        removed = connection.execute(delete(drafts).where(*here, drafts.c.digest == read)).rowcount
        if not removed and connection.execute(select(drafts.c.digest).where(*here)).one_or_none() is not None:
            raise build_draft_conflict(file)


def _build_draft(row: "Row[tuple[object, ...]]") -> AuthoredDraft:
    return AuthoredDraft(
        file=row.file,
        author=row.author,
        text=str(decode_json(row.body)),
        digest=row.digest,
        based_on=row.based_on,
        saved_at=from_micros(row.saved_at),
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


def build_draft_conflict(file: str) -> Conflict:
    return Conflict(
        f"{file}: another draft of yours was saved meanwhile. Open the page again, then repeat the change",
        field="draft",
    )


def _build_conflict(change: AuthoredChange, newest: int) -> Conflict:
    return Conflict(
        f"{change.file}: revision {newest} is stored, and this change is based on {change.based_on}: read it again, "
        "then repeat the change",
        field="based_on",
    )
