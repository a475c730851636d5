"""Rows of Spider and BIRD: a question, its right query, and the SQLite file beside them that the question is about.

Files are only ever read. An answer is right if its result is that of the right query, on the database and on a second
state of it: a copy in memory without a quarter of its rows, on which a query with literal values in it fails.
A large database has no second state. Rows whose query cannot be run, or gives nothing, are left out with a warning.
"""

import logging
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from app.domain.errors import EnvironmentUnavailable
from app.domain.tasks import Dataset
from app.domain.values import Split, digest
from app.envs.text_to_sql.exercises import (
    QueryRefused,
    QueryStopped,
    ResultRows,
    choose_mismatch_message,
    is_same_result,
    restrict_database,
    run_query,
    strip_fence,
)

ROW_STEPS: Final = 300_000_000
_ROW_SECONDS: Final = 10.0
"""Processor time of one query."""
_MOST_RESULT_ROWS: Final = 20_000
"""Most rows of a right result."""
_MOST_COPIED: Final = 16 * 1024 * 1024
"""Bytes of a database of which a second state is made."""
# Real databases have longer texts and wider tables than generated ones.
_LARGER: Final = {sqlite3.SQLITE_LIMIT_LENGTH: 10_000_000, sqlite3.SQLITE_LIMIT_COLUMN: 2_000}


def find_row_fault(path: str, query: str, in_order: bool, answer: str) -> str:
    """What is wrong with the answer; empty if its result is that of the right query, on the database and on a second
    state of it. Runs in a worker: `answer` is untrusted. ValueError when the right query itself fails."""
    right = _compute_right_results(path, Path(path).stat().st_mtime_ns, query)
    text = strip_fence(answer)
    for number, rows in enumerate(right):
        with closing(_open_state(path, second=number == 1)) as database:
            try:
                result = run_query(database, text, len(rows) + 1, ROW_STEPS, _ROW_SECONDS)
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
            right = run_query(database, query, _MOST_RESULT_ROWS + 1, ROW_STEPS, _ROW_SECONDS)
        except QueryRefused as refused:
            raise ValueError(f"the right query cannot be run: {refused}") from refused
    if not right or len(right) > _MOST_RESULT_ROWS:
        raise ValueError(f"the right query gives {'no' if not right else 'too many'} rows")
    if Path(path).stat().st_size > _MOST_COPIED:
        return (right,)
    with closing(_open_state(path, second=True)) as database:
        try:
            changed = run_query(database, query, _MOST_RESULT_ROWS + 1, ROW_STEPS, _ROW_SECONDS)
        except QueryRefused:  # fewer rows may break a query, such as one that divides by a count
            return (right,)
    return (right, changed) if changed else (right,)


def _open_state(path: str, *, second: bool) -> sqlite3.Connection:
    return _restrict(_copy_with_fewer_rows(path)) if second else _open_row_database(Path(path))


def _copy_with_fewer_rows(path: str) -> sqlite3.Connection:
    """In memory, without a quarter of the rows of each table, always the same ones."""
    copy = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    with closing(_connect(Path(path))) as file:
        file.backup(copy)
    copy.execute("PRAGMA foreign_keys = OFF")  # neither these nor triggers may remove or keep other rows
    for (trigger,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        copy.execute(f"DROP TRIGGER {_quote(trigger)}")
    for table in _list_tables(copy):
        # Multiplied by Knuth's constant, so that the missing rows follow no pattern of the row numbers.
        try:
            copy.execute(f"DELETE FROM {_quote(table)} WHERE (rowid * 2654435761) % 7919 % 4 = 1")  # noqa: S608  # quoted
        except sqlite3.Error:  # a view, or a table without row numbers, stays as it is
            continue
    return copy


def _open_row_database(file: Path) -> sqlite3.Connection:
    """Read-only and with limits."""
    return _restrict(_connect(file))


def _list_tables(database: sqlite3.Connection) -> list[str]:
    database.set_authorizer(None)  # a restricted connection may not read the list of its tables
    rows = database.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    )
    return [str(name) for (name,) in rows]


