"""Rows for a schema, drawn from a seed: pure, so that a database can be rebuilt instead of stored.

Some cells take values from the query, so that its conditions are met, or just missed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from app.envs.text_to_sql.tasks.database_domains import POOLS, EntityLabel
from app.envs.text_to_sql.tasks.database_schemas import DatabaseSchema, SchemaColumn, SchemaTable
from app.envs.text_to_sql.tasks.query_ast import Query, list_literals, list_sources
from app.toolkit.seeded import SeededRandom

Cell = int | float | str | None
Rows = Mapping[str, Sequence[tuple[Cell, ...]]]
"""Rows by table; the order of the cells is key, label, links, other columns."""
Wanted = Mapping[tuple[str, str], Sequence[int | float | str]]
"""By table and column, the values that a query compares with."""
_Below = Callable[[int], int]
"""Draws a number below another: `SeededRandom.below`. Hundreds of cells are drawn for a task."""

WANTED_SHARE = 30
"""Percent of cells of a compared column that get a compared value."""
ALONE_SHARE = 15
"""Percent of rows without child rows."""


@dataclass(frozen=True)
class TableSizes:
    """Number of rows: of tables without links, of named tables with links, and of the other tables."""

    alone: int
    tied: int
    events: int

    def count_rows(self, table: SchemaTable) -> int:
        if not table.links:
            return self.alone
        return self.tied if table.has_label else self.events


SHOWN = TableSizes(14, 22, 45)
HIDDEN = TableSizes(32, 56, 130)


def list_wanted_values(query: Query) -> Wanted:
    tables = {source.alias: source.table for source in list_sources(query)}
    found: dict[tuple[str, str], list[int | float | str]] = {}
    for column, value in list_literals(query):
        found.setdefault((tables[column.table], column.name), []).append(value)
    return found


def generate_rows(
    schema: DatabaseSchema, seed: str, size: TableSizes, wanted: Wanted, needed: Collection[str] | None = None
) -> Rows:
    """With `needed`, the same rows of these tables, and perhaps of others."""
    draws = SeededRandom(seed)
    rows: dict[str, list[tuple[Cell, ...]]] = {}
    left = {table.name for table in schema.tables} if needed is None else set(needed)
    for table in schema.tables:
        if not left:
            break
        left.discard(table.name)
        count = size.count_rows(table) + draws.below(size.count_rows(table) // 4)
        first = 1 + draws.below(40)
        labels = _draw_labels(draws, table.thing.label, count)
        drawers = [
            *[_make_partner_drawer(draws.below, rows[link.to], link.tie.unknown) for link in table.links],
            *[_make_cell_drawer(draws.below, one, wanted.get((table.name, one.name), ())) for one in table.columns],
        ]
        rows[table.name] = [
            (first + place, *labels[place : place + 1], *[draw() for draw in drawers]) for place in range(count)
        ]
    return rows


def _draw_labels(draws: SeededRandom, label: EntityLabel | None, count: int) -> list[str]:
    found: dict[str, None] = {}
    while label is not None and len(found) < count:
        found[" ".join(draws.one(POOLS[pool]) for pool in label.pools)] = None
    return list(found)


def _make_partner_drawer(below: _Below, there: Sequence[tuple[Cell, ...]], null: int) -> Callable[[], Cell]:
    """Uneven on purpose: some rows get many child rows, others few or none."""
    keys = [row[0] for row in there]
    taken = len(keys) - len(keys) * ALONE_SHARE // 100

    def draw_partner() -> Cell:
        if null and below(100) < null:
            return None
        place = below(taken)
        return keys[min(place, below(taken)) if place % 2 else place]

    return draw_partner


def _make_cell_drawer(below: _Below, column: SchemaColumn, wanted: Sequence[int | float | str]) -> Callable[[], Cell]:
    """A function that draws a cell, made once for each column."""
    trait = column.trait
    unknown = 100 * trait.unknown if trait else 0
    value, wishes = _make_value_drawer(below, column), len(wanted)

    def draw_cell() -> Cell:
        chance = below(100 * 100)
        if chance < unknown:
            return None
        return wanted[below(wishes)] if wishes and chance % 100 < WANTED_SHARE else value()

    return draw_cell


def _make_value_drawer(below: _Below, column: SchemaColumn) -> Callable[[], Cell]:
    trait = column.trait
    if trait is not None and trait.range is not None:
        return make_number_drawer(below, trait.range)
    if trait is not None and trait.date is not None:
        return partial(draw_date, below, trait.date)
    values: tuple[Cell, ...] = column.values or (0, 1)
    count = len(values)
    return lambda: values[below(count)]


def make_number_drawer(below: _Below, within: Sequence[float]) -> Callable[[], int | float]:
    low, high, step = (*within, 1.0)[:3]
    count, whole = round((high - low) / step) + 1, not any(part % 1 for part in within)
    if whole:
        return lambda: int(low + step * below(count))
    return lambda: low + step * below(count)


def draw_date(below: _Below, years: tuple[int, int]) -> str:
    """Two in five dates are one of few days, so that some dates repeat."""
    return _write_date(years[0] + below(years[1] - years[0] + 1), below(12), below(46))


@lru_cache(maxsize=65_536)
def _write_date(year: int, month: int, day: int) -> str:
    return f"{year}-{month + 1:02}-{day + 1:02}" if day < 28 else f"{year}-{month // 3 * 3 + 1:02}-15"
