"""Worlds, their branches, and the past that they share."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, Executable, RowMapping, bindparam, literal_column, select, update

from app.domain.errors import Conflict, InvalidRequest, NotFound
from app.domain.worlds import World
from app.store.database import Database
from app.store.event_tables import worlds
from app.store.prepared_statements import PreparedStatement
from app.store.rows import from_micros, to_micros

MAX_BRANCH_DEPTH: Final = 100
"""Maximum number of branches between a world and its first ancestor."""

NO_TIME_LIMIT: Final = 2**62
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
    found: list[LineageLevel] = []
    until = NO_TIME_LIMIT
    for row in _SELECT_LINEAGE.run(connection, name=name).mappings():
        closed = row["closed_at"] is not None
        found.append(LineageLevel(row["number"], row["name"], until, row["depth"], row["events"], closed))
        until = min(until, NO_TIME_LIMIT if row["branched_at"] is None else row["branched_at"])
    return found


def _build_lineage_query(_: bool) -> Executable:
    first = select(worlds, literal_column("0").label("above")).where(worlds.c.name == bindparam("name"))
    line = first.cte("line", recursive=True)
    above = select(worlds, line.c.above + literal_column("1")).where(worlds.c.number == line.c.parent)
    line = line.union_all(above)
    columns = (line.c.number, line.c.name, line.c.branched_at, line.c.depth, line.c.events, line.c.closed_at)
    return select(*columns).order_by(line.c.above)


_SELECT_LINEAGE: Final = PreparedStatement(_build_lineage_query)


def lock_lineage(connection: Connection, database: Database, name: str) -> list[LineageLevel]:
    """The lineage of a world, which is created if it does not exist. Locks the world and its past against writes until
    the transaction ends. Conflict when the world is closed."""
    _ensure_world(connection, database, name)
    numbers = [level.number for level in load_world_lineage(connection, name)]
    if database.postgres:
        past = worlds.c.number.in_(numbers[1:])
        connection.execute(select(worlds.c.number).where(past).order_by(worlds.c.number).with_for_update(read=True))
        own = worlds.c.number == numbers[0]
        connection.execute(select(worlds.c.number).where(own).with_for_update())
    levels = load_world_lineage(connection, name)
    levels[0].require_open()
    return levels


def _ensure_world(connection: Connection, database: Database, name: str) -> None:
    if not load_world_lineage(connection, name):
        row = {"name": name, "depth": 0, "events": 0, "created_at": database.read_clock()}
        connection.execute(database.insert_new(worlds), row)


def add_to_event_count(connection: Connection, number: int, told: int) -> None:
    connection.execute(update(worlds).where(worlds.c.number == number).values(events=worlds.c.events + told))


def branch_world(connection: Connection, database: Database, name: str, parent: str, at: datetime) -> None:
    above = load_world_lineage(connection, parent)
    if not above:
        raise NotFound(f"there is no world {parent!r} to branch from")
    (load_world_lineage(connection, name) or above)[0].require_open()
    if above[0].depth >= MAX_BRANCH_DEPTH:
        raise Conflict(f"world {parent!r} is {MAX_BRANCH_DEPTH} branches deep, which is the limit")
    wanted = {"parent": above[0].number, "branched_at": to_micros(at)}
    row = {"name": name, **wanted, "depth": above[0].depth + 1, "events": 0, "created_at": database.read_clock()}
    connection.execute(database.insert_new(worlds), row)
    found = connection.execute(select(worlds).where(worlds.c.name == name)).mappings().one()
    if any(found[column] != value for column, value in wanted.items()):
        raise Conflict(f"world {name!r} already exists with another parent or branch time")


def close_world(connection: Connection, database: Database, name: str) -> None:
    """The time of the first closing stays."""
    still_open = (worlds.c.name == name, worlds.c.closed_at.is_(None))
    connection.execute(update(worlds).where(*still_open).values(closed_at=database.read_clock()))


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
        branched_at=_parse_time(row["branched_at"]),
        events=row["events"],
        created_at=from_micros(row["created_at"]),
        closed_at=_parse_time(row["closed_at"]),
    )


def _parse_time(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
