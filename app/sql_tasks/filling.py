"""Rows for a schema out of a seed: pure, so that a database need not be kept to be had again.

Some cells take values that the query asks for, so that conditions are met, and just not met.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.draws import Draws
from app.sql_tasks.domains import POOLS, Label
from app.sql_tasks.queries import Query, literals, sources
from app.sql_tasks.schemas import Column, Schema, Table

Cell = int | float | str | None
Rows = Mapping[str, Sequence[tuple[Cell, ...]]]
"""By table; cells in the order key, label, links, other columns."""
Wanted = Mapping[tuple[str, str], Sequence[int | float | str]]
"""By table and column, what a query compares it with."""

WANTED_SHARE = 30
"""Of a hundred cells of a column that is asked for, how many have a value that is asked for."""
ALONE_SHARE = 15
"""Of a hundred rows, how many no row of another table belongs to."""


@dataclass(frozen=True)
class Size:
    """Rows of tables that stand alone, of those with a name that are tied to others, and of the rest."""

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
        here = {column.name: wanted.get((table.name, column.name), ()) for column in table.columns}
        rows[table.name] = [
            (
                first + place,
                *labels[place : place + 1],
                *(_partner(draws, rows[link.to], link.tie.unknown) for link in table.links),
                *(_cell(draws, column, here[column.name]) for column in table.columns),
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
    """Some rows have many that belong to them, others have few or none."""
    if null and draws.chance(null):
        return None
    taken = len(there) - len(there) * ALONE_SHARE // 100
    place = draws.below(taken)
    return there[min(place, draws.below(taken)) if place % 2 else place][0]


def _cell(draws: Draws, column: Column, wanted: Sequence[int | float | str]) -> Cell:
    trait = column.trait
    if trait is None or (trait.unknown and draws.chance(trait.unknown)):
        return None
    if wanted and draws.chance(WANTED_SHARE):
        return draws.one(wanted)
    if trait.range is not None:
        return number(draws, trait.range)
    if trait.date is not None:
        return date(draws, trait.date)
    return draws.one(column.values) if column.values else draws.below(2)


def number(draws: Draws, within: Sequence[float]) -> int | float:
    low, high, step = (*within, 1.0)[:3]
    value = low + step * draws.below(round((high - low) / step) + 1)
    return value if any(part % 1 for part in within) else int(value)


def date(draws: Draws, years: tuple[int, int]) -> str:
    """Two in five are one of few days, so that some are shared."""
    year, month = years[0] + draws.below(years[1] - years[0] + 1), 1 + draws.below(12)
    if draws.chance(40):
        return f"{year}-{month - (month - 1) % 3:02}-15"
    return f"{year}-{month:02}-{1 + draws.below(28):02}"
