"""Soundness: an exercise needs a certain answer that no plausible wrong query has too."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise

from app.envs.text_to_sql.tasks.query_ast import ColumnRef, Query, SetOperation, is_ordered, list_sources
from app.envs.text_to_sql.tasks.query_execution import (
    MOST_ROWS,
    MOST_STEPS,
    QueryRefused,
    open_own_database,
    run_own_query,
)
from app.envs.text_to_sql.tasks.query_mutants import UNROUNDED, list_mutants
from app.envs.text_to_sql.tasks.query_sql import render_sql
from app.envs.text_to_sql.tasks.result_comparison import ResultRows, is_same_result
from app.envs.text_to_sql.tasks.row_generation import Rows
from app.envs.text_to_sql.tasks.sql_exercises import SqlExercise

STEPS = MOST_STEPS // 10
"""A tenth of the limit, so that right answers may be less efficient."""
HALF = 1e-6
"""Values to be rounded must be at least this far from half a cent, where ways to compute them differ."""


def is_sound(exercise: SqlExercise) -> bool:
    with ExitStack() as stack:
        databases: list[sqlite3.Connection] = []
        right: list[ResultRows | None] = []
        query = exercise.asked.query
        for rows in _iterate_rows(exercise):
            databases.append(stack.enter_context(closing(open_own_database(exercise.schema, rows))))
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
        return run_own_query(database, text, MOST_ROWS + 1, STEPS)
    except QueryRefused:
        return None


def _is_answer(query: Query, result: ResultRows | None) -> bool:
    """Some rows, not too many, and NULL only where a table has it."""
    if not result or len(result) > MOST_ROWS:
        return False
    outputs = (query.left if isinstance(query, SetOperation) else query).outputs
    made = [place for place, output in enumerate(outputs) if not isinstance(output, ColumnRef)]
    return all(row[place] is not None for row in result for place in made)


def _has_one_order(database: sqlite3.Connection, query: Query) -> bool:
    """Whether the requested order is unique, up to and including the first row beyond the limit."""
    if isinstance(query, SetOperation) or not query.order:
        return True
    more = None if query.limit is None else query.limit + 1
    placed = replace(query, outputs=tuple(order.by for order in query.order), limit=more)
    places = _run_or_none(database, render_sql(placed))
    return places is not None and all(one != other for one, other in pairwise(places))


def _has_certain_rounding(result: ResultRows | None) -> bool:
    floats = [cell for row in result or () for cell in row if isinstance(cell, float)]
    return all(abs(abs(cell) * 100 % 1 - 0.5) > HALF for cell in floats)
