"""Generated databases: a domain, the schema drawn from it, and rows drawn for the schema.

A domain (a file in `domains/`) says in words which things there are. A schema takes some of them with some of their
columns, each under one of its names. Rows are a pure function of a seed, so a database is rebuilt when it is needed,
not stored. Some cells take a value that the query compares with, so that its conditions are met, or just missed.
"""

import re
import sqlite3
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, Self

from pydantic import Field, TypeAdapter, model_validator

from app.domain.values import Frozen, digest_of_text
from app.envs.text_to_sql.queries import Query, list_literals, list_sources
from app.toolkit.seeded import SPARE, SeededRandom
from app.toolkit.templates import read_packaged_data

_FOLDER = Path(__file__).with_name("domains")
_WORDS = Path(__file__).with_name("words.yaml")

_Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
"""A name in a schema."""


class EntityLabel(Frozen):
    """Names of things: one word from each pool, unique within a table."""

    names: Annotated[tuple[_Word, ...], Field(min_length=1)]
    noun: str
    pools: Annotated[tuple[str, ...], Field(min_length=1)]


class ColumnTemplate(Frozen):
    """A column: its possible names, its noun, and its values, given by exactly one of `range`, `date`, `choice` and
    `flag`."""

    names: Annotated[tuple[_Word, ...], Field(min_length=1)]
    noun: str
    range: Annotated[tuple[float, ...], Field(min_length=2, max_length=3)] | None = None
    """Lowest, highest, and optionally the step (default 1). Steps are multiples of a quarter, so that float sums are
    exact."""
    sums: bool = False
    """Whether a total of the column is meaningful."""
    date: tuple[int, int] | None = None
    """First and last year."""
    choice: tuple[str, ...] | str | None = None
    """Its values, or the name of a pool."""
    said: str | None = None
    """Words for things with the value `{}`, such as `from {}`; default: `whose city is {}`."""
    flag: tuple[str, str] | None = None
    """Words after the noun for things with 1 and with 0."""
    unknown: Annotated[int, Field(ge=0, le=40)] = 0
    """Percent of rows in which the value is NULL."""

    @model_validator(mode="after")
    def _check_one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.range, self.date, self.choice, self.flag)) != 1:
            raise ValueError("a column needs exactly one of range, date, choice and flag")
        return self


class EntityRelation(Frozen):
    """Each row belongs to a row of another table; `by` connects their words: orders `by` customers."""

    to: str
    by: str
    unknown: Annotated[int, Field(ge=0, le=40)] = 0


class Entity(Frozen):
    one: str
    many: str
    person: bool = False
    label: EntityLabel | None = None
    """If missing, rows are identified by their number."""
    ties: tuple[EntityRelation, ...] = ()
    columns: Annotated[tuple[ColumnTemplate, ...], Field(min_length=2)]


class DatabaseDomain(Frozen):
    about: str
    things: Annotated[tuple[Entity, ...], Field(min_length=2)]
    """Each thing comes after the things that it is tied to."""

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        defined: set[str] = set()
        for thing in self.things:
            if undefined := {tie.to for tie in thing.ties} - defined:
                raise ValueError(f"{thing.one} is tied to things that are not defined before it: {undefined}")
            defined.add(thing.one)
        return self


@cache
def read_domains() -> Mapping[str, DatabaseDomain]:
    """By name."""
    return {path.stem: read_packaged_data(path, TypeAdapter(DatabaseDomain)) for path in sorted(_FOLDER.glob("*.yaml"))}


POOLS: Final[dict[str, tuple[str, ...]]] = read_packaged_data(_WORDS, TypeAdapter(dict[str, tuple[str, ...]]))
DIGEST: Final = digest_of_text("\n".join(path.read_text("utf-8") for path in (_WORDS, *sorted(_FOLDER.glob("*.yaml")))))


# The schema of one task.

Level = Literal["first", "easy", "medium", "hard"]

