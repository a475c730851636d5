"""The schema of one task: some tables of a domain with some of their columns, each under one of its names."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Final, Literal

from app.envs.text_to_sql.tasks.database_domains import (
    POOLS,
    ColumnTemplate,
    DatabaseDomain,
    Entity,
    EntityRelation,
    read_domains,
)
from app.toolkit.seeded import SeededRandom

Level = Literal["easy", "medium", "hard"]

_TABLES: Final = {"easy": (2, 3), "medium": (2, 4), "hard": (3, 5)}
_RESERVED_WORDS: Final = {"order", "match"}
"""Reserved words of SQL."""


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
    tables = tuple(_draw_table(draws, thing, names, key, 2 if level == "easy" else 3) for thing in things)
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
    said = {line.split(" ")[0]: line for line in lines}
    comments = {column.name: comment for column in table.columns if (comment := _write_comment(column))}
    last = len(said) - 1
    body = [
        f"  {line}{',' * (place < last)}{f'  -- {comments[name]}' if name in comments else ''}"
        for place, (name, line) in enumerate(said.items())
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
