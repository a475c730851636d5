"""Work on a whole database: copying a store from SQLite to PostgreSQL, and measuring how large it is and becomes.

A copy is one transaction of the target. Each table is read back and compared with its source before that is committed,
and so is whether others wrote to the source meanwhile: the target holds all of the store or nothing.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, Engine, MetaData, Row, Table, func, inspect, literal, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import LargeBinary, Text

from app.domain.errors import StoreUnavailable
from app.domain.retention import GroupsOfRun
from app.domain.values import Frozen
from app.store.database import describe, find_file, is_postgres, open_for_inspection, open_writer
from app.store.migration import find_newest_revision, migrate, read_revision
from app.store.retention import ROW_BYTES, load_run_sizes, measure_bytes
from app.store.statements import MICROSECONDS_PER_DAY, from_micros
from app.store.table_records import metadata
from app.store.tables import groups


class TableSize(Frozen):
    """`bytes` includes indexes. `dead_rows` are PostgreSQL's, which a vacuum makes free."""

    table: str
    rows: int
    bytes: int
    dead_rows: int = 0


class RunGrowth(Frozen):
    """Stored groups of a run, and how many bytes a day they have lately become more."""

    stored: GroupsOfRun
    last_at: datetime
    """Of its newest group."""
    bytes_per_day: int


class DatabaseSize(Frozen):
    """`measured_by` says where the bytes of tables are from: `pages` are counted, an `estimate` is by some rows."""

    database: str
    bytes: int
    free_bytes: int
    """Within it: it is filled before the database grows."""
    measured_by: str
    tables: tuple[TableSize, ...]
    runs: tuple[RunGrowth, ...]
    recent_days: float
    """From so many days comes what is said of growth."""
    bytes_per_day: int
    forecast_bytes: int
    """The database in 30 days, if it goes on as lately."""
    advice: tuple[str, ...] = ()


# Copying from SQLite to PostgreSQL.

_ROWS_AT_ONCE: Final = 200
_KEPT_BY_MIGRATIONS: Final = {"schema_support"}
_INDEXES: Final = {"group_texts", "text_progress"}
"""Each database has its own, which is written anew: that of texts by the service, those of features with the copy."""
_REBUILT: Final[list[Callable[[Connection], None]]] = []


def rebuild_after_copy(rebuild: Callable[[Connection], None], tables: Collection[str]) -> None:
    """An index of a feature, which is built in the target when its rows are there. `tables` hold it and are not
    copied."""
    _REBUILT.append(rebuild)
    _INDEXES.update(tables)


_Progress = Callable[[str, int], None]
"""Called with a table's name and how many more of its rows were copied or compared."""


def count_rows(source: str, migrations: Path) -> dict[str, int]:
    """Of each table. StoreUnavailable when the source cannot be copied."""
    with closing(_Source(source, migrations)) as opened:
        return {table.name: opened.count(table) for table in _list_tables()}


def copy_store(source: str, target: str, migrations: Path, progress: _Progress) -> dict[str, int]:
    """The rows copied of each table. Blocking. The target's schema is made. All rows are written in one transaction,
    which is committed only when both databases hold the same. StoreUnavailable when it cannot be done; then the
    target has no rows."""
    with closing(_Source(source, migrations)) as opened:
        opened.require_known_tables()
        if find_file(target) is not None:
            raise StoreUnavailable("the target must be a PostgreSQL database: postgresql://user@host/name")
        migrate(target, migrations)
        engine = open_writer(target, prepare=False)
        try:
            copied = _copy_tables(opened, engine, progress)
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("ANALYZE"))  # or its plans are those of an empty database
        except (DBAPIError, psycopg.Error) as error:
            raise StoreUnavailable(f"the rows cannot be copied: {' '.join(str(error).split())[:300]}") from error
        finally:
            engine.dispose()
        return copied


