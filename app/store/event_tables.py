"""Tables of worlds, events, the event index, and lorebooks."""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Text, text
from sqlmodel import Field

from app.store.table_records import TableRecord, build_partial_index, build_sequence_column, get_table


def _build_ordered_column(name: str, *, primary_key: bool = False) -> "Column[str]":
    """A text column ordered by code points, independent of the database's locale."""
    ordered = String().with_variant(String(collation="C"), "postgresql")
    return Column(name, ordered, primary_key=primary_key, nullable=False)


def _build_revision_column() -> "Column[int]":
    return Column("revision", Integer(), nullable=False, server_default=text("1"))


class WorldTable(TableRecord, table=True):
    """`events` counts the events added so far; `depth` is the number of ancestors."""

    __tablename__ = "worlds"
    __table_args__ = (
        Index("uq_worlds_name", "name", unique=True),
        build_partial_index("ix_worlds_parent", "parent", where="parent IS NOT NULL"),
        {"sqlite_autoincrement": True},
    )
    number: int = Field(sa_column=build_sequence_column("number"))
    name: str = Field(sa_column=_build_ordered_column("name"))
    parent: int | None = Field(default=None, sa_type=BigInteger)
    branched_at: int | None = Field(default=None, sa_type=BigInteger)
    depth: int
    events: int = Field(sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
    closed_at: int | None = Field(default=None, sa_type=BigInteger)


class EventTable(TableRecord, table=True):
    """`sequence` is the world's number and the event's place in it. `body` is a JSON text. `revision` counts from 1;
    `author` and `written_at` are of this revision, null where it is older than these columns."""

    __tablename__ = "events"
    __table_args__ = (
        Index("uq_events_world_event_id", "world", "event_id", unique=True),
        build_partial_index("ix_events_standing", "world", "time", "event_id", where="withdrawn = 0"),
    )
    sequence: int = Field(sa_column=Column("sequence", BigInteger(), primary_key=True, autoincrement=False))
    world: int = Field(sa_type=BigInteger)
    event_id: str = Field(sa_column=_build_ordered_column("event_id"))
    time: int = Field(sa_type=BigInteger)
    withdrawn: int
    body: str = Field(sa_type=Text)
    revision: int = Field(sa_column=_build_revision_column())
    author: str | None = None
    written_at: int | None = Field(default=None, sa_type=BigInteger)


class WithdrawalTable(TableRecord, table=True):
    """Inherited events that a world and its branches do not have: withdrawn ones, and corrected ones of which they keep
    an earlier revision or none. A world's own events are marked in their rows."""

    __tablename__ = "event_withdrawals"
    __table_args__ = (Index("ix_event_withdrawals_sequence", "sequence"),)
    world: int = Field(primary_key=True, sa_type=BigInteger)
    sequence: int = Field(primary_key=True, sa_type=BigInteger)


class SuccessionTable(TableRecord, table=True):
    """Which event of `world` supersedes which event id."""

    __tablename__ = "event_successions"
    __table_args__ = ({"sqlite_with_rowid": False},)
    world: int = Field(primary_key=True, sa_type=BigInteger)
    superseded: str = Field(primary_key=True)
    time: int = Field(primary_key=True, sa_type=BigInteger)
    sequence: int = Field(primary_key=True, sa_type=BigInteger)


class PostingTable(TableRecord, table=True):
    """The search index of events on PostgreSQL. `app.store.posting_keys` defines the keys."""

    __tablename__ = "event_postings"
    __table_args__ = ({"sqlite_with_rowid": False},)
    key: int = Field(primary_key=True, sa_type=BigInteger)
    time: int = Field(primary_key=True, sa_type=BigInteger)
    sequence: int = Field(primary_key=True, sa_type=BigInteger)


class SegmentTable(TableRecord, table=True):
    """The search index of events on SQLite; see `app.store.posting_segments`. `postings` has all postings where `pages`
    is 0, and else the first one of each page."""

    __tablename__ = "event_segments"
    __table_args__ = (Index("ix_event_segments_world", "world", "number"), {"sqlite_autoincrement": True})
    number: int = Field(sa_column=build_sequence_column("number"))
    world: int = Field(sa_type=BigInteger)
    events: int = Field(sa_type=BigInteger)
    pages: int
    times: bytes
    places: bytes
    removed: bytes
    postings: bytes


class SegmentPageTable(TableRecord, table=True):
    __tablename__ = "event_segment_pages"
    number: int = Field(
        sa_column=Column(
            "number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False
        )
    )
    postings: bytes


class LorebookTable(TableRecord, table=True):
    __tablename__ = "lorebooks"
    world: int = Field(primary_key=True, sa_type=BigInteger)
    name: str = Field(sa_column=_build_ordered_column("name", primary_key=True))
    body: str = Field(sa_type=Text)
    updated_at: int = Field(sa_type=BigInteger)
    author: str | None = None
    revision: int = Field(sa_column=_build_revision_column())


class WorldRevisionTable(TableRecord, table=True):
    """Former revisions of events and lorebooks, and withdrawn ones. Those in force stand in their own tables."""

    __tablename__ = "world_revisions"
    world: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    kind: str = Field(primary_key=True)
    name: str = Field(sa_column=_build_ordered_column("name", primary_key=True))
    revision: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    body: str = Field(sa_type=Text)
    author: str | None = None
    written_at: int | None = Field(default=None, sa_type=BigInteger)
    withdrawn_by: str | None = None
    withdrawn_at: int | None = Field(default=None, sa_type=BigInteger)


worlds = get_table(WorldTable)
events = get_table(EventTable)
withdrawals = get_table(WithdrawalTable)
successions = get_table(SuccessionTable)
postings = get_table(PostingTable)
segments = get_table(SegmentTable)
segment_pages = get_table(SegmentPageTable)
lorebooks = get_table(LorebookTable)
world_revisions = get_table(WorldRevisionTable)
