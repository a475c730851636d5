"""Rows for a schema, drawn from a seed: pure, so that a database can be rebuilt instead of stored.

Some cells take values from the query, so that its conditions are met, or just missed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from app.envs.text_to_sql.tasks.database_domains import POOLS, EntityLabel
from app.envs.text_to_sql.tasks.database_schemas import DatabaseSchema, SchemaColumn, SchemaTable
from app.envs.text_to_sql.tasks.query_ast import Query, list_literals, list_sources
from app.toolkit.seeded import SPARE, SeededRandom

Cell = int | float | str | None
Rows = Mapping[str, Sequence[tuple[Cell, ...]]]
"""Rows by table; the order of the cells is key, label, links, other columns."""
Wanted = Mapping[tuple[str, str], Sequence[int | float | str]]
"""By table and column, the values that a query compares with."""
WANTED_SHARE = 30
"""Percent of cells of a compared column that get a compared value."""
ALONE_SHARE = 15
"""Percent of rows without child rows."""
_CHANCES = 100 * 100
_DAYS = 46
"""Of a month: every day up to the 28th, and one in the middle of its quarter that all others stand for."""
_ENOUGH = SPARE * 2**40
"""What must be left so that the draws of one cell can be made at once: all that follow the first find `SPARE`."""


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
        keys = [[row[0] for row in rows[link.to]] for link in table.links]
        columns = [
            *[_make_partner_column(there, link.tie.unknown) for there, link in zip(keys, table.links, strict=True)],
            *[_make_column(column, wanted.get((table.name, column.name), ())) for column in table.columns],
        ]
        rows[table.name] = [
            (first + place, *labels[place : place + 1], *cells)
            for place, cells in enumerate(_draw_cells(draws, columns, count))
        ]
    return rows


class _Choices(NamedTuple):
    """Items with the bounds of the draws that choose one; the first draw makes the smallest steps."""

    items: Sequence[Cell]
    bounds: tuple[int, ...]


class _Column(NamedTuple):
    """What its cells are drawn from. `unknown`: of 10,000, how many are NULL; `span`: of how many draws at once."""

    choices: _Choices
    unknown: int
    wanted: Sequence[Cell]
    span: int
    is_link: bool


def _draw_labels(draws: SeededRandom, label: EntityLabel | None, count: int) -> list[Cell]:
    found: dict[Cell, None] = {}
    while label is not None and len(found) < count:
        found[_draw_item(draws, _list_labels(label.pools))] = None
    return list(found)


@lru_cache(maxsize=256)
def _list_labels(pools: tuple[str, ...]) -> _Choices:
    words = [POOLS[pool] for pool in pools]
    return _Choices([" ".join(reversed(some)) for some in product(*reversed(words))], tuple(map(len, words)))


def _make_partner_column(keys: Sequence[Cell], null: int) -> _Column:
    """Uneven on purpose: some rows get many child rows, others few or none."""
    taken = len(keys) - len(keys) * ALONE_SHARE // 100
    return _Column(_Choices(keys[:taken], (taken,)), null, (), taken, is_link=True)


def _make_column(column: SchemaColumn, wanted: Sequence[Cell]) -> _Column:
    trait = column.trait
    choices = _list_choices(column)
    return _Column(choices, 100 * trait.unknown if trait else 0, wanted, _CHANCES * len(choices.items), is_link=False)


def _list_choices(column: SchemaColumn) -> _Choices:
    trait = column.trait
    if trait is not None and trait.range is not None:
        return _list_numbers(trait.range)
    if trait is not None and trait.date is not None:
        return _list_dates(trait.date)
    values: tuple[Cell, ...] = column.values or (0, 1)
    return _Choices(values, (len(values),))


@lru_cache(maxsize=256)
def _list_numbers(within: tuple[float, ...]) -> _Choices:
    numbers = [_compute_number(within, place) for place in range(_count_numbers(within))]
    return _Choices(numbers, (len(numbers),))


@lru_cache(maxsize=256)
def _list_dates(years: tuple[int, int]) -> _Choices:
    count = years[1] - years[0] + 1
    dates = [
        _write_date(years[0] + year, month, day) for day in range(_DAYS) for month in range(12) for year in range(count)
    ]
    return _Choices(dates, (count, 12, _DAYS))


def _draw_cells(draws: SeededRandom, columns: Sequence[_Column], count: int) -> list[list[Cell]]:
    """As `_draw_cell` for every cell, quicker: what is drawn one after the other is divided at once."""
    rows: list[list[Cell]] = []
    left = draws.left
    for _ in range(count):
        cells: list[Cell] = []
        rows.append(cells)
        for column in columns:
            choices, unknown, wanted, span, is_link = column
            if left < _ENOUGH or (is_link and unknown):
                draws.left = left
                cells.append(_draw_cell(draws, column))
                left = draws.left
                continue
            rest, drawn = divmod(left, span)
            if is_link:
                if drawn % 2:
                    rest, other = divmod(rest, span)
                    drawn = min(drawn, other)
                left = rest
                cells.append(choices.items[drawn])
                continue
            chance = drawn % _CHANCES
            if chance < unknown:
                left //= _CHANCES
                cells.append(None)
            elif wanted and chance % 100 < WANTED_SHARE:
                left, place = divmod(left // _CHANCES, len(wanted))
                cells.append(wanted[place])
            else:
                left = rest
                cells.append(choices.items[drawn // _CHANCES])
    draws.left = left
    return rows


def _draw_cell(draws: SeededRandom, column: _Column) -> Cell:
    if column.is_link:
        return _draw_partner(draws, column)
    chance = draws.below(_CHANCES)
    if chance < column.unknown:
        return None
    if column.wanted and chance % 100 < WANTED_SHARE:
        return draws.one(column.wanted)
    return _draw_item(draws, column.choices)


def _draw_partner(draws: SeededRandom, column: _Column) -> Cell:
    if column.unknown and draws.chance(column.unknown):
        return None
    place = draws.below(column.span)
    return column.choices.items[min(place, draws.below(column.span)) if place % 2 else place]


def _draw_item(draws: SeededRandom, choices: _Choices) -> Cell:
    if draws.left >= _ENOUGH:
        draws.left, place = divmod(draws.left, len(choices.items))
        return choices.items[place]
    place, step = 0, 1
    for bound in choices.bounds:
        place += step * draws.below(bound)
        step *= bound
    return choices.items[place]


def draw_number(draws: SeededRandom, within: tuple[float, ...]) -> int | float:
    return _compute_number(within, draws.below(_count_numbers(within)))


def _count_numbers(within: tuple[float, ...]) -> int:
    low, high, step = (*within, 1.0)[:3]
    return round((high - low) / step) + 1


def _compute_number(within: tuple[float, ...], place: int) -> int | float:
    low, _, step = (*within, 1.0)[:3]
    number = low + step * place
    return number if any(part % 1 for part in within) else int(number)


def draw_date(draws: SeededRandom, years: tuple[int, int]) -> str:
    """Two in five dates are one of few days, so that some dates repeat."""
    return _write_date(years[0] + draws.below(years[1] - years[0] + 1), draws.below(12), draws.below(_DAYS))


def _write_date(year: int, month: int, day: int) -> str:
    return f"{year}-{month + 1:02}-{day + 1:02}" if day < 28 else f"{year}-{month // 3 * 3 + 1:02}-15"