class _Source:
    """A SQLite store of this release's schema: one snapshot, and whether others write meanwhile."""

    def __init__(self, url: str, migrations: Path) -> None:
        file = find_file(url)
        if file is None:
            raise StoreUnavailable("the source is a PostgreSQL database: use pg_dump and pg_restore")
        if not file.exists():
            raise StoreUnavailable(f"there is no store: {file}")
        self._engine = open_for_inspection(url)
        self._watching_engine = open_for_inspection(url)
        try:
            self._reading = self._engine.connect()
            # Outside of any transaction: one would not see that others commit.
            self._watching = self._watching_engine.raw_connection()
            self._version = self._read_version()
            revision = read_revision(self._reading)
        except DBAPIError as error:
            self.close()
            raise StoreUnavailable(f"the source cannot be read: {error.orig}") from error
        if revision != (newest := find_newest_revision(migrations)):
            self.close()
            raise StoreUnavailable(f"the source has schema {revision}, not {newest}: run `atropos-envs migrate` on it")

    def close(self) -> None:
        self._engine.dispose()
        self._watching_engine.dispose()

    def require_known_tables(self) -> None:
        """StoreUnavailable for rows of a feature that is not part of this service: they would be left behind."""
        known = {*metadata.tables, *_KEPT_BY_MIGRATIONS, "alembic_version"}
        others = [Table(name, MetaData()) for name in inspect(self._reading).get_table_names() if name not in known]
        filled = [table.name for table in others if self.count(table)]
        if filled:
            raise StoreUnavailable(f"the source has rows in {', '.join(filled)}, which this service does not know")

    def count(self, table: Table) -> int:
        return self._reading.execute(select(func.count()).select_from(table)).scalar_one()

    def read(self, table: Table) -> "Iterator[Row[tuple[object, ...]]]":
        return _read_rows(self._reading, table)

    def has_changed(self) -> bool:
        """Others have committed since it was opened."""
        return self._read_version() != self._version

    def _read_version(self) -> object:
        with closing(self._watching.cursor()) as cursor:
            cursor.execute("PRAGMA data_version")
            return cursor.fetchone()