_TABLES: Final = {"first": (1, 1), "easy": (2, 3), "medium": (2, 4), "hard": (3, 5)}
_RESERVED_WORDS: Final = {"order", "match"}
"""Reserved words of SQL among the things: their tables have the plural as name even where others do not."""


@dataclass(frozen=True)
class SchemaColumn:
    """The trait tells the kind of column; keys and labels have none."""

    name: str
    noun: str
    trait: ColumnTemplate | None = None

    @property
    def values(self) -> tuple[str, ...]:
        """Its possible values, if it is a choice."""
        choice = self.trait.choice if self.trait else None
        return POOLS[choice] if isinstance(choice, str) else choice or ()

    @property
    def numeric(self) -> bool:
        return self.trait is not None and self.trait.range is not None

    @property
    def dated(self) -> bool:
        return self.trait is not None and self.trait.date is not None

    @property
    def flagged(self) -> bool:
        return self.trait is not None and self.trait.flag is not None

    @property
    def nullable(self) -> bool:
        return self.trait is not None and self.trait.unknown > 0

    @property
    def type(self) -> str:
        if self.trait is None or self.dated or self.values:
            return "TEXT"
        steps = self.trait.range or ()
        return "REAL" if any(part % 1 for part in steps) else "INTEGER"


@dataclass(frozen=True)
class SchemaLink:
    """A column that holds the key of a row of another table, `to`."""

    name: str
    to: str
    tie: EntityRelation


@dataclass(frozen=True)
class SchemaTable:
    name: str
    thing: Entity
    key: str
    label: SchemaColumn
    """What identifies rows in words: a name, or the key."""
    columns: tuple[SchemaColumn, ...]
    links: tuple[SchemaLink, ...]

    @property
    def one(self) -> str:
        return self.thing.one

    @property
    def many(self) -> str:
        return self.thing.many

    @property
    def has_label(self) -> bool:
        return self.label.name != self.key


@dataclass(frozen=True)
class DatabaseSchema:
    domain: str
    about: str
    tables: tuple[SchemaTable, ...]

    def find_table(self, name: str) -> SchemaTable:
        return next(table for table in self.tables if table.name == name)

    def write_ddl(self, needed: Container[str] | None = None) -> str:
        """SQL with one statement per table, or for each of those that are `needed`."""
        tables = [table for table in self.tables if needed is None or table.name in needed]
        return "\n\n".join(_write_create_table(self, table) for table in tables)


def draw_schema(draws: SeededRandom, level: Level) -> DatabaseSchema:
    name = draws.one(tuple(read_domains()))
    domain = read_domains()[name]
    fewest, most = _TABLES[level]
    things = _draw_linked_entities(draws, domain, fewest + draws.below(most - fewest + 1))
    plural, key = not draws.chance(30), draws.one(("id", "id", "{}_id", "{}_no"))
    names = {thing.one: _name_table(thing, plural) for thing in things}
    tables = tuple(_draw_table(draws, thing, names, key, 2 if level in ("first", "easy") else 3) for thing in things)
    return DatabaseSchema(name, domain.about, tables)


def _draw_linked_entities(draws: SeededRandom, domain: DatabaseDomain, count: int) -> list[Entity]:
    """`count` connected things, in the order of the domain."""
    chosen = [draws.one(domain.things)]
    while len(chosen) < count:
        taken = {thing.one for thing in chosen}
        nearby = [
            thing
            for thing in domain.things
            if thing.one not in taken and any(_is_related(thing, one) for one in chosen)
        ]
        if not nearby:
            break
        chosen.append(draws.one(nearby))
    taken = {thing.one for thing in chosen}
    return [thing for thing in domain.things if thing.one in taken]


def _is_related(one: Entity, other: Entity) -> bool:
    return any(tie.to == other.one for tie in one.ties) or any(tie.to == one.one for tie in other.ties)


