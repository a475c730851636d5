"""Rows for a schema, drawn from a seed: pure, so that a database can be rebuilt instead of stored.

Some cells take values from the query, so that its conditions are met, or just missed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from app.envs.text_to_sql.tasks.domains import POOLS, Label
from app.envs.text_to_sql.tasks.queries import Query, literals, sources
from app.envs.text_to_sql.tasks.schemas import Column, Schema, Table
from app.toolkit.seeded import Draws

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
class Size:
    """Number of rows: of tables without links, of named tables with links, and of the other tables."""

    alone: int
    tied: int
    events: int

    def of(self, table: Table) -> int:
        if not table.links:
            return self.alone
        return self.tied if table.named else self.events


SHOWN = Size(14, 22, 45)
HIDDEN = Size(32, 56, 130)


def wanted_by(query: Query) -> Wanted:
    tables = {source.alias: source.table for source in sources(query)}
    found: dict[tuple[str, str], list[int | float | str]] = {}
    for column, value in literals(query):
        found.setdefault((tables[column.table], column.name), []).append(value)
    return found


def filled(schema: Schema, seed: str, size: Size, wanted: Wanted) -> Rows:
    draws = Draws(seed)
    rows: dict[str, list[tuple[Cell, ...]]] = {}
    for table in schema.tables:
        count = size.of(table) + draws.below(size.of(table) // 4)
        first = 1 + draws.below(40)
        labels = _labels(draws, table.thing.label, count)
        cells = [_cells_of(column, wanted.get((table.name, column.name), ())) for column in table.columns]
        rows[table.name] = [
            (
                first + place,
                *labels[place : place + 1],
                *[_partner(draws, rows[link.to], link.tie.unknown) for link in table.links],
                *[cell(draws) for cell in cells],
            )
            for place in range(count)
        ]
    return rows


def _labels(draws: Draws, label: Label | None, count: int) -> list[str]:
    found: dict[str, None] = {}
    while label is not None and len(found) < count:
        found[" ".join(draws.one(POOLS[pool]) for pool in label.pools)] = None
    return list(found)


def _partner(draws: Draws, there: Sequence[tuple[Cell, ...]], null: int) -> Cell:
    """Uneven on purpose: some rows get many child rows, others few or none."""
    if null and draws.chance(null):
        return None
    taken = len(there) - len(there) * ALONE_SHARE // 100
    place = draws.below(taken)
    return there[min(place, draws.below(taken)) if place % 2 else place][0]


def _cells_of(column: Column, wanted: Sequence[int | float | str]) -> Callable[[Draws], Cell]:
    """A function that draws a cell, made once for each column."""
    trait = column.trait
    unknown = trait.unknown if trait else 0
    value = _values_of(column)

    def cell(draws: Draws) -> Cell:
        chance = draws.below(100 * 100)
        if chance // 100 < unknown:
            return None
        return draws.one(wanted) if wanted and chance % 100 < WANTED_SHARE else value(draws)

    return cell


def _values_of(column: Column) -> Callable[[Draws], Cell]:
    trait = column.trait
    if trait is not None and trait.range is not None:
        return numbers(trait.range)
    if trait is not None and trait.date is not None:
        return partial(date, years=trait.date)
    values: tuple[Cell, ...] = column.values or (0, 1)
    return partial(_one, values)


def _one(values: Sequence[Cell], draws: Draws) -> Cell:
    return draws.one(values)


def numbers(within: Sequence[float]) -> Callable[[Draws], int | float]:
    low, high, step = (*within, 1.0)[:3]
    count, whole = round((high - low) / step) + 1, not any(part % 1 for part in within)

    def drawn(draws: Draws) -> int | float:
        value = low + step * draws.below(count)
        return int(value) if whole else value

    return drawn


def date(draws: Draws, years: tuple[int, int]) -> str:
    """Two in five dates are one of few days, so that some dates repeat."""
    year, month, day = years[0] + draws.below(years[1] - years[0] + 1), draws.below(12), draws.below(46)
    return f"{year}-{month + 1:02}-{day + 1:02}" if day < 28 else f"{year}-{month // 3 * 3 + 1:02}-15"
