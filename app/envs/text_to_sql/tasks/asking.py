"""Building blocks of questions: filters in SQL and in words, phrases for rows and columns, random choices."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter

from app.domain.digests import digest_of_text
from app.envs.text_to_sql.tasks.filling import date, numbers
from app.envs.text_to_sql.tasks.queries import (
    Among,
    Col,
    Compare,
    Cond,
    Known,
    Lit,
    Operator,
    Order,
    Query,
    Source,
    Year,
)
from app.envs.text_to_sql.tasks.schemas import Column, Link, Schema, Table
from app.toolkit.package_data import packaged_data
from app.toolkit.seeded import Draws
from app.toolkit.templates import Phrasings

_QUESTIONS = Path(__file__).with_name("questions.yaml")
_TEXTS = packaged_data(_QUESTIONS, TypeAdapter(dict[str, tuple[str, ...]]))
SAYINGS: Final = {shape: Phrasings(texts) for shape, texts in _TEXTS.items()}
DIGEST: Final = digest_of_text(_QUESTIONS.read_text(encoding="utf-8"))

_NUMBERS: Final[dict[Operator, tuple[str, ...]]] = {
    ">": ("whose {noun} is above {value}", "whose {noun} is greater than {value}", "with {a} of more than {value}"),
    ">=": ("whose {noun} is at least {value}", "whose {noun} is {value} or more", "with {a} of at least {value}"),
    "<": ("whose {noun} is below {value}", "whose {noun} is smaller than {value}", "with {a} of less than {value}"),
    "<=": ("whose {noun} is at most {value}", "whose {noun} is {value} or less", "with {a} of at most {value}"),
    "=": ("whose {noun} is {value}", "whose {noun} is exactly {value}"),
}
_DATES: Final[dict[Operator, str]] = {
    ">": "whose {noun} is after {value}",
    ">=": "whose {noun} is {value} or later",
    "<": "whose {noun} is before {value}",
    "<=": "whose {noun} is {value} or earlier",
    "=": "whose {noun} is {value}",
}
_BOUNDS: Final[tuple[Operator, ...]] = (">", ">=", "<", "<=")
_VOWEL: Final = re.compile(r"\b([Aa]) (?=hour|(?!uni|eu|one\b)[aeiou])")
"""A vowel after an article: templates always write `a`."""
FEW_VALUES = 12
FEW_YEARS = 6

Slots = dict[str, str | int]

ItemT = TypeVar("ItemT")


class Unfit(Exception):
    """The schema lacks what a question needs; another schema is drawn."""


@dataclass(frozen=True)
class Asked:
    """`traps`: wrong queries that are likely for this question."""

    query: Query
    question: str
    traps: tuple[Query, ...] = ()


@dataclass(frozen=True)
class Filter:
    """`direct`: the words follow the noun directly, without "and"."""

    holds: Cond
    said: str
    direct: bool = False


class Asking:
    """Draws the parts of a question about one schema."""

    def __init__(self, schema: Schema, draws: Draws) -> None:
        self.schema = schema
        self.draws = draws

    def say(self, shape: str, **slots: str | int) -> str:
        text = _VOWEL.sub(r"\1n ", SAYINGS[shape].say(self.draws, **slots))
        return text[0].upper() + text[1:]

    def pick(self, items: Sequence[ItemT]) -> ItemT:
        if not items:
            raise Unfit
        return self.draws.one(items)

    def table(self, fits: Callable[[Table], object] = bool) -> Table:
        return self.pick([table for table in self.schema.tables if fits(table)])

    def family(self, fits: Callable[[Table, Table], object] = lambda child, parent: True) -> tuple[Table, Link, Table]:
        """A child table, its link, and the parent table."""
        every = [(child, link, self.schema.table(link.to)) for child in self.schema.tables for link in child.links]
        return self.pick([(child, link, parent) for child, link, parent in every if fits(child, parent)])

    def between(self) -> tuple[Table, Link, Table, Link, Table]:
        """A table that links two others, the first of which has names."""
        middle = self.table(lambda table: len(table.links) > 1)
        one, other = self.draws.shuffled(middle.links)[:2]
        left, right = self.schema.table(one.to), self.schema.table(other.to)
        if not left.named or one.tie.unknown:
            raise Unfit
        return middle, one, left, other, right

    def column(self, table: Table, fits: Callable[[Column], object]) -> Column:
        return self.pick([column for column in table.columns if fits(column)])

    def columns(self, table: Table, count: int, without: Sequence[Column] = ()) -> tuple[Column, ...]:
        """The label and at most `count` other columns, without flags."""
        others = [column for column in table.columns if column not in without and not column.flagged]
        return (table.label, *self.draws.some(others, count))

    def filters(self, table: Table, count: int, alias: str = "", plain: bool = False) -> tuple[Filter, ...]:
        """Filters on different columns. `plain`: none of them asks whether a value is known."""
        columns = self.draws.some(table.columns, count)
        if len(columns) < count:
            raise Unfit
        return tuple(self.filter(column, alias or table.name, plain) for column in columns)

    def filter(self, column: Column, alias: str, plain: bool = False) -> Filter:
        col, trait = Col(alias, column.name), column.trait
        if column.nullable and not plain and self.draws.chance(35):
            known = self.draws.chance(40)
            return Filter(Known(col, known), f"whose {column.noun} is {'known' if known else 'not known'}")
        if trait is not None and trait.flag is not None:
            is_so = self.draws.chance(60)
            return Filter(Compare(col, "=", Lit(int(is_so))), trait.flag[0 if is_so else 1], direct=True)
        if column.numeric:
            return self._number(column, col)
        return self._date(column, col) if column.dated else self._choice(column, col)

    def threshold(self, column: Column) -> int | float:
        """A value away from both ends of the range."""
        within = column.trait.range if column.trait and column.trait.range else (0.0, 1.0)
        low, high, step = (*within, 1.0)[:3]
        away = step * max(1, round((high - low) / step) // 5)
        value = numbers((low + away, high - away, step))(self.draws)
        return value if column.type == "REAL" else int(value)

    def _number(self, column: Column, col: Col) -> Filter:
        low, high, step = (*(column.trait.range if column.trait and column.trait.range else ()), 1.0)[:3]
        few = (high - low) / step <= FEW_VALUES
        operator = self.draws.one((*_BOUNDS, "=") if few else _BOUNDS)
        value = self.threshold(column)
        words = (_DATES[operator],) if column.noun.endswith("year") else _NUMBERS[operator]
        simple = " of " not in column.noun and " in " not in column.noun
        said = self.draws.one([text for text in words if simple or "{a}" not in text])
        return Filter(
            Compare(col, operator, Lit(value)), said.format(noun=column.noun, a=f"a {column.noun}", value=f"{value:g}")
        )

    def _date(self, column: Column, col: Col) -> Filter:
        first, last = column.trait.date if column.trait and column.trait.date else (0, 0)
        if last - first < FEW_YEARS and self.draws.chance(50):
            year = first + self.draws.below(last - first + 1)
            return Filter(Compare(Year(col), "=", Lit(year)), f"whose {column.noun} is in {year}")
        away = (last - first) // 5
        day = date(self.draws, (first + away, last - away))
        operator = self.draws.one(_BOUNDS)
        return Filter(Compare(col, operator, Lit(day)), _DATES[operator].format(noun=column.noun, value=day))

    def _choice(self, column: Column, col: Col) -> Filter:
        one, other = self.draws.some(column.values, 2)
        if len(column.values) > 3 and self.draws.chance(20):
            return Filter(Among(col, (Lit(one), Lit(other))), f"whose {column.noun} is '{one}' or '{other}'")
        if not column.nullable and self.draws.chance(15):
            return Filter(Compare(col, "<>", Lit(one)), f"whose {column.noun} is not '{one}'")
        said = column.trait.said if column.trait else None
        words = said.format(f"'{one}'") if said else f"whose {column.noun} is '{one}'"
        return Filter(Compare(col, "=", Lit(one)), words, direct=said is not None)


def listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def the(columns: Sequence[Column]) -> str:
    return listed([column.noun for column in columns])


def rows(noun: str, filters: Sequence[Filter]) -> str:
    """`customers from 'Lyon' whose age is above 30 and whose city is not known`."""
    direct = [one.said for one in filters if one.direct]
    others = [one.said for one in filters if not one.direct]
    return " ".join([noun, *direct, *([" and ".join(others)] if others else [])])


def held(*filters: Sequence[Filter]) -> tuple[Cond, ...]:
    return tuple(one.holds for some in filters for one in some)


def source(table: Table, alias: str = "") -> Source:
    return Source(table.name, alias or table.name)


def col(table: Table, column: Column | Link, alias: str = "") -> Col:
    return Col(alias or table.name, column.name)


def key(table: Table, alias: str = "") -> Col:
    return Col(alias or table.name, table.key)


def label(table: Table, alias: str = "") -> Col:
    return Col(alias or table.name, table.label.name)


def joined(child: Table, link: Link, parent: Table, child_alias: str = "") -> Compare:
    """The condition that joins the rows of both tables."""
    return Compare(Col(child_alias or child.name, link.name), "=", key(parent))


def their(table: Table) -> str:
    return "their" if table.thing.person else "its"


def by_label(table: Table) -> tuple[Order, str]:
    """Tie-breaker by label. Numbers go downwards, since rows are stored upwards."""
    if table.named:
        return Order(label(table)), "in alphabetical order"
    return Order(label(table), down=True), "from the highest down"