def _name_table(thing: Entity, plural: bool) -> str:
    return (thing.many if plural or thing.one in _RESERVED_WORDS else thing.one).replace(" ", "_")


def _draw_table(draws: SeededRandom, thing: Entity, names: dict[str, str], key_style: str, fewest: int) -> SchemaTable:
    key = key_style.format(thing.one.replace(" ", "_"))
    label = SchemaColumn(key, f"{thing.one} number" if key.endswith("_no") else "id")
    if thing.label is not None:
        label = SchemaColumn(draws.one(thing.label.names), thing.label.noun)
    count = fewest + draws.below(len(thing.columns))
    traits = draws.some(thing.columns, count)
    columns = tuple(
        SchemaColumn(draws.one(trait.names), trait.noun, trait)
        for trait in thing.columns
        if any(trait is one for one in traits)
    )
    link = key_style if key_style != "id" else "{}_id"
    links = tuple(
        SchemaLink(link.format(tie.to.replace(" ", "_")), names[tie.to], tie) for tie in thing.ties if tie.to in names
    )
    return SchemaTable(names[thing.one], thing, key, label, columns, links)


def _write_create_table(schema: DatabaseSchema, table: SchemaTable) -> str:
    lines = [f"{table.key} INTEGER PRIMARY KEY"]
    if table.has_label:
        lines.append(f"{table.label.name} TEXT NOT NULL UNIQUE")
    for link in table.links:
        there = schema.find_table(link.to)
        lines.append(f"{link.name} INTEGER{_write_null(link.tie.unknown)} REFERENCES {there.name} ({there.key})")
    lines += [f"{column.name} {column.type}{_write_null(column.nullable)}" for column in table.columns]
    lines_by_name = {line.split(" ")[0]: line for line in lines}
    comments = {column.name: comment for column in table.columns if (comment := _write_comment(column))}
    last = len(lines_by_name) - 1
    body = [
        f"  {line}{',' * (index < last)}{f'  -- {comments[name]}' if name in comments else ''}"
        for index, (name, line) in enumerate(lines_by_name.items())
    ]
    return "\n".join([f"CREATE TABLE {table.name} (", *body, ");"])


def _write_null(nullable: object) -> str:
    return "" if nullable else " NOT NULL"


def _write_comment(column: SchemaColumn) -> str:
    """What the name of the column does not say."""
    if column.flagged and column.trait and column.trait.flag:
        return f"1: {column.trait.flag[0]}, 0: {column.trait.flag[1]}"
    if column.dated:
        return f"{column.noun}, as YYYY-MM-DD"
    return "" if column.noun == column.name else column.noun


# Rows for a schema.

Cell = int | float | str | None
Rows = Mapping[str, Sequence[tuple[Cell, ...]]]
"""Rows by table; the order of the cells is key, label, links, other columns."""
ComparedValues = Mapping[tuple[str, str], Sequence[int | float | str]]
"""By table and column, the values that a query compares with."""
_COMPARED_SHARE = 30
"""Percent of cells of a compared column that get a compared value."""
_ALONE_SHARE = 15
"""Percent of rows without child rows."""
_CHANCES = 100 * 100
"""One draw decides by its last two digits whether a cell gets a compared value, and as a whole whether it is NULL."""
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


def list_compared_values(query: Query) -> ComparedValues:
    tables = {source.alias: source.table for source in list_sources(query)}
    values: dict[tuple[str, str], list[int | float | str]] = {}
    for column, value in list_literals(query):
        values.setdefault((tables[column.table], column.name), []).append(value)
    return values


