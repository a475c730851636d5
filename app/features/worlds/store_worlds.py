"""Worlds: their tables, their branches and the past that they share, lorebooks, and earlier texts.

A branch has no copy of its past. Its lineage is the world itself, then its parent, and so on, each with the time up to
which its events are inherited. Reading events finds rows of all worlds of the lineage and drops those that a later
world has withdrawn or replaced. A write locks its own world for itself and the past for reading, so that nobody
corrects an event above while a branch relies on it.

An event's sequence is its world's number and its place there, so a sequence alone tells the world. What events and
lorebooks said before they were changed or deleted lies in one table; what is in force stands in their own.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Executable,
    Index,
    Integer,
    RowMapping,
    String,
    Text,
    bindparam,
    delete,
    false,
    func,
    insert,
    literal_column,
    select,
    tuple_,
    update,
)
from sqlmodel import Field

from app.domain.errors import Conflict, InvalidRequest, NotFound
from app.domain.values import MEBIBYTE, digest_of_model, remember
from app.domain.worlds import DocumentKind, EarlierText, Event, Lorebook, World, WrittenText
from app.store.database import Database, StorePart, reads, writes
from app.store.statements import (
    PreparedStatement,
    build_dialect_sql,
    decode,
    encode,
    format_integers,
    from_micros,
    insert_rows,
    is_storable,
    to_micros,
)
from app.store.table_records import TableRecord, build_partial_index, build_sequence_column, get_table


def _build_ordered_column(name: str, *, primary_key: bool = False) -> "Column[str]":
    """A text column ordered by code points, independent of the database's locale."""
    ordered = String().with_variant(String(collation="C"), "postgresql")
    return Column(name, ordered, primary_key=primary_key, nullable=False)


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
    memory: bool = Field(sa_column=Column(Boolean(), nullable=False, server_default=false()))


class EventTable(TableRecord, table=True):
    """`sequence` is the world's number and the event's place in it. `body` is a JSON text. `author` and `written_at`
    are of this text, null where it is older than these columns."""

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
    author: str | None = None
    written_at: int | None = Field(default=None, sa_type=BigInteger)


class WithdrawalTable(TableRecord, table=True):
    """Inherited events that a world and its branches do not have: withdrawn ones, and corrected ones of which they keep
    an earlier text or none. A world's own events are marked in their rows."""

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


class SegmentTable(TableRecord, table=True):
    """The search index of events; see `app.features.worlds.store_segments`. `postings` has all postings where
    `pages` is 0, and else the first one of each page."""

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


class EarlierTextTable(TableRecord, table=True):
    """What events and lorebooks said before they were changed or deleted. What is in force stands in their own tables.
    `number` counts from 1 for each of them. `author` and `written_at` are null where the text is older than these
    notes."""

    __tablename__ = "earlier_texts"
    world: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    kind: str = Field(primary_key=True)
    name: str = Field(sa_column=_build_ordered_column("name", primary_key=True))
    number: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    body: str = Field(sa_type=Text)
    author: str | None = None
    written_at: int | None = Field(default=None, sa_type=BigInteger)
    replaced_by: str | None = None
    replaced_at: int | None = Field(default=None, sa_type=BigInteger)


worlds = get_table(WorldTable)
events = get_table(EventTable)
withdrawals = get_table(WithdrawalTable)
successions = get_table(SuccessionTable)
segments = get_table(SegmentTable)
segment_pages = get_table(SegmentPageTable)
lorebooks = get_table(LorebookTable)
earlier_texts = get_table(EarlierTextTable)


# Earlier texts, and who wrote them.

KEPT_TEXTS: Final = 200
"""Of one event or lorebook: a game may correct the same event for years."""


@dataclass(frozen=True)
class WrittenBody:
    """A stored text, who wrote it, and when in microseconds since 1970. None where it is older than such notes."""

    body: str
    author: str | None
    at: int | None


@dataclass(frozen=True)
class Document:
    """What is changed and deleted: an event or a lorebook of a world."""

    world: int
    kind: DocumentKind
    name: str

    @property
    def here(self) -> tuple[ColumnElement[bool], ...]:
        columns = earlier_texts.c
        return columns.world == self.world, columns.kind == self.kind, columns.name == self.name


