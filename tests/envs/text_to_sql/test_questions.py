"""What is asked: schemas, questions, and queries that are right or wrong for a reason."""
# ruff: noqa: S608  # queries made of parts are what is tested

import re
from contextlib import closing, suppress

import pytest

from app.domain.values import Frozen
from app.envs.text_to_sql.databases import HIDDEN, Level, draw_schema, generate_rows, read_domains
from app.envs.text_to_sql.exercises import (
    SHAPES,
    compute_right_results,
    find_query_fault,
    is_same_result,
    list_wrong_queries,
    open_database,
    run_query,
)
from app.envs.text_to_sql.join_questions import best_of_each
from app.envs.text_to_sql.queries import (
    Aggregate,
    ColumnRef,
    Compare,
    Exists,
    Join,
    LiteralValue,
    NullCheck,
    OrCondition,
    OrderBy,
    Query,
    SelectQuery,
    SetOperation,
    TableSource,
    list_mutants,
    render_sql,
)
from app.envs.text_to_sql.questions import QuestionBuilder, UnsuitableSchema
from app.toolkit.seeded import SeededRandom
from tests.support.sql_questions import of_shape, sound_exercises
from tests.support.tables import read_table
from tests.support.tiers import examples

LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")
SHAPE_NAMES = sorted({shape.__name__ for shapes in SHAPES.values() for shape in shapes})
pytestmark = pytest.mark.deep

MANY, FEW = examples(400, fewest=40), examples(240, fewest=20)
A, B = ColumnRef("t", "a"), ColumnRef("t", "b")
ROWS_OF_T = TableSource("t", "t")


@pytest.mark.parametrize("level", LEVELS)
def test_every_schema_can_be_made_and_filled(level: Level) -> None:
    domains = set()
    for number in range(MANY):
        schema = draw_schema(SeededRandom(f"schema {number}"), level)
        rows = generate_rows(schema, f"rows {number}", HIDDEN, {})
        with closing(open_database(schema, rows)) as database:
            counted = [run_query(database, f"SELECT COUNT(*) FROM {table.name}", 2) for table in schema.tables]
        assert counted == [[(len(rows[table.name]),)] for table in schema.tables]
        domains.add(schema.domain)
    assert domains == set(read_domains())


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (SelectQuery((A,), ROWS_OF_T), "SELECT t.a FROM t"),
        (
            SelectQuery(
                (A, Aggregate("COUNT")),
                ROWS_OF_T,
                (Join(TableSource("u", "v"), (Compare(A, "=", ColumnRef("v", "x")),), outer=True),),
                (
                    Compare(B, ">=", LiteralValue("it's")),
                    OrCondition((NullCheck(B, False), Compare(B, "<>", LiteralValue(2.5)))),
                ),
                (A,),
                (Compare(Aggregate("SUM", B, distinct=True), ">", LiteralValue(3)),),
                (OrderBy(Aggregate("COUNT"), down=True), OrderBy(A)),
                5,
                distinct=True,
            ),
            "SELECT DISTINCT t.a, COUNT(*) FROM t LEFT JOIN u AS v ON t.a = v.x WHERE t.b >= 'it''s' AND "
            "(t.b IS NULL OR t.b <> 2.5) GROUP BY t.a HAVING SUM(DISTINCT t.b) > 3 ORDER BY COUNT(*) DESC, t.a LIMIT 5",
        ),
        (
            SetOperation(
                SelectQuery((A,), ROWS_OF_T),
                "EXCEPT",
                SelectQuery((B,), ROWS_OF_T, where=(Exists(SelectQuery((A,), ROWS_OF_T), False),)),
            ),
            "SELECT t.a FROM t EXCEPT SELECT t.b FROM t WHERE NOT EXISTS (SELECT t.a FROM t)",
        ),
    ],
)
def test_a_tree_is_written_as_sql(query: Query, text: str) -> None:
    assert render_sql(query) == text