def _read_schema(database: sqlite3.Connection) -> Sequence[str]:
    """The statements that made the tables."""
    database.set_authorizer(None)
    rows = database.execute(
        "SELECT sql FROM sqlite_master WHERE type IN ('table', 'view') AND sql IS NOT NULL"
        " AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    )
    return [str(statement) for (statement,) in rows]


def _connect(file: Path) -> sqlite3.Connection:
    # `immutable` takes no locks and makes no files beside the database, so its folder may be read-only.
    where = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(where, uri=True, isolation_level=None, cached_statements=0)


def _restrict(database: sqlite3.Connection) -> sqlite3.Connection:
    database.execute("PRAGMA temp_store = MEMORY")
    restrict_database(database, _list_tables(database), _LARGER)
    return database


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# The rows, and what a prompt shows of their databases.

log = logging.getLogger(__name__)

_TRIED_STEPS: Final = 1_000_000
"""Of a right query, when the rows are read: enough for the first row of most."""
_FILE_PATTERNS: Final = ("{0}/{0}.sqlite", "database/{0}/{0}.sqlite", "dev_databases/{0}/{0}.sqlite", "{0}.sqlite")
_DIFFICULTIES: Final = {"simple": "easy", "moderate": "medium", "challenging": "hard"}
_SHOWN_CHARACTERS: Final = 20_000
_CELL_CHARACTERS: Final = 60
_SAMPLED: Final = 3

_DatabaseName = Annotated[str, Field(pattern=r"^\w[\w .-]*$", max_length=100)]
"""No path. With the length in it the pattern takes 10 MB: all letters of Unicode, once for each place."""


class SqlRow(BaseModel):
    """Spider calls the query `query`, BIRD `SQL`."""

    model_config = ConfigDict(frozen=True)

    db_id: _DatabaseName
    question: Annotated[str, Field(min_length=1)]
    query: Annotated[str, Field(min_length=1, validation_alias=AliasChoices("query", "SQL"))]
    evidence: str = ""
    difficulty: str = ""

    @property
    def task_text(self) -> str:
        return (
            f"{self.question.strip()}\n\nTo know: {self.evidence.strip()}" if self.evidence.strip() else self.question
        )

    @property
    def level(self) -> str | None:
        return _DIFFICULTIES.get(self.difficulty)


@dataclass(frozen=True)
class DatabaseText:
    """What a prompt says of a database."""

    schema: str
    rows: str


class SqlDatabases:
    """The databases of a data set, and the rows whose query gives something on them."""

    def __init__(self, dataset: Dataset[SqlRow]) -> None:
        """Tries every right query. EnvironmentUnavailable where a database is missing or cannot be read."""
        self._rows = dataset.splits
        self._files: dict[str, Path] = {}
        self.left_out: dict[Split, Counter[str]] = {split: Counter() for split in dataset.splits}
        self._used: dict[Split, list[int]] = {}
        for split, rows in dataset.splits.items():
            used = self._used[split] = []
            for index, row in enumerate(rows):
                if row.db_id not in self._files:
                    self._files[row.db_id] = _find_database(dataset, row.db_id)
                if problem := _try_query(self._files[row.db_id], row.query):
                    self.left_out[split][problem] += 1
                else:
                    used.append(index)
        self.digest = digest({name: _describe_file(file) for name, file in sorted(self._files.items())})

    def log_left_out(self, origin: str) -> None:
        for split, counted in self.left_out.items():
            for reason, count in counted.items():
                log.warning("%s: %d rows of %s left out: %s", origin, count, split, reason)

    def count_rows(self, split: Split) -> int:
        return len(self._used.get(split, ()))

    def find_index(self, split: Split, position: int) -> int:
        return self._used[split][position]

    def get_file(self, name: str) -> Path | None:
        return self._files.get(name)

    def write_database(self, name: str) -> DatabaseText:
        return _write_database(str(self._files[name]))


def _find_database(dataset: Dataset[SqlRow], name: str) -> Path:
    if dataset.folder is None:
        raise EnvironmentUnavailable(f"{dataset.origin}: set `files` to the folder of its databases")
    files = [dataset.folder / pattern.format(name) for pattern in _FILE_PATTERNS]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise EnvironmentUnavailable(
            f"{dataset.origin}: there is no database {name}: {_FILE_PATTERNS[0].format(name)} is missing"
        )
    try:
        with closing(_open_row_database(file)) as database:
            _list_tables(database)
    except sqlite3.Error as error:
        raise EnvironmentUnavailable(f"{dataset.origin}: {file.name} cannot be read: {error}") from error
    return file


def _try_query(file: Path, query: str) -> str:
    """Why no reply could be right; empty if the query gives a row, or takes too long to say."""
    with closing(_open_row_database(file)) as database:
        try:
            rows = run_query(database, query, 1, _TRIED_STEPS, _ROW_SECONDS)
        except QueryStopped:
            return ""
        except QueryRefused as refused:
            return f"its query cannot be run: {refused}"
    return "" if rows else "its query gives no rows"


def _describe_file(file: Path) -> list[str | int]:
    """A database of gigabytes is not read for its digest: its size and its tables stand for it."""
    with closing(_open_row_database(file)) as database:
        return [file.stat().st_size, *_read_schema(database)]


@lru_cache(maxsize=256)
def _write_database(path: str) -> DatabaseText:
    with closing(_open_row_database(Path(path))) as database:
        database.set_authorizer(None)
        samples = [_write_sample(database, table) for table in _list_tables(database)]
        schema = "\n\n".join(f"{statement};" for statement in _read_schema(database))
    return DatabaseText(_cut(schema), _cut("\n\n".join(samples)))


def _write_sample(database: sqlite3.Connection, table: str) -> str:
    with closing(database.execute(f"SELECT * FROM {_quote(table)} LIMIT {_SAMPLED}")) as cursor:  # noqa: S608  # quoted
        names = [column[0] for column in cursor.description]
        lines = [" | ".join(map(_write_cell, row)) for row in cursor]
    return "\n".join([f"{table}:", " | ".join(names), *lines])


def _write_cell(cell: object) -> str:
    text = "NULL" if cell is None else f"{len(cell)} bytes" if isinstance(cell, bytes) else str(cell)
    return text if len(text) <= _CELL_CHARACTERS else f"{text[:_CELL_CHARACTERS]}…"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}\n… (cut off)"


_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)
_INNERMOST: Final = re.compile(r"\([^()]*\)")


def asks_for_order(query: str) -> bool:
    """Whether the whole query is ordered, not a part in brackets."""
    text = _QUOTED.sub(" ", query)
    while (shorter := _INNERMOST.sub(" ", text)) != text:
        text = shorter
    return re.search(r"\border\s+by\b", text, re.IGNORECASE) is not None