def keep_text(
    connection: Connection, database: Database, document: Document, former: WrittenBody, replaced_by: str
) -> None:
    """Keeps what a text said that is about to be changed or deleted."""
    last = connection.execute(select(func.max(earlier_texts.c.number)).where(*document.here)).scalar() or 0
    row = {"world": document.world, "kind": document.kind, "name": document.name, "number": last + 1}
    of_text = {"body": former.body, "author": former.author, "written_at": former.at}
    replaced = {"replaced_by": replaced_by, "replaced_at": database.read_clock()}
    connection.execute(insert(earlier_texts).values({**row, **of_text, **replaced}))
    if last >= KEPT_TEXTS:
        oldest = earlier_texts.c.number <= last + 1 - KEPT_TEXTS
        connection.execute(delete(earlier_texts).where(*document.here, oldest))


def copy_newest_text(connection: Connection, document: Document, to: Collection[int]) -> None:
    """For those branches that keep none."""
    columns = earlier_texts.c
    newest = select(earlier_texts).where(*document.here).order_by(columns.number.desc()).limit(1)
    row = {**connection.execute(newest).mappings().one(), "number": 1}
    have = select(columns.world).where(columns.kind == document.kind, columns.name == document.name)
    having = set(connection.execute(have.where(columns.world.in_(to))).scalars())
    insert_rows(connection, earlier_texts, [{**row, "world": one} for one in to if one not in having])


def find_text_before(connection: Connection, worlds: Collection[int], event_id: str) -> tuple[int, WrittenBody] | None:
    """What an event said last in the nearest of these worlds of one lineage, and that world. A branch has a higher
    number than its parent."""
    columns = earlier_texts.c
    here = (columns.world.in_(worlds), columns.kind == "event", columns.name == event_id)
    statement = select(columns.world, columns.body, columns.author, columns.written_at).where(*here)
    nearest = statement.order_by(columns.world.desc(), columns.number.desc()).limit(1)
    row = connection.execute(nearest).one_or_none() if worlds else None
    return None if row is None else (row[0], WrittenBody(*row[1:]))


class EarlierTextStore(StorePart):
    """What events and lorebooks of a world itself said before. Another world's are listed there."""

    @reads
    def list_earlier(
        self,
        connection: Connection,
        world: str,
        kind: DocumentKind,
        name: str,
        limit: int,
        before: int | None = None,
    ) -> list[EarlierText]:
        """The latest replaced first, those with numbers before `before`."""
        document = _find_document(connection, world, kind, name)
        if document is None:
            return []
        here = document.here if before is None else (*document.here, earlier_texts.c.number < before)
        newest = select(*_LISTED).where(*here).order_by(earlier_texts.c.number.desc()).limit(limit)
        return [EarlierText(**_build_listed(row)) for row in connection.execute(newest).mappings()]

    @reads
    def get_earlier(
        self, connection: Connection, world: str, kind: DocumentKind, name: str, number: int
    ) -> WrittenText | None:
        """One of the listed ones."""
        document = _find_document(connection, world, kind, name)
        if document is None:
            return None
        here = select(*_LISTED, earlier_texts.c.body).where(*document.here, earlier_texts.c.number == number)
        row = connection.execute(here).mappings().one_or_none()
        if row is None:
            return None
        content = decode(Event if kind == "event" else Lorebook, row["body"])
        return WrittenText(content=content, **_build_listed(row))


_LISTED: Final = tuple(
    earlier_texts.c[name] for name in ("number", "author", "written_at", "replaced_by", "replaced_at")
)


def _find_document(connection: Connection, world: str, kind: DocumentKind, name: str) -> Document | None:
    levels = load_world_lineage(connection, world) if is_storable(world, name) else []
    return Document(levels[0].number, kind, name) if levels else None


def _build_listed(row: RowMapping) -> dict[str, Any]:
    times = {name: _convert_time(row[name]) for name in ("written_at", "replaced_at")}
    return {"number": row["number"], "author": row["author"], "replaced_by": row["replaced_by"], **times}


def _convert_time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


# Worlds and their branches.

MAX_BRANCH_DEPTH: Final = 100
"""Maximum number of branches between a world and its first ancestor."""

_NO_TIME_LIMIT: Final = 2**62
"""A time later than any event."""


@dataclass(frozen=True)
class LineageLevel:
    """One world of a lineage, and the time up to which its events are inherited."""

    number: int
    name: str
    until: int
    depth: int
    events: int
    closed: bool

    def require_open(self) -> None:
        """Conflict."""
        if self.closed:
            raise Conflict(f"world {self.name!r} is closed: it takes no more events, lorebooks or branches")

    def require_usable(self) -> None:
        """InvalidRequest naming `world`."""
        if self.closed:
            raise InvalidRequest(f"world {self.name!r} is closed: prompts cannot use it any more", field="world")


