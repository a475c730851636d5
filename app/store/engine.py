"""Connections: what a database URL means, and how each database is opened for writing and for reading."""

import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

BUSY_MILLISECONDS = 10_000
JOURNAL_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 5

_PRAGMAS = (
    f"busy_timeout = {BUSY_MILLISECONDS}",  # first, so that the others wait instead of failing
    "journal_mode = WAL",
    "synchronous = FULL",
    f"journal_size_limit = {JOURNAL_BYTES}",
    "foreign_keys = ON",
)

_WRITER_PRAGMAS = (
    *_PRAGMAS,
    "cache_size = -65536",  # kilobytes: an index that grows everywhere at once
    f"wal_autocheckpoint = {JOURNAL_BYTES // 4096}",  # pages: those that change often are copied once for many commits
)


def parse_url(url: str) -> URL:
    """`sqlite:///path` or `postgresql://…`. ValueError for anything else; the message never holds the URL, since
    that may hold a password."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError("not a database URL: use sqlite:///path or postgresql://user@host/name") from None
    kind = parsed.drivername.partition("+")[0]
    if kind == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite+pysqlite")
    if kind in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    raise ValueError("the database URL must be sqlite:///path or postgresql://user@host/name")


def describe(url: str) -> str:
    """The database as people know it, without a password: a file by its whole path, and whether it is new."""
    parsed = parse_url(url)
    if not parsed.drivername.startswith("sqlite"):
        return parsed.set(drivername="postgresql").render_as_string(hide_password=True)
    file = Path(str(parsed.database)).absolute()
    return str(file) if file.exists() else f"{file} (new: there was none)"


def open_writer(url: str, *, connections: int = 1) -> Engine:
    """Connections whose transactions hold SQLite's write lock from their first moment."""
    return _open(parse_url(url), connections, _WRITER_PRAGMAS, "BEGIN IMMEDIATE")


def open_reader(url: str, *, connections: int) -> Engine:
    """Connections that cannot write; what one transaction reads is of one moment."""
    parsed = parse_url(url)
    engine = _open(parsed, connections, (*_PRAGMAS, "query_only = ON"), "BEGIN")
    if is_postgres(engine):
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return engine


def open_for_migration(url: str) -> Engine:
    """As for writing, without foreign keys: SQLite changes a table by copying it."""
    parsed = parse_url(url)
    if parsed.drivername.startswith("sqlite"):
        Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
    return _open(parsed, 1, (*_PRAGMAS[:-1], "foreign_keys = OFF"), "BEGIN IMMEDIATE")


def is_postgres(engine: Engine) -> bool:
    return engine.dialect.name == "postgresql"


def _open(url: URL, connections: int, pragmas: Iterable[str], begin: str) -> Engine:
    if url.drivername.startswith("postgresql"):
        timeouts = {"connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": 3 * CONNECT_SECONDS * 1000}
        return create_engine(url, pool_size=connections, max_overflow=0, connect_args=timeouts)
    engine = create_engine(url, pool_size=connections, max_overflow=0, connect_args={"check_same_thread": False})
    _set_up_sqlite(engine, tuple(pragmas), begin)
    return engine


def _patiently(cursor: DBAPICursor, statement: str) -> None:
    """Waits as long as for any lock: SQLite itself does not when two processes turn a new file to WAL at once."""
    end = time.monotonic() + BUSY_MILLISECONDS / 1000
    while True:
        try:
            cursor.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _set_up_sqlite(engine: Engine, pragmas: tuple[str, ...], begin: str) -> None:
    def connected(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        cursor = connection.cursor()
        for pragma in pragmas:
            _patiently(cursor, f"PRAGMA {pragma}")
        cursor.close()

    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
