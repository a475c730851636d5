"""Exercises: a schema, a question and the query that answers it, drawn from a seed; and what is wrong with an answer.

An answer is an untrusted query. It runs in a worker on both databases of its exercise, the shown and the hidden one. It
may only read their tables and call allowed functions: no other statement, file, clock or random number. Its work is
limited in steps of SQLite's virtual machine, so the limit is the same on every machine.

Results are compared by the position of columns, not by their names; rows in order if one was asked for, otherwise as a
multiset; rows that the asked order does not tell apart may come in any order. Numbers are equal by value: 2 and 2.0,
floats within a tolerance. A number written as text, which is how SQLite returns years, is that number only where the
right result has a number: a zip code is a text, and its zeros count.

An exercise is sound if its answer is certain and no plausible wrong query has the right results on both databases.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from math import isclose
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from app.domain.values import MEBIBYTE, remember
from app.envs.text_to_sql import join_questions, questions
from app.envs.text_to_sql.databases import (
    DATE_FUNCTIONS,
    HIDDEN,
    SHOWN,
    TEXT_FUNCTIONS,
    Cell,
    ComparedValues,
    DatabaseSchema,
    Level,
    Rows,
    draw_schema,
    generate_rows,
    list_compared_values,
)
from app.envs.text_to_sql.queries import (
    UNROUNDED,
    ColumnRef,
    Query,
    SetOperation,
    is_ordered,
    list_mutants,
    list_sources,
    render_sql,
)
from app.envs.text_to_sql.questions import QuestionBuilder, SqlQuestion, UnsuitableSchema
from app.toolkit.seeded import SeededRandom

_QuestionShape = Callable[[QuestionBuilder], SqlQuestion]

# A shape that stands several times is drawn as many times more often.
SHAPES: Final[dict[Level, Sequence[_QuestionShape]]] = {
    "first": (questions.listing_all, questions.counting_all),
    "easy": (
        questions.listing,
        join_questions.repeated_rows,
        join_questions.repeated_rows,
        join_questions.repeated_rows,
        join_questions.repeated_rows,
        questions.counting,
        questions.figure,
        questions.different,
        questions.first_ones,
        questions.in_order,
        questions.per_value,
        questions.known_ones,
        questions.per_year,
        questions.either,
    ),
    "medium": (
        questions.above_average,
        questions.having,
        questions.the_highest,
        join_questions.how_many_different,
        questions.not_that,
        join_questions.with_parent,
        join_questions.parents_of_rows,
        join_questions.parents_of_rows,
        join_questions.parents_of_rows,
        join_questions.parents_of_rows,
        join_questions.parents_of_rows,
        join_questions.parents_of_rows,
        join_questions.children_of_each,
        join_questions.at_least,
        join_questions.over_children,
        join_questions.without,
        join_questions.with_some,
        join_questions.by_value_of_parent,
        join_questions.lookup,
        join_questions.how_many_parents,
        join_questions.most_children,
        join_questions.known_figures,
    ),
    "hard": (
        join_questions.partners,
        join_questions.partners_at_least,
        join_questions.partners_of_rows,
        join_questions.partners_of_rows,
        join_questions.partners_of_rows,
        join_questions.partners_of_rows,
        join_questions.partners_of_rows,
        join_questions.partners_of_rows,
        join_questions.both,
        join_questions.one_but_not_other,
        join_questions.in_two_tables,
        join_questions.most_in_total,
        join_questions.only_such,
        join_questions.best_of_each,
        join_questions.above_overall,
        join_questions.such_of_each,
        join_questions.share,
        join_questions.two_counts,
        join_questions.pairs,
        join_questions.spread,
        join_questions.grandchildren,
    ),
}
MOST_ATTEMPTS = 500
"""Draws after which a seed gives up: few schemas fit some shapes."""


@dataclass(frozen=True)
class SqlExercise:
    schema: DatabaseSchema
    asked: SqlQuestion
    shape: str
    seed: str

    @cached_property
    def shown_rows(self) -> Rows:
        return generate_rows(self.schema, f"{self.seed} shown", SHOWN, self._compared_values)

    @cached_property
    def hidden_rows(self) -> Rows:
        return self.generate_hidden_rows()

    def generate_hidden_rows(self, needed: Collection[str] | None = None) -> Rows:
        """Those of all tables, or at least those of the tables that are `needed`."""
        return generate_rows(self.schema, f"{self.seed} hidden", HIDDEN, self._compared_values, needed)

    @cached_property
    def _compared_values(self) -> ComparedValues:
        return list_compared_values(self.asked.query)


@remember(4 * MEBIBYTE)
def draw_exercise(seed: str, level: Level) -> SqlExercise:
    """Pure. The shape is drawn first, so that shapes that few schemas fit are as frequent as others."""
    draws = SeededRandom(f"{seed} {level}")
    shape = draws.one(SHAPES[level])
    for _ in range(MOST_ATTEMPTS):
        schema = draw_schema(draws, level)
        try:
            return SqlExercise(schema, shape(QuestionBuilder(schema, draws)), shape.__name__, seed)
        except UnsuitableSchema:
            continue
    raise ValueError(f"no schema of {seed!r} fits {shape.__name__}")


# Comparison of query results.

ResultRows = list[tuple[Cell, ...]]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
"""A text with zeros before its digits is a code, as a month or a zip, and no number."""
_TOLERANCE = 1e-9
"""Sums of floats differ in their last digits with the order in which they are added up."""


def is_same_result(right: ResultRows, result: ResultRows, in_order: bool) -> bool:
    return is_same_in_groups([[row] for row in right] if in_order else [right], result)


def is_same_in_groups(right: Sequence[ResultRows], result: ResultRows, spare: int = 0) -> bool:
    """Whether the result has these groups one after the other, each in any order. `spare`: so many rows of the last
    group are too many, since a limit cuts it where nothing tells its rows apart."""
    rows = [row for group in right for row in group]
    if len(rows) - spare != len(result) or any(len(row) != len(rows[0]) for row in result):
        return False
    texts = [_TextColumn.read(column) for column in zip(*rows, strict=True)]
    found = [tuple(column.read_cell(cell) for column, cell in zip(texts, row, strict=True)) for row in result]
    place = 0
    for number, group in enumerate(right):
        count = len(group) - (spare if number == len(right) - 1 else 0)
        if not _is_same_multiset(group, found[place : place + count], len(group) - count):
            return False
        place += count
    return True


def _is_same_multiset(right: ResultRows, result: ResultRows, spare: int) -> bool:
    expected, found = sorted(right, key=_make_sort_key), sorted(result, key=_make_sort_key)
    if not spare:
        return all(map(_is_same_row, expected, found))
    place = 0
    for row in found:
        while place < len(expected) and not _is_same_row(expected[place], row):
            place += 1
        if place == len(expected):
            return False
        place += 1
    return True


class _TextColumn(NamedTuple):
    """What the right result says of a column: whether it has numbers, and which texts."""

    has_numbers: bool
    texts: frozenset[str]

    @classmethod
    def read(cls, cells: Sequence[Cell]) -> Self:
        return cls(
            any(isinstance(cell, int | float) for cell in cells),
            frozenset(cell for cell in cells if isinstance(cell, str)),
        )

    def read_cell(self, cell: Cell) -> Cell:
        if self.has_numbers and isinstance(cell, str) and cell not in self.texts and _NUMBER.fullmatch(cell):
            return float(cell)
        return cell


def _is_same_row(one: Sequence[Cell], other: Sequence[Cell]) -> bool:
    return len(one) == len(other) and all(map(_is_same_cell, one, other))


def _is_same_cell(one: Cell, other: Cell) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(one) is type(other) and one == other


def _make_sort_key(row: Sequence[Cell]) -> list[tuple[int, float, str]]:
    """Rows that differ only in the last digits of a float get the same key."""
    return [_rank_cell(cell) for cell in row]


def _rank_cell(cell: Cell) -> tuple[int, float, str]:
    if isinstance(cell, int | float):
        return (1, float(f"{cell:.9g}"), "")
    return (0, 0.0, "") if cell is None else (2, 0.0, str(cell))


# Untrusted queries.

_MOST_STEPS = 3_000_000
_SECONDS = 1.0
"""Processor time, for queries with few but long steps."""
_MOST_ROWS = 150
"""Most rows of a right result."""
_TOO_MUCH_MEMORY = "it needs more memory than a query may use"
_STEPS_AT_ONCE = 1_000
"""Steps between two looks at the limits."""
_ERROR_CHARACTERS = 160

# Memory and parsing of one query; what is 0 is not needed to read tables.
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
# What a question may need: nothing random, no files, no settings, no current time.
_FUNCTIONS: Final = {
    *DATE_FUNCTIONS,
    *TEXT_FUNCTIONS,
    "->",
    "->>",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "avg",
    "ceil",
    "ceiling",
    "char",
    "coalesce",
    "cos",
    "cosh",
    "count",
    "cume_dist",
    "degrees",
    "dense_rank",
    "exp",
    "first_value",
    "floor",
    "glob",
    "group_concat",
    "hex",
    "ifnull",
    "iif",
    "instr",
    "json",
    "json_array",
    "json_array_length",
    "json_extract",
    "json_group_array",
    "json_group_object",
    "json_object",
    "json_quote",
    "json_type",
    "json_valid",
    "lag",
    "last_value",
    "lead",
    "length",
    "like",
    "likely",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "max",
    "min",
    "mod",
    "nth_value",
    "ntile",
    "nullif",
    "percent_rank",
    "pi",
    "pow",
    "power",
    "quote",
    "radians",
    "rank",
    "replace",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "string_agg",
    "substr",
    "substring",
    "sum",
    "tan",
    "tanh",
    "total",
    "trim",
    "trunc",
    "typeof",
    "unicode",
    "unlikely",
    "upper",
}

_FENCED = re.compile(r"```(?:sql|sqlite)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL | re.IGNORECASE)
_LANGUAGE_LINE = re.compile(r"\A\s*(?:sql|sqlite)[ \t]*:?[ \t]*\r?\n", re.IGNORECASE)


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
    """The query without a code fence, or what is left of one: the name of the language on a line of its own."""
    fenced = _FENCED.fullmatch(answer.strip())
    return fenced[1] if fenced else _LANGUAGE_LINE.sub("", answer)


def open_database(schema: DatabaseSchema, rows: Rows) -> sqlite3.Connection:
    """A filled in-memory database, read-only and with limits."""
    database = _open_own_database(schema, rows)
    restrict_database(database, rows)
    return database


def restrict_database(
    database: sqlite3.Connection, tables: Iterable[str], larger: Mapping[int, int] = MappingProxyType({})
) -> None:
    """From here on only these tables can be read, and nothing else can be done. `larger`: other limits."""
    database.execute("PRAGMA query_only = ON")
    database.text_factory = _decode_text  # bytes that are no UTF-8 would raise where the result is read
    limits = {**_LIMITS, **larger}
    most = limits[sqlite3.SQLITE_LIMIT_LENGTH]
    functions = dict(DATE_FUNCTIONS)
    functions.update((name, partial(function, most)) for name, function in TEXT_FUNCTIONS.items())
    for name, function in functions.items():
        database.create_function(name, -1, function, deterministic=True)
    for limit, value in limits.items():
        database.setlimit(limit, value)
    database.set_authorizer(_allow_reading(frozenset(tables)))  # last, since it forbids the statements above


def _open_own_database(schema: DatabaseSchema, rows: Rows) -> sqlite3.Connection:
    """For queries of ours: with the tables of `rows` alone, and without limits."""
    database = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    database.executescript(f"PRAGMA temp_store = MEMORY; BEGIN; {schema.write_ddl(rows)}")
    for table, cells in rows.items():
        marks = ", ".join("?" * len(cells[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", cells)  # noqa: S608  # both are ours
    database.execute("COMMIT")
    return database


def run_query(
    database: sqlite3.Connection, text: str, most_rows: int, most_steps: int = _MOST_STEPS, seconds: float = _SECONDS
) -> ResultRows:
    """Raises if the text is not a query, is not allowed, or takes too long. `text` is untrusted."""
    # What SQLite says while it compiles a query is about the query alone and helps to see the mistake. What it says
    # while it runs one may quote a value, so that is not passed on.
    try:
        with closing(database.execute(f"EXPLAIN {text}")):
            pass
    except MemoryError as error:
        raise QueryRefused(_TOO_MUCH_MEMORY) from error
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise QueryRefused(f"it is no query that can be run here: {_replace_unprintable(str(error))}") from error
    return _run_statement(database, text, most_rows, _limit_steps(most_steps, time.process_time() + seconds))


def _run_own_query(database: sqlite3.Connection, text: str, most_rows: int, most_steps: int) -> ResultRows:
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
        raise QueryRefused(_TOO_MUCH_MEMORY) from error
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise QueryRefused("it fails while it runs") from error
    finally:
        database.set_progress_handler(None, 0)


@remember(8 * MEBIBYTE)
def compute_right_results(seed: str, level: Level) -> tuple[ResultRows, ResultRows]:
    """Results of the right query on both databases."""
    asked = draw_exercise(seed, level)
    text = render_sql(asked.asked.query)
    results = []
    for rows in (asked.shown_rows, asked.hidden_rows):
        with closing(open_database(asked.schema, rows)) as database:
            results.append(run_query(database, text, _MOST_ROWS + 1))
    return results[0], results[1]


def _allow_reading(tables: frozenset[str]) -> Callable[..., int]:
    def allows(action: int, one: str | None, other: str | None, *where: str | None) -> int:
        allowed = (
            action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)
            # a query that only counts rows names no column
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


# Soundness.

_STEPS = _MOST_STEPS // 10
"""A tenth of what an answer may take, so that right answers may be less efficient than ours."""
_LEAST_DISTANCE = 1e-6
"""Values to be rounded must be at least this far from half a cent, where ways to compute them differ."""


def is_sound(exercise: SqlExercise) -> bool:
    with ExitStack() as stack:
        databases: list[sqlite3.Connection] = []
        right: list[ResultRows | None] = []
        query = exercise.asked.query
        for rows in _iterate_rows(exercise):
            databases.append(stack.enter_context(closing(_open_own_database(exercise.schema, rows))))
            right.append(_run_or_none(databases[-1], render_sql(query)))
            if not _is_answer(query, right[-1]):
                return False
        hidden, shown = right
        if is_same_result(hidden or [], shown or [], is_ordered(query)):
            return False
        if not all(_has_one_order(database, query) for database in databases):
            return False
        exact = [render_sql(wrong) for name, wrong in list_wrong_queries(exercise) if name == UNROUNDED]
        if not all(_has_certain_rounding(_run_or_none(database, one)) for one in exact for database in databases):
            return False
        return not _has_unnoticed_fault(exercise, databases, right)


def _iterate_rows(exercise: SqlExercise) -> Iterator[Rows]:
    """The hidden and the shown rows, of the tables that a question and its wrong queries name."""
    needed = {source.table for source in list_sources((exercise.asked.query, *exercise.asked.traps))}
    for rows in (exercise.generate_hidden_rows(needed), exercise.shown_rows):
        yield {name: some for name, some in rows.items() if name in needed}


def list_wrong_queries(exercise: SqlExercise) -> Iterator[tuple[str, Query]]:
    yield from list_mutants(exercise.asked.query)
    for trap in exercise.asked.traps:
        yield "what this question invites", trap


def _has_unnoticed_fault(
    exercise: SqlExercise, databases: list[sqlite3.Connection], right: list[ResultRows | None]
) -> bool:
    """Whether a wrong query has the right result on both databases."""
    in_order = is_ordered(exercise.asked.query)
    for _, wrong in list_wrong_queries(exercise):
        text = render_sql(wrong)
        if all(
            expected is not None
            and (got := _run_or_none(database, text)) is not None
            and is_same_result(expected, got, in_order)
            for database, expected in zip(databases, right, strict=True)
        ):
            return True
    return False


def _run_or_none(database: sqlite3.Connection, text: str) -> ResultRows | None:
    try:
        return _run_own_query(database, text, _MOST_ROWS + 1, _STEPS)
    except QueryRefused:
        return None


def _is_answer(query: Query, result: ResultRows | None) -> bool:
    """Some rows, not too many, and NULL only where a table has it."""
    if not result or len(result) > _MOST_ROWS:
        return False
    outputs = (query.left if isinstance(query, SetOperation) else query).outputs
    computed = [index for index, output in enumerate(outputs) if not isinstance(output, ColumnRef)]
    return all(row[index] is not None for row in result for index in computed)


def _has_one_order(database: sqlite3.Connection, query: Query) -> bool:
    """Whether the requested order is unique, up to and including the first row beyond the limit."""
    if isinstance(query, SetOperation) or not query.order:
        return True
    more = None if query.limit is None else query.limit + 1  # a tie at the limit would leave two right results
    sort_keys_query = replace(query, outputs=tuple(order.by for order in query.order), limit=more)
    sort_keys = _run_or_none(database, render_sql(sort_keys_query))
    return sort_keys is not None and all(one != other for one, other in pairwise(sort_keys))


def _has_certain_rounding(result: ResultRows | None) -> bool:
    floats = [cell for row in result or () for cell in row if isinstance(cell, float)]
    return all(abs(abs(cell) * 100 % 1 - 0.5) > _LEAST_DISTANCE for cell in floats)