def load_world_lineage(connection: Connection, name: str) -> list[LineageLevel]:
    """The world itself, then its parent, and so on; empty without the world."""
    levels: list[LineageLevel] = []
    until = _NO_TIME_LIMIT
    for row in _SELECT_LINEAGE.run(connection, name=name).mappings():
        closed = row["closed_at"] is not None
        levels.append(LineageLevel(row["number"], row["name"], until, row["depth"], row["events"], closed))
        # A branch of a branch sees no more of the first world than the branch between them does.
        until = min(until, _NO_TIME_LIMIT if row["branched_at"] is None else row["branched_at"])
    return levels


def _build_lineage_query(_: bool) -> Executable:
    first = select(worlds, literal_column("0").label("above")).where(worlds.c.name == bindparam("name"))
    line = first.cte("line", recursive=True)
    above = select(worlds, line.c.above + literal_column("1")).where(worlds.c.number == line.c.parent)
    line = line.union_all(above)
    columns = (line.c.number, line.c.name, line.c.branched_at, line.c.depth, line.c.events, line.c.closed_at)
    return select(*columns).order_by(line.c.above)


_SELECT_LINEAGE: Final = PreparedStatement(_build_lineage_query)


def build_order_key(world: str, *_: object, **_named: object) -> str:
    """Writes to one world run in the order in which they came."""
    return f"worlds {world}"


def lock_lineage(connection: Connection, database: Database, name: str) -> list[LineageLevel]:
    """The lineage of a world, which is created if it does not exist. Locks the world and its past against writes until
    the transaction ends. Conflict when the world is closed."""
    _ensure_world(connection, database, name)
    numbers = [level.number for level in load_world_lineage(connection, name)]
    # SQLite has one writer. PostgreSQL locks from the oldest world down, so that no two writes wait in a circle.
    if database.postgres:
        past = worlds.c.number.in_(numbers[1:])
        connection.execute(select(worlds.c.number).where(past).order_by(worlds.c.number).with_for_update(read=True))
        own = worlds.c.number == numbers[0]
        connection.execute(select(worlds.c.number).where(own).with_for_update())
    # Again, since the counts of events may have changed until the locks were had.
    levels = load_world_lineage(connection, name)
    levels[0].require_open()
    return levels


def _ensure_world(connection: Connection, database: Database, name: str) -> None:
    if not load_world_lineage(connection, name):
        row = {"name": name, "depth": 0, "events": 0, "created_at": database.read_clock()}
        connection.execute(database.insert_new(worlds), row)


def add_to_event_count(connection: Connection, number: int, added: int) -> None:
    connection.execute(update(worlds).where(worlds.c.number == number).values(events=worlds.c.events + added))


def branch_world(connection: Connection, database: Database, name: str, parent: str, at: datetime) -> None:
    above = load_world_lineage(connection, parent)
    if not above:
        raise NotFound(f"there is no world {parent!r} to branch from")
    (load_world_lineage(connection, name) or above)[0].require_open()
    if above[0].depth >= MAX_BRANCH_DEPTH:
        raise Conflict(f"world {parent!r} is {MAX_BRANCH_DEPTH} branches deep, which is the limit")
    requested = {"parent": above[0].number, "branched_at": to_micros(at)}
    row = {"name": name, **requested, "depth": above[0].depth + 1, "events": 0, "created_at": database.read_clock()}
    # A saved game that is loaded remembers if the world does in which it was saved.
    remembers = connection.execute(select(worlds.c.memory).where(worlds.c.number == above[0].number)).scalar_one()
    connection.execute(database.insert_new(worlds), {**row, "memory": remembers})
    stored = connection.execute(select(worlds).where(worlds.c.name == name)).mappings().one()
    if any(stored[column] != value for column, value in requested.items()):
        raise Conflict(f"world {name!r} already exists with another parent or branch time")


def close_world(connection: Connection, database: Database, name: str) -> None:
    """The time of the first closing stays."""
    still_open = (worlds.c.name == name, worlds.c.closed_at.is_(None))
    connection.execute(update(worlds).where(*still_open).values(closed_at=database.read_clock()))


def reopen_world(connection: Connection, name: str) -> None:
    connection.execute(update(worlds).where(worlds.c.name == name).values(closed_at=None))


def load_worlds(
    connection: Connection, limit: int, *, name: str | None = None, after: str | None = None, closed: bool = True
) -> list[World]:
    """Worlds by name, without the times of their newest events. `closed`: whether closed ones are included."""
    parents = worlds.alias("parents")
    joined = worlds.outerjoin(parents, parents.c.number == worlds.c.parent)
    statement = select(*worlds.c, parents.c.name.label("parent_name")).select_from(joined)
    if name is not None:
        statement = statement.where(worlds.c.name == name)
    if after is not None:
        statement = statement.where(worlds.c.name > after)
    if not closed:
        statement = statement.where(worlds.c.closed_at.is_(None))
    return [_parse_world(row) for row in connection.execute(statement.order_by(worlds.c.name).limit(limit)).mappings()]


