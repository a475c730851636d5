"""Soundness: an exercise needs a certain answer that no plausible wrong query has too."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise

from app.envs.text_to_sql.tasks.exercises import Exercise
from app.envs.text_to_sql.tasks.mutants import UNROUNDED, mutants
from app.envs.text_to_sql.tasks.queries import Col, Combined, Query, ordered, sql
from app.envs.text_to_sql.tasks.results import Result, same
from app.envs.text_to_sql.tasks.running import MOST_ROWS, MOST_STEPS, Refused, opened, run

STEPS = MOST_STEPS // 10
"""A tenth of the limit, so that right answers may be less efficient."""
HALF = 1e-6
"""Values to be rounded must be at least this far from half a cent, where ways to compute them differ."""


def is_sound(exercise: Exercise) -> bool:
    with ExitStack() as stack:
        databases = [
            stack.enter_context(closing(opened(exercise.schema, rows))) for rows in (exercise.hidden, exercise.shown)
        ]
        query = exercise.asked.query
        right = [_result(database, query) for database in databases]
        hidden, shown = right
        if not _is_an_answer(query, hidden) or not _is_an_answer(query, shown):
            return False
        if same(hidden or [], shown or [], ordered(query)):
            return False
        if not all(_has_one_order(database, query) for database in databases):
            return False
        exact = [wrong for name, wrong in wrong_queries(exercise) if name == UNROUNDED]
        if not all(_rounds_one_way(_result(database, one)) for one in exact for database in databases):
            return False
        return next(_unnoticed(exercise, databases, right), None) is None


def unnoticed(exercise: Exercise) -> list[str]:
    """Mistakes that do not change the result on either database."""
    with ExitStack() as stack:
        databases = [
            stack.enter_context(closing(opened(exercise.schema, rows))) for rows in (exercise.hidden, exercise.shown)
        ]
        right = [_result(database, exercise.asked.query) for database in databases]
        return list(_unnoticed(exercise, databases, right))


def wrong_queries(exercise: Exercise) -> Iterator[tuple[str, Query]]:
    yield from mutants(exercise.asked.query)
    for trap in exercise.asked.traps:
        yield "what this question invites", trap


def _unnoticed(exercise: Exercise, databases: list[sqlite3.Connection], right: list[Result | None]) -> Iterator[str]:
    in_order = ordered(exercise.asked.query)
    for name, wrong in wrong_queries(exercise):
        if all(
            expected is not None and (got := _result(database, wrong)) is not None and same(expected, got, in_order)
            for database, expected in zip(databases, right, strict=True)
        ):
            yield name


def _result(database: sqlite3.Connection, query: Query) -> Result | None:
    try:
        return run(database, sql(query), MOST_ROWS + 1, STEPS)
    except Refused:
        return None


def _is_an_answer(query: Query, result: Result | None) -> bool:
    """Some rows, not too many, and NULL only where a table has it."""
    if not result or len(result) > MOST_ROWS:
        return False
    outputs = (query.left if isinstance(query, Combined) else query).outputs
    made = [place for place, output in enumerate(outputs) if not isinstance(output, Col)]
    return all(row[place] is not None for row in result for place in made)


def _has_one_order(database: sqlite3.Connection, query: Query) -> bool:
    """Whether the requested order is unique, up to and including the first row beyond the limit."""
    if isinstance(query, Combined) or not query.order:
        return True
    more = None if query.limit is None else query.limit + 1
    places = _result(database, replace(query, outputs=tuple(order.by for order in query.order), limit=more))
    return places is not None and all(one != other for one, other in pairwise(places))


def _rounds_one_way(result: Result | None) -> bool:
    floats = [cell for row in result or () for cell in row if isinstance(cell, float)]
    return all(abs(abs(cell) * 100 % 1 - 0.5) > HALF for cell in floats)
