"""What raw sqlite3 does with the gateway's own rows, in a copy of its file: the limit of what a store can do."""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -65536")
"""Those of the gateway."""


@contextlib.contextmanager
def open_bare(database: Path, bare: Path, tables: Sequence[str]) -> Iterator[sqlite3.Connection]:
    """The gateway's own schema and indexes, without rows in these tables, of which later ones refer to earlier ones."""
    with contextlib.closing(sqlite3.connect(database)) as source, contextlib.closing(sqlite3.connect(bare)) as copy:
        source.backup(copy)
        for table in reversed(tables):
            copy.execute(f"DELETE FROM {table}")  # noqa: S608
        copy.commit()
        copy.execute("VACUUM")
    with contextlib.closing(sqlite3.connect(bare, isolation_level=None)) as connection:
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        yield connection


def read_rows(database: Path, wanted: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Of the gateway's file, by table those for which its condition holds."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table} WHERE {where}", values).fetchall()  # noqa: S608
            for table, where in wanted.items()
        }


def write_rows(connection: sqlite3.Connection, rows: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    """By table, with a commit."""
    connection.execute("BEGIN IMMEDIATE")
    for table, found in rows.items():
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(found[0]))})", found)  # noqa: S608
    connection.execute("COMMIT")