def _parse_world(row: RowMapping) -> World:
    return World(
        name=row["name"],
        parent=row["parent_name"],
        branched_at=_convert_time(row["branched_at"]),
        events=row["events"],
        created_at=from_micros(row["created_at"]),
        closed_at=_convert_time(row["closed_at"]),
        memory=bool(row["memory"]),
    )


# Lorebooks.


class LorebookStore(StorePart):
    """Lorebooks of worlds, by name within their world."""

    @writes(build_order_key)
    def put(
        self,
        connection: Connection,
        world: str,
        name: str,
        book: Lorebook,
        based_on: str | None = None,
        author: str = "",
    ) -> None:
        """Stores or replaces a lorebook; the same content again changes nothing. Creates the world if it does not
        exist. Conflict where the world has another lorebook of that name than `based_on`, its digest, or one although
        that is empty."""
        document = Document(lock_lineage(connection, self.database, world)[0].number, "lorebook", name)
        if based_on is not None:
            _require_based(connection, world, name, based_on)
        content = {"body": encode(book), "author": author, "updated_at": self.database.read_clock()}
        former = _find_own(connection, document)
        if former is None:
            connection.execute(insert(lorebooks).values(world=document.world, name=document.name, **content))
        elif former.body != content["body"]:
            keep_text(connection, self.database, document, former, author)
            connection.execute(update(lorebooks).where(*_match_document(document)).values(content))

    @writes(build_order_key)
    def remove(self, connection: Connection, world: str, name: str, author: str = "") -> bool:
        if not is_storable(world, name) or not load_world_lineage(connection, world):
            return False
        document = Document(lock_lineage(connection, self.database, world)[0].number, "lorebook", name)
        former = _find_own(connection, document)
        if former is None:
            return False
        keep_text(connection, self.database, document, former, author)
        connection.execute(delete(lorebooks).where(*_match_document(document)))
        return True

    @reads
    def list_lorebooks(self, connection: Connection, world: str) -> dict[str, Lorebook]:
        """Lorebooks ordered by name, including those of parent worlds unless the world has one of the same name."""
        return _load_lorebooks(connection, world) if is_storable(world) else {}


def _find_own(connection: Connection, document: Document) -> WrittenBody | None:
    columns = (lorebooks.c.body, lorebooks.c.author, lorebooks.c.updated_at)
    row = connection.execute(select(*columns).where(*_match_document(document))).one_or_none()
    return None if row is None else WrittenBody(*row)


def _match_document(document: Document) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return lorebooks.c.world == document.world, lorebooks.c.name == document.name


def _require_based(connection: Connection, world: str, name: str, based_on: str) -> None:
    book = _load_lorebooks(connection, world).get(name)
    if based_on != ("" if book is None else digest_of_model(book)):
        raise Conflict(f"the lorebook {name!r} was changed by somebody else: read it again, then repeat the change")


def _load_lorebooks(connection: Connection, world: str) -> dict[str, Lorebook]:
    bodies: dict[str, str] = {}
    for level in reversed(load_world_lineage(connection, world)):
        statement = select(lorebooks.c.name, lorebooks.c.body).where(lorebooks.c.world == level.number)
        bodies |= {name: body for name, body in connection.execute(statement)}
    return {name: decode(Lorebook, bodies[name]) for name in sorted(bodies)}


# Events that are valid in a world.

_PLACES_PER_WORLD: Final = 2**32
"""Maximum number of events per world."""


@dataclass(frozen=True)
class StoredEvent:
    sequence: int
    time: int
    """Microseconds since 1970."""
    event: Event

    @property
    def world(self) -> int:
        return find_world(self.sequence)


def compute_sequence(world: int, place: int) -> int:
    return world * _PLACES_PER_WORLD + place


def find_world(sequence: int) -> int:
    return sequence // _PLACES_PER_WORLD


@remember(8 * MEBIBYTE)
def decode_event(body: str) -> Event:
    """Decodes an event. Cached, since events never change and searches read the same ones again."""
    return decode(Event, body)