def generate_rows(
    schema: DatabaseSchema, seed: str, size: TableSizes, compared: ComparedValues, needed: Collection[str] | None = None
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
            *[_make_column(column, compared.get((table.name, column.name), ())) for column in table.columns],
        ]
        rows[table.name] = [
            (first + index, *labels[index : index + 1], *cells)
            for index, cells in enumerate(_draw_cells(draws, columns, count))
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
    compared: Sequence[Cell]
    span: int
    is_link: bool


def _draw_labels(draws: SeededRandom, label: EntityLabel | None, count: int) -> list[Cell]:
    labels: dict[Cell, None] = {}
    while label is not None and len(labels) < count:
        labels[_draw_item(draws, _list_labels(label.pools))] = None
    return list(labels)


@lru_cache(maxsize=256)
def _list_labels(pools: tuple[str, ...]) -> _Choices:
    words = [POOLS[pool] for pool in pools]
    return _Choices([" ".join(reversed(some)) for some in product(*reversed(words))], tuple(map(len, words)))


def _make_partner_column(keys: Sequence[Cell], null: int) -> _Column:
    """Uneven on purpose: some rows get many child rows, others few or none, so that joins and groups differ."""
    taken = len(keys) - len(keys) * _ALONE_SHARE // 100
    return _Column(_Choices(keys[:taken], (taken,)), null, (), taken, is_link=True)


def _make_column(column: SchemaColumn, compared: Sequence[Cell]) -> _Column:
    trait = column.trait
    choices = _list_choices(column)
    return _Column(choices, 100 * trait.unknown if trait else 0, compared, _CHANCES * len(choices.items), is_link=False)


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
    numbers = [_compute_number(within, index) for index in range(_count_numbers(within))]
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
            choices, unknown, compared, span, is_link = column
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
            elif compared and chance % 100 < _COMPARED_SHARE:
                left, index = divmod(left // _CHANCES, len(compared))
                cells.append(compared[index])
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
    if column.compared and chance % 100 < _COMPARED_SHARE:
        return draws.one(column.compared)
    return _draw_item(draws, column.choices)


def _draw_partner(draws: SeededRandom, column: _Column) -> Cell:
    if column.unknown and draws.chance(column.unknown):
        return None
    index = draws.below(column.span)
    return column.choices.items[min(index, draws.below(column.span)) if index % 2 else index]


def _draw_item(draws: SeededRandom, choices: _Choices) -> Cell:
    if draws.left >= _ENOUGH:
        draws.left, index = divmod(draws.left, len(choices.items))
        return choices.items[index]
    index, step = 0, 1
    for bound in choices.bounds:
        index += step * draws.below(bound)
        step *= bound
    return choices.items[index]


def draw_number(draws: SeededRandom, within: tuple[float, ...]) -> int | float:
    return _compute_number(within, draws.below(_count_numbers(within)))


def _count_numbers(within: tuple[float, ...]) -> int:
    low, high, step = (*within, 1.0)[:3]
    return round((high - low) / step) + 1


def _compute_number(within: tuple[float, ...], index: int) -> int | float:
    low, _, step = (*within, 1.0)[:3]
    number = low + step * index
    return number if any(part % 1 for part in within) else int(number)


def draw_date(draws: SeededRandom, years: tuple[int, int]) -> str:
    """Two in five dates are one of few days, so that some dates repeat."""
    return _write_date(years[0] + draws.below(years[1] - years[0] + 1), draws.below(12), draws.below(_DAYS))


def _write_date(year: int, month: int, day: int) -> str:
    return f"{year}-{month + 1:02}-{day + 1:02}" if day < 28 else f"{year}-{month // 3 * 3 + 1:02}-15"


# SQLite's date and time functions, without the current time and the local time zone: two graders agree on a result.

_MOMENT_PLACES: Final = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1}
"""Position of the time among the arguments; without it SQLite takes the current time."""
_TIME_ZONES: Final = {"localtime", "utc"}
_MOST_ARGUMENTS = 8

_Argument = int | float | str | bytes | None

LONGEST_TEXT: Final = 10_000_000
"""Bytes of a value, on every connection that a stranger's query has to do with; most have a lower limit."""

# The real functions, on a connection of their own: on the restricted one their names stand for those below.
_plain = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
_plain.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)


