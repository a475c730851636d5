"""Runs untrusted queries on generated databases in a worker, and says what is wrong with their results.

A query may only read the tables of its schema and call allowed functions: no other statements, files, clock or random
numbers. Its work is limited in steps of SQLite's virtual machine, so the limit is the same everywhere.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from app.envs.text_to_sql.tasks.database_schemas import DatabaseSchema, Level
from app.envs.text_to_sql.tasks.query_ast import is_ordered
from app.envs.text_to_sql.tasks.query_sql import render_sql
from app.envs.text_to_sql.tasks.result_comparison import ResultRows, is_same_result
from app.envs.text_to_sql.tasks.row_generation import Cell, Rows
from app.envs.text_to_sql.tasks.sql_exercises import draw_exercise
from app.envs.text_to_sql.tasks.sqlite_dates import DATE_FUNCTIONS

MOST_STEPS = 3_000_000
SECONDS = 1.0
"""Processor time, for queries with few but long steps."""
MOST_ROWS = 150
"""Most rows of a right result."""
TOO_MUCH_MEMORY = "it needs more memory than a query may use"
_STEPS_AT_ONCE = 1_000
_ERROR_CHARACTERS = 160

_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_100,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 20,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_FUNCTIONS: Final = {
    *DATE_FUNCTIONS,
    "abs",
    "avg",
    "coalesce",
    "count",
    "cume_dist",
    "dense_rank",
    "first_value",
    "glob",
    "group_concat",
    "ifnull",
    "iif",
    "instr",
    "lag",
    "last_value",
    "lead",
    "length",
    "like",
    "lower",
    "ltrim",
    "max",
    "min",
    "nth_value",
    "ntile",
    "nullif",
    "percent_rank",
    "rank",
    "replace",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "substr",
    "substring",
    "sum",
    "total",
    "trim",
    "typeof",
    "upper",
}

_FENCED = re.compile(r"```(?:sql|sqlite)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL | re.IGNORECASE)


class QueryRefused(Exception):
    """The query gives no result; the message says why."""


class QueryStopped(QueryRefused):
    """It took more steps or processor time than it may."""


_NO_FAULT_OF_THE_QUERY: Final = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOTADB,
}
"""Primary result codes: the disk or the file is broken."""


def find_query_fault(seed: str, level: Level, answer: str) -> str:
    """What is wrong with the answer; empty if its results are right on both databases. The words reveal nothing of
    either. Runs in a worker: `answer` is untrusted."""
    asked = draw_exercise(seed, level)
    in_order = is_ordered(asked.asked.query)
    text = strip_fence(answer)
    for rows, right in zip((asked.shown_rows, asked.hidden_rows), compute_right_results(seed, level), strict=True):
        with closing(open_database(asked.schema, rows)) as database:
            try:
                result = run_query(database, text, len(right) + 1)
            except QueryRefused as refused:
                return str(refused)
        if not is_same_result(right, result, in_order):
            return choose_mismatch_message(right, result)
    return ""


def strip_fence(answer: str) -> str:
    """The query without a code fence."""
    fenced = _FENCED.fullmatch(answer.strip())
    return fenced[1] if fenced else answer


def open_database(schema: DatabaseSchema, rows: Rows) -> sqlite3.Connection:
    """A filled in-memory database, read-only and with limits."""
    database = open_own_database(schema, rows)
    restrict_database(database, rows)
    return database


def restrict_database(
    database: sqlite3.Connection, tables: Iterable[str], larger: Mapping[int, int] = MappingProxyType({})
) -> None:
    """From here on only these tables can be read, and nothing else can be done. `larger`: other limits."""
    database.execute("PRAGMA query_only = ON")
    database.text_factory = _decode_text
    for name, function in DATE_FUNCTIONS.items():
        database.create_function(name, -1, function, deterministic=True)
    for limit, value in {**_LIMITS, **larger}.items():
        database.setlimit(limit, value)
    database.set_authorizer(_allow_reading(frozenset(tables)))


def open_own_database(schema: DatabaseSchema, rows: Rows) -> sqlite3.Connection:
    """For queries of ours: with the tables of `rows` alone, and without limits."""
    database = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    database.executescript(f"PRAGMA temp_store = MEMORY; BEGIN; {schema.write_ddl(rows)}")
    for table, cells in rows.items():
        places = ", ".join("?" * len(cells[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({places})", cells)  # noqa: S608  # both are ours
    database.execute("COMMIT")
    return database


def run_query(
    database: sqlite3.Connection, text: str, most_rows: int, most_steps: int = MOST_STEPS, seconds: float = SECONDS
) -> ResultRows:
    """Raises if the text is not a query, is not allowed, or takes too long. `text` is untrusted."""
    try:
        with closing(database.execute(f"EXPLAIN {text}")):
            pass
    except MemoryError as error:
        raise QueryRefused(TOO_MUCH_MEMORY) from error
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise QueryRefused(f"it is no query that can be run here: {_replace_unprintable(str(error))}") from error
    return _run_statement(database, text, most_rows, _limit_steps(most_steps, time.process_time() + seconds))


def run_own_query(database: sqlite3.Connection, text: str, most_rows: int, most_steps: int) -> ResultRows:
    """As `run_query`, for queries of ours: they are known to be queries, and their steps to be short."""
    return _run_statement(database, text, most_rows, _limit_steps(most_steps))


def _run_statement(
    database: sqlite3.Connection, text: str, most_rows: int, should_stop: Callable[[], int]
) -> ResultRows:
    database.set_progress_handler(should_stop, _STEPS_AT_ONCE)
    try:
        with closing(database.execute(text)) as cursor:
            return [tuple(row) for row in cursor.fetchmany(most_rows)]
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_FAULT_OF_THE_QUERY:
            raise
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            raise QueryStopped("it needs more steps than a query may take") from error
        raise QueryRefused("it fails while it runs") from error
    except MemoryError as error:
        raise QueryRefused(TOO_MUCH_MEMORY) from error
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise QueryRefused("it fails while it runs") from error
    finally:
        database.set_progress_handler(None, 0)


@lru_cache(maxsize=32)
def compute_right_results(seed: str, level: Level) -> tuple[ResultRows, ResultRows]:
    """Results of the right query on both databases."""
    asked = draw_exercise(seed, level)
    text = render_sql(asked.asked.query)
    results = []
    for rows in (asked.shown_rows, asked.hidden_rows):
        with closing(open_database(asked.schema, rows)) as database:
            results.append(run_query(database, text, MOST_ROWS + 1))
    return results[0], results[1]


def _allow_reading(tables: frozenset[str]) -> Callable[..., int]:
    def allows(action: int, one: str | None, other: str | None, *where: str | None) -> int:
        allowed = (
            action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)
            or (action == sqlite3.SQLITE_READ and (one in tables or not other))
            or (action == sqlite3.SQLITE_FUNCTION and (other or "").lower() in _FUNCTIONS)
        )
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    return allows


def _limit_steps(most: int, until: float | None = None) -> Callable[[], int]:
    left = most // _STEPS_AT_ONCE

    def should_stop() -> int:
        nonlocal left
        left -= 1
        return int(left < 0 or (until is not None and time.process_time() > until))

    return should_stop


def choose_mismatch_message(right: Sequence[tuple[Cell, ...]], result: ResultRows) -> str:
    if result and len(result[0]) != len(right[0]):
        return "its result has other columns than the question asks for"
    return "its result is not what the question asks for"


def _decode_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _replace_unprintable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)[:_ERROR_CHARACTERS]
