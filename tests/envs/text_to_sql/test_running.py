"""Queries of strangers: what they may do, how far they come, what is said of failures, and which results are equal."""
# ruff: noqa: S608  # queries made of parts are what is tested

import sqlite3
import time

import pytest

from app.envs.text_to_sql.databases import Cell
from app.envs.text_to_sql.exercises import QueryRefused, ResultRows, is_same_result, run_query, strip_fence
from tests.support.sql_questions import library

UNFIT = "it is no query that can be run here: "
FAILS = "it fails while it runs"
STEPS = "it needs more steps than a query may take"
MEMORY = "it needs more memory than a query may use"
NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000000000)"
LONG = "WITH RECURSIVE s(x, n) AS (SELECT 'a', 0 UNION ALL SELECT x || x, n + 1 FROM s WHERE n < 13)"


def outcome(query: str) -> ResultRows | str:
    with library() as database:
        try:
            return run_query(database, query, 4)
        except QueryRefused as refused:
            return str(refused)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT title FROM books WHERE pages > 100", [("Old Sea",)]),
        ("SELECT title FROM books WHERE pages > 100;", [("Old Sea",)]),
        ("-- the longest\nSELECT title /* its name */ FROM books ORDER BY pages DESC LIMIT 1", [("Old Sea",)]),
        ("SELECT COUNT(*), COUNT(shelf) FROM books", [(3, 2)]),
        ("SELECT a.name FROM authors a LEFT JOIN books b ON b.author_id = a.id WHERE pages = 300", [("Ada Abel",)]),
        ("WITH long AS (SELECT * FROM books WHERE pages > 100) SELECT COUNT(*) FROM long", [(1,)]),
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT MAX(x) FROM n", [(3,)]),
        ("SELECT title, RANK() OVER (ORDER BY pages DESC) FROM books WHERE id < 3", [("Old Sea", 1), ("Red Door", 2)]),
        ("SELECT strftime('%Y', '2021-05-03'), date('2021-05-03', '+1 day')", [("2021", "2021-05-04")]),
        ("SELECT group_concat(id) FROM authors", [("1,2",)]),
        ("VALUES (1), (2)", [(1,), (2,)]),
        ("SELECT 1 FROM books UNION ALL SELECT 2 FROM books", [(1,), (1,), (1,), (2,)]),
        ("SELECT CAST(x'ff41' AS TEXT)", [("\ufffdA",)]),
    ],
)
def test_a_query_may_read(query: str, expected: ResultRows) -> None:
    assert outcome(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        *("DELETE FROM books", "UPDATE books SET pages = 0", "INSERT INTO authors VALUES (9, 'x', 1)"),
        *("DROP TABLE books", "CREATE TABLE x (y)", "CREATE TEMP TABLE x AS SELECT 1", "CREATE VIEW x AS SELECT 1"),
        *("ALTER TABLE books ADD COLUMN x", "PRAGMA query_only = OFF", "PRAGMA writable_schema"),
        *("ATTACH 'file' AS other", "DETACH main", "BEGIN", "COMMIT", "SAVEPOINT x", "REINDEX", "ANALYZE"),
        "SELECT * FROM sqlite_master",
        "SELECT * FROM pragma_table_info('books')",
        *("SELECT * FROM pragma_database_list", "SELECT * FROM json_each('[1]')", "SELECT load_extension('x')"),
        *("SELECT readfile('x')", "SELECT random()", "SELECT randomblob(1000000000)"),
        *("SELECT zeroblob(1000000000)", "SELECT total_changes()", "SELECT sqlite_source_id()"),
        *(
            "SELECT sqlite_compileoption_get(1)",
            "SELECT fts5('a')",
            "SELECT last_insert_rowid(), changes()",
            "SELECT sqlite_version()",
        ),
        *("SELECT CURRENT_TIMESTAMP", "SELECT CURRENT_DATE", "SELECT title FROM nothing"),
        *("SELECT author FROM books", "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE books", "EXPLAIN SELECT 1"),
        *("SELECT ?", "SELECT :name", "SELEC title FROM books", "-- nothing", "", "\x00", "SELECT '\x00'"),
        *("SELECT '\ud800'", "SELECT " + "(" * 2_000 + "1" + ")" * 2_000, "SELECT 1" + " + 1" * 2_000),
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
        ("VACUUM", FAILS),
        ("VACUUM INTO 'file'", FAILS),
        ("QUERY PLAN SELECT 1", FAILS),
        ("SELECT abs(-9223372036854775807 - 1)", FAILS),
        ("SELECT SUM(9223372036854775807) FROM books", FAILS),
        (f"{NUMBERS} SELECT COUNT(*) FROM n", STEPS),
        (f"{NUMBERS} SELECT x FROM n ORDER BY -x", STEPS),
        ("SELECT COUNT(*) FROM " + ", ".join(f"books AS b{place}" for place in range(30)), STEPS),
        (f"{LONG} SELECT COUNT(*) FROM s a, s b, s c, s d, s e, s f WHERE a.x || b.x > c.x", STEPS),
        (f"{LONG} SELECT group_concat(a.x) FROM s a, s b", FAILS),
        ("SELECT " + " || ".join(["replace('" + "a" * 500 + "', 'a', '" + "b" * 60 + "')"] * 2), FAILS),
        ("SELECT date('now')", FAILS),
        ("SELECT date()", FAILS),
        ("SELECT datetime(' NOW ', '+1 day')", FAILS),
        ("SELECT strftime('%Y')", FAILS),
        ("SELECT julianday('no' || 'w')", FAILS),
        ("SELECT datetime('2020-01-01', 'localtime')", FAILS),
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


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("SELECT 1", "SELECT 1"),
        ("```sql\nSELECT 1;\n```", "SELECT 1;"),
        ("```\nSELECT 1\nFROM x```", "SELECT 1\nFROM x"),
        ("```SQLite  \n SELECT '`' \n  ```", " SELECT '`' "),
        ("Here it is: ```sql\nSELECT 1\n```", "Here it is: ```sql\nSELECT 1\n```"),
        ("```", "```"),
        ("sql\nSELECT 1", "SELECT 1"),
        (" SQLite: \r\n SELECT 1", " SELECT 1"),
        ("sql SELECT 1", "sql SELECT 1"),
    ],
)
def test_a_fence_is_taken_off(answer: str, expected: str) -> None:
    assert strip_fence(answer) == expected


