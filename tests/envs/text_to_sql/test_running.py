"""Queries of strangers: what they may do, how far they come, what is said of failures, and which results are equal."""
# ruff: noqa: S608  # queries made of parts are what is tested

import sqlite3
import time

import pytest

from app.domain.values import Frozen
from app.envs.text_to_sql.databases import Cell
from app.envs.text_to_sql.exercises import QueryRefused, ResultRows, is_same_result, run_query, strip_fence
from tests.support.sql_questions import library
from tests.support.tables import read_table, unfold


class Tables(Frozen):
    reads: tuple[tuple[str, ResultRows], ...]
    refused: tuple[str, ...]
    ended: dict[str, tuple[str, ...]]
    fences: tuple[tuple[str, str], ...]
    formats: tuple[str, ...]
    functions: dict[str, Cell]
    results: tuple[tuple[ResultRows, ResultRows, bool, bool], ...]


TABLES = read_table(__file__, "running.yaml", Tables)

UNFIT = "it is no query that can be run here: "
FAILS = "it fails while it runs"
STEPS = "it needs more steps than a query may take"
NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000000000)"
LONG = "WITH RECURSIVE s(x, n) AS (SELECT 'a', 0 UNION ALL SELECT x || x, n + 1 FROM s WHERE n < 13)"


def outcome(query: str) -> ResultRows | str:
    with library() as database:
        try:
            return run_query(database, query, 4)
        except QueryRefused as refused:
            return str(refused)


@pytest.mark.parametrize(("query", "expected"), TABLES.reads)
def test_a_query_may_read(query: str, expected: ResultRows) -> None:
    assert outcome(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        *TABLES.refused,
        "SELECT " + "(" * 2_000 + "1" + ")" * 2_000,
        "SELECT 1" + " + 1" * 2_000,
        "SELECT " + "1, " * 2_000 + "1",
        "SELECT 1" + " UNION SELECT 1" * 500,
        "SELECT * FROM " + "(SELECT * FROM " * 300 + "books" + ")" * 300,
        "SELECT id FROM books WHERE id = " + "1" * 20_000,
    ],
)
def test_what_is_no_query_or_may_not_be_done_is_refused(query: str) -> None:
    with library() as database, pytest.raises(QueryRefused, match=f"^{UNFIT}"):
        run_query(database, query, 4)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        *unfold(TABLES.ended),
        (f"{NUMBERS} SELECT COUNT(*) FROM n", STEPS),
        (f"{NUMBERS} SELECT x FROM n ORDER BY -x", STEPS),
        ("SELECT COUNT(*) FROM " + ", ".join(f"books AS b{place}" for place in range(30)), STEPS),
        (f"{LONG} SELECT COUNT(*) FROM s a, s b, s c, s d, s e, s f WHERE a.x || b.x > c.x", STEPS),
        (f"{LONG} SELECT group_concat(a.x) FROM s a, s b", FAILS),
        ("SELECT " + " || ".join(["replace('" + "a" * 500 + "', 'a', '" + "b" * 60 + "')"] * 2), FAILS),
        ("SELECT title LIKE '" + "%a" * 100 + "' FROM books", FAILS),
    ],
)
def test_what_goes_too_far_is_ended(query: str, expected: str) -> None:
    assert outcome(query) == expected


def test_a_pattern_takes_no_more_than_a_moment() -> None:
    queries = [f"{LONG} SELECT COUNT(*) FROM s WHERE x {how} '{'%a' * 49}b'" for how in ("LIKE", "GLOB")]
    assert [outcome(query) for query in queries] == [[(0,)]] * 2


def test_a_database_is_as_it_was() -> None:
    with library() as database:
        for query in ("DELETE FROM books", "PRAGMA query_only = OFF", "SELECT 1; DELETE FROM books"):
            with pytest.raises(QueryRefused):
                run_query(database, query, 4)
        assert run_query(database, "SELECT COUNT(*) FROM books", 4) == [(3,)]


def test_nothing_can_be_written_even_without_the_authorizer() -> None:
    with library() as database:
        database.set_authorizer(None)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            database.execute("DELETE FROM books")


@pytest.mark.parametrize(("answer", "expected"), TABLES.fences)
def test_a_fence_is_taken_off(answer: str, expected: str) -> None:
    assert strip_fence(answer) == expected


@pytest.mark.parametrize("query", TABLES.formats)
def test_formats_that_would_make_long_texts_fail(query: str) -> None:
    with library() as database, pytest.raises(QueryRefused, match=f"^{FAILS}"):
        run_query(database, query, 10)


@pytest.mark.parametrize(("expression", "value"), [*TABLES.functions.items()])
def test_functions_of_values_alone_may_be_used(expression: str, value: Cell) -> None:
    with library() as database:
        assert run_query(database, f"SELECT {expression}", 10) == [(value,)]


@pytest.mark.parametrize(
    ("right", "result", "in_order", "expected"),
    [
        *TABLES.results,
        ([(0.1 + 0.2,), (0.3,)], [(0.3,), (0.3,)], False, True),
        ([(0.1 + 0.2, "b"), (0.3, "a")], [(0.3, "b"), (0.1 + 0.2, "a")], False, True),
        ([(1e9,)], [(1e9 + 2,)], False, False),
    ],
)
def test_results_are_the_same_by_value(right: ResultRows, result: ResultRows, in_order: bool, expected: bool) -> None:
    assert is_same_result(right, result, in_order) == expected


def test_a_long_result_is_compared_in_linear_time() -> None:
    took: list[float] = []
    for count in (4_000, 64_000):
        rows: ResultRows = [(number,) for number in range(count)]
        start = time.process_time()
        assert is_same_result(rows, rows, in_order=True)
        took.append(time.process_time() - start)
    assert took[1] < 16 * 4 * took[0]
