"""Rows for a schema, drawn from a seed: pure, so that a database can be rebuilt instead of stored.

Some cells take values from the query, so that its conditions are met, or just missed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from app.envs.text_to_sql.tasks.database_domains import POOLS, EntityLabel
from app.envs.text_to_sql.tasks.database_schemas import DatabaseSchema, SchemaColumn, SchemaTable
from app.envs.text_to_sql.tasks.query_ast import Query, list_literals, list_sources
from app.toolkit.seeded import SeededRandom

Cell = int | float | str | None
Rows = Mapping[str, Sequence[tuple[Cell, ...]]]
"""Rows by table; the order of the cells is key, label, links, other columns."""
Wanted = Mapping[tuple[str, str], Sequence[int | float | str]]
"""By table and column, the values that a query compares with."""

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
        return self.tied if table.named else self.events


SHOWN = TableSizes(14, 22, 45)
HIDDEN = TableSizes(32, 56, 130)


def list_wanted_values(query: Query) -> Wanted:
    tables = {source.alias: source.table for source in list_sources(query)}
    found: dict[tuple[str, str], list[int | float | str]] = {}
    for column, value in list_literals(query):
        found.setdefault((tables[column.table], column.name), []).append(value)
    return found


def generate_rows(schema: DatabaseSchema, seed: str, size: TableSizes, wanted: Wanted) -> Rows:
    draws = SeededRandom(seed)
    rows: dict[str, list[tuple[Cell, ...]]] = {}
    for table in schema.tables:
        count = size.count_rows(table) + draws.below(size.count_rows(table) // 4)
        first = 1 + draws.below(40)
        labels = _draw_labels(draws, table.thing.label, count)
        cells = [_make_cell_drawer(column, wanted.get((table.name, column.name), ())) for column in table.columns]
        rows[table.name] = [
            (
                first + place,
                *labels[place : place + 1],
                *[_draw_partner(draws, rows[link.to], link.tie.unknown) for link in table.links],
                *[cell(draws) for cell in cells],
            )
            for place in range(count)
        ]
    return rows


def _draw_labels(draws: SeededRandom, label: EntityLabel | None, count: int) -> list[str]:
    found: dict[str, None] = {}
    while label is not None and len(found) < count:
        found[" ".join(draws.one(POOLS[pool]) for pool in label.pools)] = None
    return list(found)


def _draw_partner(draws: SeededRandom, there: Sequence[tuple[Cell, ...]], null: int) -> Cell:
    """Uneven on purpose: some rows get many child rows, others few or none."""
    if null and draws.chance(null):
        return None
    taken = len(there) - len(there) * ALONE_SHARE // 100
    place = draws.below(taken)
    return there[min(place, draws.below(taken)) if place % 2 else place][0]


def _make_cell_drawer(column: SchemaColumn, wanted: Sequence[int | float | str]) -> Callable[[SeededRandom], Cell]:
    """A function that draws a cell, made once for each column."""
    trait = column.trait
    unknown = trait.unknown if trait else 0
    value = _make_value_drawer(column)

    def draw_cell(draws: SeededRandom) -> Cell:
        chance = draws.below(100 * 100)
        if chance // 100 < unknown:
            return None
        return draws.one(wanted) if wanted and chance % 100 < WANTED_SHARE else value(draws)

    return draw_cell


def _make_value_drawer(column: SchemaColumn) -> Callable[[SeededRandom], Cell]:
    trait = column.trait
    if trait is not None and trait.range is not None:
        return make_number_drawer(trait.range)
    if trait is not None and trait.date is not None:
        return partial(draw_date, years=trait.date)
    values: tuple[Cell, ...] = column.values or (0, 1)
    return partial(_draw_value, values)


def _draw_value(values: Sequence[Cell], draws: SeededRandom) -> Cell:
    return draws.one(values)


def make_number_drawer(within: Sequence[float]) -> Callable[[SeededRandom], int | float]:
    low, high, step = (*within, 1.0)[:3]
    count, whole = round((high - low) / step) + 1, not any(part % 1 for part in within)

    def draw_number(draws: SeededRandom) -> int | float:
        value = low + step * draws.below(count)
        return int(value) if whole else value

    return draw_number


def draw_date(draws: SeededRandom, years: tuple[int, int]) -> str:
    """Two in five dates are one of few days, so that some dates repeat."""
    year, month, day = years[0] + draws.below(years[1] - years[0] + 1), draws.below(12), draws.below(46)
    return f"{year}-{month + 1:02}-{day + 1:02}" if day < 28 else f"{year}-{month // 3 * 3 + 1:02}-15"