_LOAD_EVENTS = PreparedStatement(
    build_dialect_sql(
        """
        SELECT CAST(coalesce(json_agg(json_build_array(sequence, time, body)), '[]') AS text) FROM events
        WHERE withdrawn = 0 AND sequence = ANY(CAST(:sequences AS bigint[]))
        """,
        """
        SELECT json_group_array(json_array(sequence, time, body)) FROM events
        WHERE withdrawn = 0 AND sequence IN (SELECT value FROM json_each(:sequences))
        """,
    )
)


def load_valid_events(
    connection: Connection, levels: Sequence[LineageLevel], sequences: Collection[int]
) -> dict[int, StoredEvent]:
    """The valid events among `sequences`: added before the branch, not withdrawn, and not replaced by a later world's
    event of the same id."""
    if not sequences:
        return {}
    listed = format_integers(sorted(sequences), postgres=connection.dialect.name == "postgresql")
    rows = json.loads(_LOAD_EVENTS.run(connection, sequences=listed).scalar_one())
    until = {level.number: level.until for level in levels}
    loaded = [StoredEvent(sequence, time, decode_event(body)) for sequence, time, body in rows]
    # An event of a world outside the lineage is later than its own time less one, and so falls away.
    inherited = [one for one in loaded if one.time <= until.get(one.world, one.time - 1)]
    return {one.sequence: one for one in _drop_withdrawn(connection, levels, inherited)}


def _drop_withdrawn(
    connection: Connection, levels: Sequence[LineageLevel], inherited: Sequence[StoredEvent]
) -> list[StoredEvent]:
    """Drops events that a later world of the lineage has withdrawn or replaced."""
    of_the_past = [one for one in inherited if one.world != levels[0].number]
    if not of_the_past:
        return list(inherited)
    numbers = [level.number for level in levels]
    gone = select(withdrawals.c.sequence).where(
        withdrawals.c.world.in_(numbers), withdrawals.c.sequence.in_([one.sequence for one in of_the_past])
    )
    withdrawn = set(connection.execute(gone).scalars())
    again = select(events.c.event_id, events.c.world, events.c.time).where(
        events.c.world.in_(numbers), events.c.event_id.in_({one.event.id for one in of_the_past})
    )
    nearest = _find_nearest_worlds(levels, connection.execute(again).all())
    return [
        one for one in inherited if one.sequence not in withdrawn and nearest.get(one.event.id, one.world) == one.world
    ]


def _find_nearest_worlds(levels: Sequence[LineageLevel], rows: Sequence[tuple[str, int, int]]) -> Mapping[str, int]:
    """The world whose event of an id is valid, seen from the first of `levels`."""
    near = {level.number: (depth, level.until) for depth, level in enumerate(levels)}
    nearest: dict[str, int] = {}
    for event_id, world, time in sorted(rows, key=lambda row: -near[row[1]][0]):
        if time <= near[world][1]:
            nearest[event_id] = world
    return nearest


def load_newest_events(
    connection: Connection, levels: Sequence[LineageLevel], limit: int, before: tuple[datetime, str] | None = None
) -> list[StoredEvent]:
    """The newest events by time and id, descending."""
    newest: list[StoredEvent] = []
    position = (_NO_TIME_LIMIT, "") if before is None else (to_micros(before[0]), before[1])
    # A page may lose events to withdrawals, so pages are read until there are enough.
    while len(newest) < limit:
        page = [one for level in levels for one in _load_newest_of_world(connection, level, limit, position)]
        page = sorted(page, key=_order_key, reverse=True)[:limit]
        newest += _drop_withdrawn(connection, levels, page)
        if len(page) < limit:
            break
        position = _order_key(page[-1])
    return newest[:limit]


def _order_key(one: StoredEvent) -> tuple[int, str]:
    return one.time, one.event.id


_SELECT_NEWEST: Final = PreparedStatement(
    lambda _: (
        select(events.c.sequence, events.c.time, events.c.body)
        .where(events.c.world == bindparam("world"), events.c.withdrawn == literal_column("0"))
        .where(events.c.time <= bindparam("until"))
        .where(tuple_(events.c.time, events.c.event_id) < tuple_(bindparam("time"), bindparam("event_id")))
        .order_by(events.c.time.desc(), events.c.event_id.desc())
        .limit(bindparam("most"))
    )
)


def _load_newest_of_world(
    connection: Connection, level: LineageLevel, limit: int, position: tuple[int, str]
) -> list[StoredEvent]:
    time, event_id = position
    rows = _SELECT_NEWEST.run(
        connection, world=level.number, until=level.until, time=time, event_id=event_id, most=limit
    )
    return [StoredEvent(row["sequence"], row["time"], decode_event(row["body"])) for row in rows.mappings()]
