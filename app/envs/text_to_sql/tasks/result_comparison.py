"""Comparison of query results.

Columns are compared by position, not by name; rows in order if one was asked for, otherwise as a multiset. Numbers are
equal by value: 2 and 2.0, floats within a tolerance, and numbers written as text, which is how SQLite returns years."""

import re
from collections.abc import Sequence
from math import isclose

from app.envs.text_to_sql.tasks.row_generation import Cell

ResultRows = list[tuple[Cell, ...]]

_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
TOLERANCE = 1e-9


def is_same_result(right: ResultRows, result: ResultRows, in_order: bool) -> bool:
    if len(right) != len(result):
        return False
    one, other = ([tuple(map(_parse_number, row)) for row in rows] for rows in (right, result))
    if not in_order:
        one.sort(key=_make_sort_key)
        other.sort(key=_make_sort_key)
    return all(map(_is_same_row, one, other))


def _is_same_row(one: Sequence[Cell], other: Sequence[Cell]) -> bool:
    return len(one) == len(other) and all(map(_is_same_cell, one, other))


def _is_same_cell(one: Cell, other: Cell) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(one) is type(other) and one == other


def _parse_number(cell: Cell) -> Cell:
    return float(cell) if isinstance(cell, str) and _NUMBER.fullmatch(cell) else cell


def _make_sort_key(row: Sequence[Cell]) -> list[tuple[int, float, str]]:
    """Sort key. Rows that differ only in the last digits of a float get the same key."""
    return [_rank_cell(cell) for cell in row]


def _rank_cell(cell: Cell) -> tuple[int, float, str]:
    if isinstance(cell, int | float):
        return (1, float(f"{cell:.9g}"), "")
    return (0, 0.0, "") if cell is None else (2, 0.0, str(cell))