def _call_date_function(name: str, *arguments: _Argument) -> _Argument:
    """ValueError if the result depends on the current time or the time zone."""
    words = [one.strip().lower() for one in arguments if isinstance(one, str)]
    moment = arguments[_MOMENT_PLACES[name] :]
    if not moment or len(arguments) > _MOST_ARGUMENTS or "now" in words or not _TIME_ZONES.isdisjoint(words):
        raise ValueError("the time at which a query runs is no part of an answer")
    marks = ", ".join("?" * len(arguments))
    row: tuple[_Argument] = _plain.execute(f"SELECT {name}({marks})", arguments).fetchone()
    return row[0]


DATE_FUNCTIONS: Final[Mapping[str, Callable[..., _Argument]]] = {
    name: partial(_call_date_function, name) for name in _MOMENT_PLACES
}


# Functions of texts: those that older versions of SQLite lack, with `most` as the length of the longest text of their
# connection, and that of formats, which repeats a letter without a look at any limit: for 8 s in one step.

_REPEATED: Final = re.compile(r"\.(?:\*|0*[1-9][0-9]{5})[0-9l]*c")
"""In a format: a letter so many times, or as often as an argument says."""


def _format_text(most: int, *arguments: _Argument) -> _Argument:
    """ValueError for what gets too long."""
    if not arguments or arguments[0] is None:
        return None
    if _REPEATED.search(str(arguments[0])) is not None:
        raise ValueError("the format asks for too much")
    marks = ", ".join("?" * len(arguments))
    row: tuple[str | None] = _plain.execute(f"SELECT printf({marks})", arguments).fetchone()
    if row[0] is None or len(row[0]) > most:
        raise ValueError("the text is too long")
    return row[0]


def _concatenate(most: int, *arguments: _Argument) -> str:
    """As `concat` of SQLite 3.44: NULL is the empty text."""
    return _join_texts(most, "", [_cast_to_text(one) for one in arguments])


def _concatenate_with(most: int, separator: _Argument, *arguments: _Argument) -> str | None:
    """As `concat_ws` of SQLite 3.44: NULL is left out."""
    if separator is None:
        return None
    return _join_texts(most, _cast_to_text(separator), [_cast_to_text(one) for one in arguments if one is not None])


def _join_texts(most: int, separator: str, texts: Sequence[str]) -> str:
    """ValueError for a text that SQLite would refuse once it is made."""
    if sum(map(len, texts)) + len(separator) * (len(texts) - 1) > most:
        raise ValueError("the text is too long")
    return separator.join(texts)


def _cast_to_text(cell: _Argument) -> str:
    if isinstance(cell, str) or cell is None:
        return cell or ""
    row: tuple[str] = _plain.execute("SELECT CAST(? AS TEXT)", (cell,)).fetchone()
    return row[0]


TEXT_FUNCTIONS: Final[Mapping[str, Callable[..., _Argument]]] = {
    "concat": _concatenate,
    "concat_ws": _concatenate_with,
    "format": _format_text,
    "printf": _format_text,
}


# What a prompt shows of the rows.

_SAMPLE_ROWS: Final = 3


def write_samples(schema: DatabaseSchema, rows: Rows) -> str:
    return "\n\n".join(_write_sample(table, rows) for table in schema.tables)


def _write_sample(table: SchemaTable, rows: Rows) -> str:
    names = [table.key, *([table.label.name] if table.has_label else [])]
    names += [link.name for link in table.links] + [column.name for column in table.columns]
    lines = [" | ".join(map(_write_cell, row)) for row in rows[table.name][:_SAMPLE_ROWS]]
    return "\n".join([f"{table.name}:", " | ".join(names), *lines])


def _write_cell(cell: Cell) -> str:
    return "NULL" if cell is None else str(cell)
