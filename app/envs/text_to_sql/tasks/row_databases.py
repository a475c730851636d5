"""Databases of data sets, and what is wrong with an answer about one. Files are only ever read."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Final

from app.envs.text_to_sql.tasks.query_execution import (
    QueryRefused,
    choose_mismatch_message,
    restrict_database,
    run_query,
    strip_fence,
)
from app.envs.text_to_sql.tasks.result_comparison import ResultRows, is_same_result

ROW_STEPS: Final = 300_000_000
ROW_SECONDS: Final = 10.0
"""Processor time of one query."""
MOST_RESULT_ROWS: Final = 20_000
"""Most rows of a right result."""
MOST_COPIED: Final = 16 * 1024 * 1024
"""Bytes of a database of which a second state is made."""
_LARGER: Final = {sqlite3.SQLITE_LIMIT_LENGTH: 10_000_000, sqlite3.SQLITE_LIMIT_COLUMN: 2_000}


def find_row_fault(path: str, query: str, in_order: bool, answer: str) -> str:
    """What is wrong with the answer; empty if its result is that of the right query, on the database and on a second
    state of it. Runs in a worker: `answer` is untrusted. ValueError when the right query itself fails."""
    right = _compute_right_results(path, Path(path).stat().st_mtime_ns, query)
    text = strip_fence(answer)
    for place, rows in enumerate(right):
        with closing(_open_state(path, second=place == 1)) as database:
            try:
                result = run_query(database, text, len(rows) + 1, ROW_STEPS, ROW_SECONDS)
            except QueryRefused as refused:
                return str(refused)
        if not is_same_result(rows, result, in_order):
            return choose_mismatch_message(rows, result)
    return ""


@lru_cache(maxsize=16)
def _compute_right_results(path: str, changed_at: int, query: str) -> tuple[ResultRows, ...]:
    """On the database, and on its second state where there is one and the query gives something on it. `changed_at` is
    there to forget the results of a file that was replaced."""
    with closing(_open_state(path, second=False)) as database:
        try:
            right = run_query(database, query, MOST_RESULT_ROWS + 1, ROW_STEPS, ROW_SECONDS)
        except QueryRefused as refused:
            raise ValueError(f"the right query cannot be run: {refused}") from refused
    if not right or len(right) > MOST_RESULT_ROWS:
        raise ValueError(f"the right query gives {'no' if not right else 'too many'} rows")
    if Path(path).stat().st_size > MOST_COPIED:
        return (right,)
    with closing(_open_state(path, second=True)) as database:
        try:
            changed = run_query(database, query, MOST_RESULT_ROWS + 1, ROW_STEPS, ROW_SECONDS)
        except QueryRefused:
            return (right,)
    return (right, changed) if changed else (right,)


def _open_state(path: str, *, second: bool) -> sqlite3.Connection:
    return _restrict(_copy_with_fewer_rows(path)) if second else open_row_database(Path(path))


def _copy_with_fewer_rows(path: str) -> sqlite3.Connection:
    """In memory, without a quarter of the rows of each table, always the same ones."""
    copy = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    with closing(_connect(Path(path))) as file:
        file.backup(copy)
    copy.execute("PRAGMA foreign_keys = OFF")
    for (trigger,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        copy.execute(f"DROP TRIGGER {_quote(trigger)}")
    for table in list_tables(copy):
        try:
            copy.execute(f"DELETE FROM {_quote(table)} WHERE (rowid * 2654435761) % 7919 % 4 = 1")  # noqa: S608  # quoted
        except sqlite3.Error:  # a view, or a table without row numbers, stays as it is
            continue
    return copy


def open_row_database(file: Path) -> sqlite3.Connection:
    """Read-only and with limits."""
    return _restrict(_connect(file))


def list_tables(database: sqlite3.Connection) -> list[str]:
    database.set_authorizer(None)
    found = database.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    )
    return [str(name) for (name,) in found]


def read_schema(database: sqlite3.Connection) -> Sequence[str]:
    """The statements that made the tables."""
    database.set_authorizer(None)
    found = database.execute(
        "SELECT sql FROM sqlite_master WHERE type IN ('table', 'view') AND sql IS NOT NULL"
        " AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    )
    return [str(statement) for (statement,) in found]


def _connect(file: Path) -> sqlite3.Connection:
    where = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(where, uri=True, isolation_level=None, cached_statements=0)


def _restrict(database: sqlite3.Connection) -> sqlite3.Connection:
    database.execute("PRAGMA temp_store = MEMORY")
    restrict_database(database, list_tables(database), _LARGER)
    return database


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