@pytest.mark.parametrize(
    "query",
    [
        *("SELECT printf('%999999999d', 1)", "SELECT format('%999999999d', 1)", "SELECT printf('%*d', 20001, 1)"),
        *("SELECT printf('%.*f', 99999, 0.5)", "SELECT format('%30000s', 'a')", "SELECT printf('%.*c', 1e9, 'x')"),
        *(
            "SELECT printf('a%-5.2000000000lc', 'x')",
            "SELECT printf('%s%s', printf('%15000s', 'a'), printf('%15000s', 'b'))",
        ),
        "SELECT concat_ws(printf('%9000d', 1), 1, 2, 3, 4)",
        "SELECT concat(printf('%15000d', 1), printf('%15000d', 1))",
    ],
)
def test_formats_that_would_make_long_texts_fail(query: str) -> None:
    with library() as database, pytest.raises(QueryRefused, match=f"^{FAILS}"):
        run_query(database, query, 10)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        *(("mod(7, 3)", 1.0), ("ceil(1.2)", 2.0), ("floor(-1.2)", -2.0), ("trunc(1.9)", 1.0), ("power(2, 5)", 32.0)),
        *(("printf('%05.2f|%s', 1.5, NULL)", "01.50|"), ("format('%,d', 1234567)", "1,234,567")),
        *(
            ("printf('2024-%02d', 5)", "2024-05"),
            ("printf('%*d', 4, 7)", "   7"),
            ("length(printf('%19999d', 1))", 19999),
        ),
        *(("printf('%.3c', 'x')", "xxx"), ("printf()", None), ("printf(NULL, 1)", None), ("format('1999')", "1999")),
        *(("concat(1, NULL, 2.5, 'x')", "12.5x"), ("concat_ws('; ', 'a', NULL, 3)", "a; 3")),
        *(("concat_ws(NULL, 'a')", None), ("char(72, 105)", "Hi"), ("hex('a')", "61"), ("unicode('A')", 65)),
        *(("json_extract('{\"a\": 4}', '$.a')", 4), ("round(sqrt(2), 3)", 1.414), ("sign(-3)", -1)),
    ],
)
def test_functions_of_values_alone_may_be_used(expression: str, value: Cell) -> None:
    with library() as database:
        assert run_query(database, f"SELECT {expression}", 10) == [(value,)]


@pytest.mark.parametrize(
    ("right", "result", "in_order", "expected"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], False, True),
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], True, False),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False, False),
        ([(1,), (1,)], [(1,)], False, False),
        ([(1, 2)], [(2, 1)], False, False),
        ([(1,)], [(1, 1)], False, False),
        ([(1,)], [(1.0,)], False, True),
        ([(2023, 4)], [("2023", 4)], False, True),
        ([("2023", 4)], [(2023, 4)], False, False),
        ([("007",)], [("7",)], False, False),
        ([("007",)], [(7,)], False, False),
        ([("1.50",)], [(1.5,)], False, False),
        ([(7,)], [("007",)], False, False),
        ([(1,)], [("01",)], False, False),
        ([(1,), (0,), (-0.5,)], [("1",), ("0",), ("-0.50",)], False, True),
        ([(None,), (7,)], [("7",), (None,)], False, True),
        ([("7",), (8,)], [("8",), ("7",)], False, True),
        ([("7",), (8,)], [(8,), (7,)], False, False),
        ([(0.1 + 0.2,), (0.3,)], [(0.3,), (0.3,)], False, True),
        ([(0.1 + 0.2, "b"), (0.3, "a")], [(0.3, "b"), (0.1 + 0.2, "a")], False, True),
        ([(12.35,)], [(12.347826,)], False, False),
        ([(0.0,)], [(1e-12,)], False, True),
        ([(1e9,)], [(1e9 + 2,)], False, False),
        ([(float("inf"),)], [(9.0,)], False, False),
        ([(None,)], [(None,)], False, True),
        ([(None,)], [(0,)], False, False),
        ([(None,)], [("",)], False, False),
        ([("None",)], [(None,)], False, False),
        ([("Lyon",)], [("lyon",)], False, False),
        ([("Lyon",)], [("Lyon ",)], False, False),
        ([("1e3",)], [(1000,)], False, False),
        ([(None, 1), ("a", None)], [("a", None), (None, 1)], False, True),
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