@dataclass
class _TableDigest:
    """Of rows in any order: the databases sort texts differently."""

    rows: int = 0
    total: int = field(default=0, repr=False)

    def add(self, row: "Row[tuple[object, ...]]") -> None:
        digest = hashlib.blake2b(repr(tuple(row)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self.rows += 1
        self.total = (self.total + int.from_bytes(digest, "big")) % (1 << 128)


def _list_tables() -> list[Table]:
    """Those that are referred to come first."""
    return [table for table in metadata.sorted_tables if table.name not in _KEPT_BY_MIGRATIONS | _INDEXES]


def _copy_tables(source: _Source, engine: Engine, progress: _Progress) -> dict[str, int]:
    copied = {}
    with engine.begin() as target:
        filled = [table.name for table in _list_tables() if target.execute(select(table).limit(1)).first()]
        if filled:
            raise StoreUnavailable(f"the target holds rows already ({', '.join(filled[:3])}): give an empty database")
        for table in _list_tables():
            ours, theirs = _TableDigest(), _TableDigest()
            _write_rows(target, table, _digest_rows(source.read(table), ours, table.name, progress))
            _set_sequence(target, table)
            for _ in _digest_rows(_read_rows(target, table), theirs, table.name, progress):
                pass
            if ours != theirs:
                raise StoreUnavailable(f"the copy of {table.name} differs from it: {ours.rows} and {theirs.rows} rows")
            copied[table.name] = ours.rows
        for rebuild in _REBUILT:
            rebuild(target)
        if source.has_changed():
            raise StoreUnavailable("the source was written to meanwhile: stop the service that uses it")
    return copied


def _digest_rows(
    rows: "Iterable[Row[tuple[object, ...]]]", digest: _TableDigest, table: str, progress: _Progress
) -> "Iterator[Row[tuple[object, ...]]]":
    for row in rows:
        digest.add(row)
        if digest.rows % _ROWS_AT_ONCE == 0:
            progress(table, _ROWS_AT_ONCE)
        yield row
    progress(table, digest.rows % _ROWS_AT_ONCE)


def _read_rows(connection: Connection, table: Table) -> "Iterator[Row[tuple[object, ...]]]":
    return iter(connection.execute(select(table).execution_options(yield_per=_ROWS_AT_ONCE)))


def _write_rows(target: Connection, table: Table, rows: "Iterable[Row[tuple[object, ...]]]") -> None:
    names = psycopg.sql.SQL(", ").join(psycopg.sql.Identifier(column.name) for column in table.columns)
    statement = psycopg.sql.SQL("COPY {} ({}) FROM STDIN").format(psycopg.sql.Identifier(table.name), names)
    driver = target.connection.driver_connection
    if not is_postgres(target.engine) or not isinstance(driver, psycopg.Connection):
        raise TypeError("rows are written to PostgreSQL alone")
    with driver.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(tuple(row))


def _set_sequence(target: Connection, table: Table) -> None:
    """The next row gets a number that is free."""
    counted = next((column for column in table.columns if column.autoincrement is True), None)
    if counted is None:
        return
    highest = target.execute(select(func.max(counted))).scalar()
    if highest is not None:
        sequence = func.pg_get_serial_sequence(table.name, counted.name)
        target.execute(select(func.setval(sequence, highest)))


# Measuring a database from its catalogue and from some of its rows, without changing it.

_RECENT_DAYS: Final = 7.0
_FORECAST_DAYS: Final = 30
PAGES_COUNTED_UP_TO: Final = 4 * 1024**3
"""Bytes of a SQLite file whose pages are all looked at; that reads the whole file."""
_SAMPLED_ROWS: Final = 200
_PAGES: Final = (
    "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name"
    " WHERE s.aggregate = TRUE GROUP BY m.tbl_name"
)


def measure_database(url: str, migrations: Path, now: int) -> DatabaseSize:
    """Blocking. `now` is in microseconds since 1970. StoreUnavailable when the database cannot be read."""
    file = find_file(url)
    if file is not None and not file.exists():
        raise StoreUnavailable(f"there is no store: {file}")
    engine = open_for_inspection(url)
    try:
        with engine.connect() as connection:
            revision, newest = read_revision(connection), find_newest_revision(migrations)
            if revision is None or revision < newest:
                have = "no schema" if revision is None else f"schema {revision}"
                raise StoreUnavailable(f"the store has {have}, not {newest}: run `atropos-envs migrate` on it")
            return _measure(connection, describe(url), is_postgres(engine), now)
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        raise StoreUnavailable(f"the database cannot be reached or read: {reason}") from error
    finally:
        engine.dispose()


def _measure(connection: Connection, name: str, postgres: bool, now: int) -> DatabaseSize:
    if postgres:
        whole, free, how = _read_integer(connection, "SELECT pg_database_size(current_database())"), 0, "pages"
        tables = _measure_postgres_tables(connection)
    else:
        page = _read_integer(connection, "PRAGMA page_size")
        whole = page * _read_integer(connection, "PRAGMA page_count")
        free = page * _read_integer(connection, "PRAGMA freelist_count")
        counted = None if whole > PAGES_COUNTED_UP_TO else _count_pages(connection)
        how = "estimate" if counted is None else "pages"
        tables = [_measure_sqlite_table(connection, table, counted) for table in metadata.sorted_tables]
    days, runs = _load_growth(connection, now)
    a_day = sum(each.bytes_per_day for each in runs)
    return DatabaseSize(
        database=name,
        bytes=whole,
        free_bytes=free,
        measured_by=how,
        tables=tuple(sorted((one for one in tables if one.rows), key=lambda one: -one.bytes)),
        runs=tuple(sorted(runs, key=lambda one: -one.stored.bytes)),
        recent_days=days,
        bytes_per_day=a_day,
        forecast_bytes=whole + max(0, _FORECAST_DAYS * a_day - free),
        advice=tuple(_advise(whole, free, tables)),
    )


def _read_integer(connection: Connection, statement: str) -> int:
    return int(connection.execute(text(statement)).scalar_one())


def _count_pages(connection: Connection) -> dict[str, int] | None:
    """Bytes by table, with its indexes; None where this SQLite was built without that."""
    try:
        return {table: int(size) for table, size in connection.execute(text(_PAGES))}
    except DBAPIError:
        return None


def _measure_sqlite_table(connection: Connection, table: Table, counted: dict[str, int] | None) -> TableSize:
    rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
    size = counted.get(table.name, 0) if counted is not None else round(rows * _estimate_row(connection, table))
    return TableSize(table=table.name, rows=rows, bytes=size)


def _estimate_row(connection: Connection, table: Table) -> float:
    """By the first and the last rows in the order of the key."""
    long = [column for column in table.columns if isinstance(column.type, Text | LargeBinary)]
    lengths = sum((measure_bytes(connection, column) for column in long), start=literal(0))
    if not long:
        return ROW_BYTES
    sizes: list[int] = []
    for descending in (False, True):
        keys = [column.desc() if descending else column for column in table.primary_key]
        some = select(lengths).select_from(table).order_by(*keys).limit(_SAMPLED_ROWS // 2)
        sizes += connection.execute(some).scalars()
    return ROW_BYTES + (sum(sizes) / len(sizes) if sizes else 0)


def _measure_postgres_tables(connection: Connection) -> list[TableSize]:
    statement = text(
        "SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables"
        " WHERE schemaname = current_schema()"
    )
    own_tables = {table.name for table in metadata.sorted_tables}
    sizes = [
        TableSize(table=name, rows=live, dead_rows=dead, bytes=size)
        for name, live, dead, size in connection.execute(statement)
        if name in own_tables
    ]
    return [one if one.rows else one.model_copy(update={"rows": _count(connection, one.table)}) for one in sizes]


def _count(connection: Connection, table: str) -> int:
    """Where the server has not counted yet, as after a restore."""
    return int(connection.execute(select(func.count()).select_from(metadata.tables[table])).scalar_one())


def _load_growth(connection: Connection, now: int) -> tuple[float, list[RunGrowth]]:
    """The days that growth is from, and runs. A store that is younger than a week has fewer days."""
    first = connection.execute(select(groups.c.created_at).order_by(groups.c.sequence).limit(1)).scalar()
    age = 0.0 if first is None else (now - first) / MICROSECONDS_PER_DAY
    days = min(_RECENT_DAYS, max(age, 1 / 24))
    since = groups.c.created_at >= now - int(days * MICROSECONDS_PER_DAY)
    columns = (groups.c.run, groups.c.environment, groups.c.purpose)
    recent: defaultdict[Any, int] = defaultdict(int)
    for *key, count in connection.execute(select(*columns, func.count()).where(since).group_by(*columns)):
        recent[tuple(key)] = count
    newest = {
        tuple(key): last
        for *key, last in connection.execute(select(*columns, func.max(groups.c.created_at)).group_by(*columns))
    }
    runs: list[RunGrowth] = []
    for stored in load_run_sizes(connection):
        here = (stored.run, stored.environment, stored.purpose)
        a_day = recent[here] / days * stored.bytes / stored.groups
        runs.append(RunGrowth(stored=stored, last_at=from_micros(newest[here]), bytes_per_day=round(a_day)))
    return days, runs


_DEAD_SHARE: Final = 0.2
_LEAST_DEAD_ROWS: Final = 10_000
_FREE_SHARE: Final = 0.25
LEAST_FREE_BYTES: Final = 64 * 1024**2


def _advise(whole: int, free: int, tables: list[TableSize]) -> list[str]:
    advice: list[str] = []
    if free > LEAST_FREE_BYTES and free > _FREE_SHARE * whole:
        advice.append(
            "Much of the file is free and will be filled again. To give it back to the disk, stop the service and run"
            " `VACUUM` with the sqlite3 command; that needs as much free disk as the file then has."
        )
    for table in tables:
        if table.dead_rows > _LEAST_DEAD_ROWS and table.dead_rows > _DEAD_SHARE * table.rows:
            advice.append(
                f"Much of {table.table} is dead rows: see that autovacuum is on and comes to it, or run"
                f" `VACUUM (ANALYZE) {table.table}`. Their room is filled again; only `VACUUM FULL`, which locks the"
                " table, gives it back to the disk."
            )
    return advice
