"""Copies a store from SQLite to PostgreSQL, and compares both before the copy counts."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import Connection, Engine, Row, Table, func, select, text
from sqlalchemy.exc import DBAPIError

from app.domain.errors import StoreUnavailable
from app.store.database import find_file, is_postgres, open_for_inspection, open_writer
from app.store.index_conversion import index_events
from app.store.migration import find_newest_revision, migrate, read_revision
from app.store.tables import metadata

_ROWS_AT_ONCE: Final = 200
_KEPT_BY_MIGRATIONS: Final = {"schema_support"}
_INDEXES: Final = {"event_postings", "event_segments", "event_segment_pages", "group_texts", "text_progress"}
"""Each database has its own. They are written anew, that of events with the copy, that of texts by the service."""

Progress = Callable[[str, int], None]
"""Called with a table's name and how many more of its rows were copied or compared."""


@dataclass
class TableDigest:
    """Of rows in any order: the databases sort texts differently."""

    rows: int = 0
    total: int = field(default=0, repr=False)

    def add(self, row: "Row[tuple[object, ...]]") -> None:
        digest = hashlib.blake2b(repr(tuple(row)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self.rows += 1
        self.total = (self.total + int.from_bytes(digest, "big")) % (1 << 128)


def count_rows(source: str, migrations: Path) -> dict[str, int]:
    """Of each table. StoreUnavailable when the source cannot be copied."""
    with closing(_Source(source, migrations)) as opened:
        return {table.name: opened.count(table) for table in _list_tables()}


def copy_store(source: str, target: str, migrations: Path, progress: Progress) -> dict[str, int]:
    """The rows copied of each table. Blocking. The target's schema is made. All rows are written in one transaction,
    which is committed only when both databases hold the same. StoreUnavailable when it cannot be done; then the
    target has no rows."""
    with closing(_Source(source, migrations)) as opened:
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
            self._watching = (
                self._watching_engine.raw_connection()
            )  # outside of any transaction, which would see nothing
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


def _list_tables() -> list[Table]:
    """Those that are referred to come first."""
    return [table for table in metadata.sorted_tables if table.name not in _KEPT_BY_MIGRATIONS | _INDEXES]


def _copy_tables(source: _Source, engine: Engine, progress: Progress) -> dict[str, int]:
    copied = {}
    with engine.begin() as target:
        filled = [table.name for table in _list_tables() if target.execute(select(table).limit(1)).first()]
        if filled:
            raise StoreUnavailable(f"the target holds rows already ({', '.join(filled[:3])}): give an empty database")
        for table in _list_tables():
            ours, theirs = TableDigest(), TableDigest()
            _write_rows(target, table, _digest_rows(source.read(table), ours, table.name, progress))
            _set_sequence(target, table)
            for _ in _digest_rows(_read_rows(target, table), theirs, table.name, progress):
                pass
            if ours != theirs:
                raise StoreUnavailable(f"the copy of {table.name} differs from it: {ours.rows} and {theirs.rows} rows")
            copied[table.name] = ours.rows
        index_events(target)
        if source.has_changed():
            raise StoreUnavailable("the source was written to meanwhile: stop the service that uses it")
    return copied


def _digest_rows(
    rows: "Iterable[Row[tuple[object, ...]]]", digest: TableDigest, table: str, progress: Progress
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