def test_mutants_have_one_thing_wrong() -> None:
    query = SelectQuery(
        (A, Aggregate("COUNT", B)), ROWS_OF_T, where=(Compare(B, ">", LiteralValue(3)),), group=(A,), distinct=True
    )
    assert [(name, render_sql(wrong)) for name, wrong in list_mutants(query)] == [
        ("filter forgotten", "SELECT DISTINCT t.a, COUNT(t.b) FROM t GROUP BY t.a"),
        ("DISTINCT forgotten", "SELECT t.a, COUNT(t.b) FROM t WHERE t.b > 3 GROUP BY t.a"),
        ("GROUP BY forgotten", "SELECT DISTINCT t.a, COUNT(t.b) FROM t WHERE t.b > 3"),
        ("columns in another order", "SELECT DISTINCT COUNT(t.b), t.a FROM t WHERE t.b > 3 GROUP BY t.a"),
        ("a column forgotten", "SELECT DISTINCT t.a FROM t WHERE t.b > 3 GROUP BY t.a"),
        ("COUNT(*) for COUNT(column)", "SELECT DISTINCT t.a, COUNT(*) FROM t WHERE t.b > 3 GROUP BY t.a"),
        ("comparison turned", "SELECT DISTINCT t.a, COUNT(t.b) FROM t WHERE t.b < 3 GROUP BY t.a"),
        ("off by one", "SELECT DISTINCT t.a, COUNT(t.b) FROM t WHERE t.b >= 3 GROUP BY t.a"),
    ]


@pytest.mark.parametrize("shape", SHAPE_NAMES)
def test_every_shape_is_asked_and_marked(shape: str) -> None:
    made, level = of_shape(shape)
    answers = [render_sql(made.asked.query), *(render_sql(wrong) for _, wrong in list_wrong_queries(made))]
    marks = [find_query_fault(made.seed, level, answer) == "" for answer in answers]
    assert (marks, len(marks) > 3 or level == "first") == ([True] + [False] * (len(marks) - 1), True)


def test_the_best_of_each_is_what_its_words_say() -> None:
    """The row with the highest or latest value, not with the lowest or earliest."""
    asked = []
    for draws in (SeededRandom(f"best {number}") for number in range(60)):
        with suppress(UnsuitableSchema):
            asked.append(best_of_each(QuestionBuilder(draw_schema(draws, "hard"), draws)))
    said = [re.findall(r"\b(?:latest|highest|earliest|lowest)\b", one.question) for one in asked]
    found = [re.findall(r"\b(?:MAX|MIN)\b", render_sql(one.query)) for one in asked]
    functions = {"latest": "MAX", "highest": "MAX", "earliest": "MIN", "lowest": "MIN"}
    assert found == [[functions[word] for word in words] for words in said]
    assert {word for words in said for word in words} == {*functions}


class Rewritten(Frozen):
    """The tables of rewritten.yaml, which says what each holds."""

    as_good: tuple[tuple[str, str], ...]
    mistakes: tuple[tuple[str, str], ...]


REWRITTEN = read_table(__file__, "rewritten.yaml", Rewritten)


@pytest.mark.parametrize("level", LEVELS)
def test_other_ways_to_say_the_same_are_right(level: Level) -> None:
    wrong = []
    for made in sound_exercises(FEW, level, "said otherwise "):
        text = render_sql(made.asked.query)
        for way, other in REWRITTEN.as_good:
            if (again := re.sub(way, other, text)) != text and find_query_fault(made.seed, level, again):
                wrong.append((text, again))
    assert wrong == []


def test_mistakes_of_another_hand_are_told_from_what_is_right() -> None:
    """Made in the text, not in the tree, so that not every one of them was looked at when the task was made."""
    marks = [
        find_query_fault(made.seed, level, wrong) != ""
        for level in LEVELS
        for made in sound_exercises(MANY, level, "mistaken ")
        for way, other in REWRITTEN.mistakes
        if (wrong := re.sub(way, other, text := render_sql(made.asked.query), count=1)) != text
    ]
    assert (len(marks) > 10 * MANY, sum(marks) / len(marks) >= 0.99) == (True, True)


@pytest.mark.parametrize("level", LEVELS)
def test_results_differ_between_the_databases_and_are_short(level: Level) -> None:
    results = [compute_right_results(made.seed, level) for made in sound_exercises(FEW, level, "results ")]
    assert [not is_same_result(shown, hidden, False) and len(hidden) <= 150 for shown, hidden in results] == [
        True
    ] * FEW
