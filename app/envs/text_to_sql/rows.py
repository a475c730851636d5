"""Rows of Spider and BIRD: a question, its right query, and the SQLite file beside them that the question is about.

Files are only ever read. An answer is right if its result is that of the right query, on the database and on a second
state of it: a copy in memory without a quarter of its rows, on which a query with literal values in it fails. Rows that
the right query's order does not tell apart may come in any order.
A large database has no second state. Rows whose query cannot be run, or gives nothing, are left out with a warning.
"""

import logging
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from app.domain.errors import EnvironmentUnavailable
from app.domain.tasks import Dataset
from app.domain.values import MEBIBYTE, Split, digest, remember
from app.envs.text_to_sql.databases import LONGEST_TEXT
from app.envs.text_to_sql.exercises import (
    QueryRefused,
    QueryStopped,
    ResultRows,
    choose_mismatch_message,
    is_same_in_groups,
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
_LEFT: Final = 4
"""One row in so many is kept of what refers to deleted rows; a table between two others keeps .75³ by itself."""
# Real databases have longer texts and wider tables than generated ones.
_LARGER: Final = {sqlite3.SQLITE_LIMIT_LENGTH: LONGEST_TEXT, sqlite3.SQLITE_LIMIT_COLUMN: 2_000}


def find_row_fault(path: str, query: str, in_order: bool, answer: str) -> str:
    """What is wrong with the answer; empty if its result is that of the right query, on the database and on a second
    state of it. Runs in a worker: `answer` is untrusted. ValueError when the right query itself fails."""
    changed_at = Path(path).stat().st_mtime_ns
    right = _compute_right_results(path, changed_at, query, in_order)
    text = strip_fence(answer)
    for number, expected in enumerate(right):
        with closing(_open_state(path, changed_at, second=number == 1)) as database:
            try:
                result = run_query(database, text, len(expected.rows) + 1, ROW_STEPS, _ROW_SECONDS)
            except QueryRefused as refused:
                return str(refused)
        if not is_same_in_groups(expected.groups, result, expected.spare):
            return choose_mismatch_message(expected.rows, result)
    return ""


@dataclass(frozen=True)
class _RightResult:
    """`groups` are the rows in their order, those together that the order does not tell apart; `spare` says how many of
    the last group are beyond the limit."""

    rows: ResultRows
    groups: Sequence[ResultRows]
    spare: int = 0


@remember(16 * MEBIBYTE)
def _compute_right_results(path: str, changed_at: int, query: str, in_order: bool) -> tuple[_RightResult, ...]:
    """On the database, and on its second state where there is one and the query gives something on it. `changed_at` is
    there to forget the results of a file that was replaced."""
    with closing(_open_state(path, changed_at, second=False)) as database:
        try:
            right = _compute_right_result(database, query, in_order)
        except QueryRefused as refused:
            raise ValueError(f"the right query cannot be run: {refused}") from refused
    if not right.rows or len(right.rows) > _MOST_RESULT_ROWS:
        raise ValueError(f"the right query gives {'no' if not right.rows else 'too many'} rows")
    if Path(path).stat().st_size > _MOST_COPIED:
        return (right,)
    with closing(_open_state(path, changed_at, second=True)) as database:
        try:
            changed = _compute_right_result(database, query, in_order)
        except QueryRefused:  # fewer rows may break a query, such as one that divides by a count
            return (right,)
    return (right, changed) if changed.rows else (right,)


def _compute_right_result(database: sqlite3.Connection, query: str, in_order: bool) -> _RightResult:
    rows = run_query(database, query, _MOST_RESULT_ROWS + 1, ROW_STEPS, _ROW_SECONDS)
    if not in_order or len(rows) > _MOST_RESULT_ROWS:
        return _RightResult(rows, [rows])
    return _group_ties(database, query, rows) or _RightResult(rows, [[row] for row in rows])


def _group_ties(database: sqlite3.Connection, query: str, rows: ResultRows) -> _RightResult | None:
    """The rows by what they are ordered by. None where the query does not show it."""
    keyed = add_sort_keys(query)
    if keyed is None:
        return None
    try:
        found = run_query(database, keyed.query, _MOST_RESULT_ROWS + 1, ROW_STEPS, _ROW_SECONDS)
    except QueryRefused:
        return None
    width = len(rows[0]) if rows else 0
    if len(found) > _MOST_RESULT_ROWS or any(keyed.count and len(row) != width + keyed.count for row in found):
        return None
    groups: list[ResultRows] = []
    taken = 0
    keys: list[tuple[object, ...]] = []
    for row in found:
        key = (*(row[place] for place in keyed.places if place < width), *row[width:])
        if not keys or key != keys[-1]:
            if taken >= len(rows):
                break
            keys.append(key)
            groups.append([])
        groups[-1].append(row[:width])
        taken += 1
    if len(groups) != len(set(keys)):  # it is ordered by something else
        return None
    spare = taken - len(rows)
    if spare and spare > len(groups[-1]) - spare:  # so few of so many: a query for other rows could hit them
        return None
    return _RightResult(rows, groups, spare) if is_same_in_groups(groups, rows, spare) else None


def _open_state(path: str, changed_at: int, *, second: bool) -> sqlite3.Connection:
    if not second:
        return _open_row_database(Path(path))
    state = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    state.deserialize(_make_second_state(path, changed_at))
    return _restrict(state)


@remember(64 * MEBIBYTE, keeps_last=True)
def _make_second_state(path: str, changed_at: int) -> bytes:
    """Answers of a group, and often those of the next one, are about the same file."""
    with closing(_copy_with_fewer_rows(path)) as copy:
        state = bytearray(copy.serialize())
    state[18:20] = b"\1\1"  # of no file with a log of writes, which cannot be opened in memory
    return bytes(state)


def _copy_with_fewer_rows(path: str) -> sqlite3.Connection:
    """In memory, without a quarter of the rows of each table, always the same ones, and without the rows that refer to
    one of these: what joins along a key must give the same as without the join, as it does in the database. But they
    stay where few rows would: a state in which most queries give nothing tells no answers apart."""
    copy = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    with closing(_connect(Path(path))) as file:
        file.backup(copy)
    copy.execute("PRAGMA temp_store = MEMORY")
    copy.execute("PRAGMA foreign_keys = OFF")  # neither these nor triggers may remove or keep other rows
    for (trigger,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        copy.execute(f"DROP TRIGGER {_quote(trigger)}")
    tables = _list_tables(copy)
    orphans = [_Orphans(number, *key) for number, key in enumerate(_list_foreign_keys(copy, tables))]
    kept = [one for one in orphans if one.remember(copy)]
    followed: list[_Orphans] = []
    for one in kept:
        followed += [] if one.closes_circle(followed) else [one]
    rows = {one.table: one.count(copy) for one in kept}
    for table in tables:
        # Multiplied by Knuth's constant, so that the missing rows follow no pattern of the row numbers.
        try:
            copy.execute(f"DELETE FROM {_quote(table)} WHERE (rowid * 2654435761) % 7919 % 4 = 1")  # noqa: S608  # quoted
        except sqlite3.Error:  # a view, or a table without row numbers, stays as it is
            continue
    while any([one.delete(copy, rows[one.table]) for one in followed]):  # each may leave others without a parent
        pass
    for one in kept:
        if one not in followed:
            one.clear(copy)
        copy.execute(f"DROP TABLE temp.{one.name}")
    return copy


@dataclass(frozen=True)
class _Orphans:
    """Rows of `table` that refer by `columns` to rows of `parent` that are not there."""

    number: int
    table: str
    columns: tuple[str, ...]
    parent: str
    referred: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"atropos_orphans_{self.number}"

    @property
    def _condition(self) -> str:
        ours, theirs = (", ".join(map(_quote, names)) for names in (self.columns, self.referred))
        known = " AND ".join(f"{_quote(name)} IS NOT NULL" for name in self.columns)
        there = " AND ".join(f"{_quote(name)} IS NOT NULL" for name in self.referred)
        parent = f"SELECT {theirs} FROM main.{_quote(self.parent)} WHERE {there}"  # noqa: S608  # quoted
        return f"{known} AND ({ours}) NOT IN ({parent})"

    def remember(self, copy: sqlite3.Connection) -> bool:
        """Real databases have some from the beginning; those stay. False where the key cannot be followed."""
        try:
            copy.execute(
                f"CREATE TEMP TABLE {self.name} AS SELECT rowid AS place FROM main.{_quote(self.table)}"  # noqa: S608
                f" WHERE {self._condition}"
            )
        except sqlite3.Error:
            return False
        return True

    def count(self, copy: sqlite3.Connection) -> int:
        row: tuple[int] = copy.execute(f"SELECT count(*) FROM main.{_quote(self.table)}").fetchone()  # noqa: S608
        return row[0]

    def closes_circle(self, followed: Sequence["_Orphans"]) -> bool:
        """Whether what it refers to refers to its table, itself or along these keys."""
        reached, found = set[str](), {self.parent.lower()}
        while found - reached:
            reached |= found
            found = {one.parent.lower() for one in followed if one.table.lower() in reached}
        return self.table.lower() in reached

    def delete(self, copy: sqlite3.Connection, rows: int) -> bool:
        """Whether there were any new ones, in a table that had so many rows."""
        copy.execute("SAVEPOINT deleted")
        deleted = copy.execute(f"DELETE FROM main.{_quote(self.table)} WHERE {self._new}").rowcount > 0  # noqa: S608
        if deleted and self.count(copy) * _LEFT < rows:
            copy.execute("ROLLBACK TO deleted")
            deleted = False
        copy.execute("RELEASE deleted")
        return deleted

    def clear(self, copy: sqlite3.Connection) -> None:
        """Rows that refer to each other in a circle hang on few, as employees do on managers: not they are deleted but
        what they refer by, where it can be."""
        column = _quote(self.columns[-1])
        with suppress(sqlite3.Error):
            copy.execute(f"UPDATE OR IGNORE main.{_quote(self.table)} SET {column} = NULL WHERE {self._new}")  # noqa: S608

    @property
    def _new(self) -> str:
        return f"{self._condition} AND rowid NOT IN (SELECT place FROM temp.{self.name})"  # noqa: S608  # quoted


def _list_foreign_keys(
    database: sqlite3.Connection, tables: Sequence[str]
) -> list[tuple[str, tuple[str, ...], str, tuple[str, ...]]]:
    """Of each: the table, its columns, the table that they refer to, and the columns there."""
    found: list[tuple[str, tuple[str, ...], str, tuple[str, ...]]] = []
    for table in tables:
        keys: dict[int, list[tuple[str, str, str | None]]] = {}
        for number, _, parent, ours, theirs, *_ in database.execute(f"PRAGMA foreign_key_list({_quote(table)})"):
            keys.setdefault(number, []).append((parent, ours, theirs))
        for pairs in keys.values():
            parent = pairs[0][0]
            referred = tuple(theirs for _, _, theirs in pairs if theirs is not None)
            if not referred:  # the primary key, where none is named
                columns = database.execute(f"PRAGMA table_info({_quote(parent)})").fetchall()
                referred = tuple(str(one[1]) for one in sorted(columns, key=lambda one: int(one[5])) if one[5])
            if len(referred) == len(pairs):
                found.append((table, tuple(ours for _, ours, _ in pairs), parent, referred))
    return found


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


@remember(8 * MEBIBYTE)
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


# What a query is ordered by.

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)
_INNERMOST: Final = re.compile(r"\([^()]*\)")
_ORDER_BY: Final = re.compile(r"\border\s+by\b", re.IGNORECASE)
_LIMIT: Final = re.compile(r"\blimit\b", re.IGNORECASE)
_OFFSET: Final = re.compile(r"\boffset\b|,", re.IGNORECASE)
_COMPOUND: Final = re.compile(r"\b(?:union|intersect|except|values)\b", re.IGNORECASE)
_SELECT: Final = re.compile(r"\bselect\b(\s+distinct\b)?", re.IGNORECASE)
_FROM: Final = re.compile(r"\bfrom\b", re.IGNORECASE)
_DIRECTION: Final = re.compile(r"\s+(?:asc|desc)\s*\Z", re.IGNORECASE)
_UNUSUAL: Final = re.compile(r"\bcollate\b|\bnulls\b", re.IGNORECASE)
_ALIAS: Final = re.compile(
    r"(?:\bas\s+|\)\s*|\A(?!(?:not|distinct)\b)[\w.]+\s+)([\"`\[]?)(\w+)[\"`\]]?\s*\Z", re.IGNORECASE
)
"""Without `AS` only behind a bracket or a column: the `b` of `a + b` is none."""


def asks_for_order(query: str) -> bool:
    """Whether the whole query is ordered, not a part in brackets."""
    return _ORDER_BY.search(_hide_parts(query)) is not None


def _hide_parts(query: str) -> str:
    """The query with blanks in place of texts, comments and what is in brackets: each sign stays in its place."""
    text = _QUOTED.sub(lambda part: "\x00" * len(part[0]) if part[0][0] not in "-/" else " " * len(part[0]), query)
    while (shorter := _INNERMOST.sub(lambda part: "\x00" * len(part[0]), text)) != text:
        text = shorter
    return text


@dataclass(frozen=True)
class KeyedQuery:
    """A query without its limit, whose last `count` columns are what it is ordered by; so are those at `places`."""

    query: str
    places: tuple[int, ...]
    count: int


def add_sort_keys(query: str) -> KeyedQuery | None:
    """None for a query of another form than `SELECT … ORDER BY … [LIMIT n]`."""
    text = query.rstrip().rstrip(";")
    plain = _hide_parts(text)
    order, select = _ORDER_BY.search(plain), _SELECT.search(plain)
    source = _FROM.search(plain, select.end()) if select is not None else None
    if order is None or select is None or source is None or order.start() < source.start() or _COMPOUND.search(plain):
        return None
    limit = _LIMIT.search(plain, order.end())
    end = limit.start() if limit is not None else len(text)
    if _UNUSUAL.search(plain, order.end(), end) or (limit is not None and _OFFSET.search(plain, limit.end())):
        return None
    outputs = _split_list(text, plain, select.end(), source.start())
    if any(one == "*" or one.endswith(".*") for one in outputs):
        return None if select[1] else _add_keys(text, plain, order, source, end, outputs=[])
    return _add_keys(text, plain, order, source, end, outputs, distinct=bool(select[1]))


def _add_keys(
    text: str,
    plain: str,
    order: re.Match[str],
    source: re.Match[str],
    end: int,
    outputs: Sequence[str],
    *,
    distinct: bool = False,
) -> KeyedQuery | None:
    places: list[int] = []
    added: list[str] = []
    for term in _split_list(text, plain, order.end(), end):
        place = _find_output(_DIRECTION.sub("", term), outputs)
        if place is not None:
            places.append(place)
        elif term[:1].isdigit() or distinct:  # more columns would be other rows
            return None
        else:
            added.append(f"({_DIRECTION.sub('', term)})")
    keys = "".join(f", {one}" for one in added)
    keyed = f"{text[: source.start()].rstrip()}{keys} {text[source.start() : end].rstrip()}"
    return KeyedQuery(keyed, tuple(places), len(added))


def _find_output(term: str, outputs: Sequence[str]) -> int | None:
    """The column of the result that a term of the order names: by its number, its name or its text."""
    if term.isdigit():
        return int(term) - 1 if 0 < int(term) <= len(outputs) else None
    for place, output in enumerate(outputs):
        alias = _ALIAS.search(output)
        if _fold_blanks(output) == _fold_blanks(term) or (alias and alias[2].lower() == term.strip('"`[]').lower()):
            return place
    return None


def _fold_blanks(text: str) -> str:
    return "".join(text.split()).lower() if "'" not in text else text


def _split_list(text: str, plain: str, start: int, end: int) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts: list[str] = []
    while (comma := plain.find(",", start, end)) >= 0:
        parts.append(text[start:comma].strip())
        start = comma + 1
    return [*parts, text[start:end].strip()]
