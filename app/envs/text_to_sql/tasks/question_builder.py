"""Building blocks of questions: filters in SQL and in words, phrases for rows and columns, random choices."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter

from app.domain.digests import digest_of_text
from app.envs.text_to_sql.tasks.database_schemas import DatabaseSchema, SchemaColumn, SchemaLink, SchemaTable
from app.envs.text_to_sql.tasks.query_ast import (
    ColumnRef,
    Compare,
    Cond,
    InList,
    LiteralValue,
    NullCheck,
    Operator,
    OrderBy,
    Query,
    SelectQuery,
    TableSource,
    Year,
)
from app.envs.text_to_sql.tasks.row_generation import draw_date, draw_number
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

_QUESTIONS = Path(__file__).with_name("questions.yaml")
_TEXTS = read_packaged_data(_QUESTIONS, TypeAdapter(dict[str, tuple[str, ...]]))
QUESTION_TEXTS: Final = {shape: Phrasings(texts) for shape, texts in _TEXTS.items()}
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
ONCE_SHARE = 40
"""Percent of questions about equal rows that ask for each once."""
FEW_YEARS = 6

Slots = dict[str, str | int]
ItemT = TypeVar("ItemT")


class UnsuitableSchema(Exception):
    """The schema lacks what a question needs; another schema is drawn."""


@dataclass(frozen=True)
class SqlQuestion:
    """`traps`: wrong queries that are likely for this question."""

    query: Query
    question: str
    traps: tuple[Query, ...] = ()


@dataclass(frozen=True)
class QuestionFilter:
    """`direct`: the words follow the noun directly, without "and"."""

    holds: Cond
    said: str
    direct: bool = False


class QuestionBuilder:
    """Draws the parts of a question about one schema."""

    def __init__(self, schema: DatabaseSchema, draws: SeededRandom) -> None:
        self.schema = schema
        self.draws = draws

    def say(self, shape: str, **slots: str | int) -> str:
        text = _VOWEL.sub(r"\1n ", QUESTION_TEXTS[shape].say(self.draws, **slots))
        return text[0].upper() + text[1:]

    def ask_about_repeats(self, shape: str, query: SelectQuery, slots: Slots) -> SqlQuestion:
        """A question about rows of which several are equal: all of them count, or each is listed once."""
        every, once = replace(query, distinct=False), replace(query, distinct=True)
        if self.draws.chance(ONCE_SHARE):
            return SqlQuestion(once, self.say(f"{shape}_once", **slots), (every,))
        return SqlQuestion(every, self.say(shape, **slots), (once,))

    def pick(self, items: Sequence[ItemT]) -> ItemT:
        if not items:
            raise UnsuitableSchema
        return self.draws.one(items)

    def pick_table(self, fits: Callable[[SchemaTable], object] = bool) -> SchemaTable:
        return self.pick([table for table in self.schema.tables if fits(table)])

    def pick_family(
        self, fits: Callable[[SchemaTable, SchemaTable], object] = lambda child, parent: True
    ) -> tuple[SchemaTable, SchemaLink, SchemaTable]:
        """A child table, its link, and the parent table."""
        every = [(child, link, self.schema.find_table(link.to)) for child in self.schema.tables for link in child.links]
        return self.pick([(child, link, parent) for child, link, parent in every if fits(child, parent)])

    def pick_junction(self) -> tuple[SchemaTable, SchemaLink, SchemaTable, SchemaLink, SchemaTable]:
        """A table that links two others, the first of which has names."""
        middle = self.pick_table(lambda table: len(table.links) > 1)
        one, other = self.draws.shuffled(middle.links)[:2]
        left, right = self.schema.find_table(one.to), self.schema.find_table(other.to)
        if not left.has_label or one.tie.unknown:
            raise UnsuitableSchema
        return middle, one, left, other, right

    def pick_column(self, table: SchemaTable, fits: Callable[[SchemaColumn], object]) -> SchemaColumn:
        return self.pick([column for column in table.columns if fits(column)])

    def pick_columns(
        self, table: SchemaTable, count: int, without: Sequence[SchemaColumn] = ()
    ) -> tuple[SchemaColumn, ...]:
        """The label and at most `count` other columns, without flags."""
        others = [column for column in table.columns if column not in without and not column.flagged]
        return (table.label, *self.draws.some(others, count))

    def pick_repeating_columns(self, table: SchemaTable, most: int) -> tuple[SchemaColumn, ...]:
        """At least one column with few values, so that equal rows are frequent, and at most so many."""
        few = [column for column in table.columns if column.values and column != table.label]
        if not few:
            raise UnsuitableSchema
        return tuple(self.draws.some(few, min(len(few), 1 + self.draws.below(most))))

    def draw_filters(
        self, table: SchemaTable, count: int, alias: str = "", plain: bool = False
    ) -> tuple[QuestionFilter, ...]:
        """Filters on different columns. `plain`: none of them asks whether a value is known."""
        columns = self.draws.some(table.columns, count)
        if len(columns) < count:
            raise UnsuitableSchema
        return tuple(self.draw_filter(column, alias or table.name, plain) for column in columns)

    def draw_filter(self, column: SchemaColumn, alias: str, plain: bool = False) -> QuestionFilter:
        col, trait = ColumnRef(alias, column.name), column.trait
        if column.nullable and not plain and self.draws.chance(35):
            known = self.draws.chance(40)
            return QuestionFilter(NullCheck(col, known), f"whose {column.noun} is {'known' if known else 'not known'}")
        if trait is not None and trait.flag is not None:
            is_so = self.draws.chance(60)
            return QuestionFilter(
                Compare(col, "=", LiteralValue(int(is_so))), trait.flag[0 if is_so else 1], direct=True
            )
        if column.numeric:
            return self._draw_number_filter(column, col)
        return self._draw_date_filter(column, col) if column.dated else self._draw_choice_filter(column, col)

    def draw_threshold(self, column: SchemaColumn) -> int | float:
        """A value away from both ends of the range."""
        within = column.trait.range if column.trait and column.trait.range else (0.0, 1.0)
        low, high, step = (*within, 1.0)[:3]
        away = step * max(1, round((high - low) / step) // 5)
        value = draw_number(self.draws, (low + away, high - away, step))
        return value if column.type == "REAL" else int(value)

    def _draw_number_filter(self, column: SchemaColumn, col: ColumnRef) -> QuestionFilter:
        low, high, step = (*(column.trait.range if column.trait and column.trait.range else ()), 1.0)[:3]
        few = (high - low) / step <= FEW_VALUES
        operator = self.draws.one((*_BOUNDS, "=") if few else _BOUNDS)
        value = self.draw_threshold(column)
        words = (_DATES[operator],) if column.noun.endswith("year") else _NUMBERS[operator]
        simple = " of " not in column.noun and " in " not in column.noun
        said = self.draws.one([text for text in words if simple or "{a}" not in text])
        return QuestionFilter(
            Compare(col, operator, LiteralValue(value)),
            said.format(noun=column.noun, a=f"a {column.noun}", value=f"{value:g}"),
        )

    def _draw_date_filter(self, column: SchemaColumn, col: ColumnRef) -> QuestionFilter:
        first, last = column.trait.date if column.trait and column.trait.date else (0, 0)
        if last - first < FEW_YEARS and self.draws.chance(50):
            year = first + self.draws.below(last - first + 1)
            return QuestionFilter(Compare(Year(col), "=", LiteralValue(year)), f"whose {column.noun} is in {year}")
        away = (last - first) // 5
        day = draw_date(self.draws, (first + away, last - away))
        operator = self.draws.one(_BOUNDS)
        return QuestionFilter(
            Compare(col, operator, LiteralValue(day)), _DATES[operator].format(noun=column.noun, value=day)
        )

    def _draw_choice_filter(self, column: SchemaColumn, col: ColumnRef) -> QuestionFilter:
        one, other = self.draws.some(column.values, 2)
        if len(column.values) > 3 and self.draws.chance(20):
            return QuestionFilter(
                InList(col, (LiteralValue(one), LiteralValue(other))), f"whose {column.noun} is '{one}' or '{other}'"
            )
        if not column.nullable and self.draws.chance(15):
            return QuestionFilter(Compare(col, "<>", LiteralValue(one)), f"whose {column.noun} is not '{one}'")
        said = column.trait.said if column.trait else None
        words = said.format(f"'{one}'") if said else f"whose {column.noun} is '{one}'"
        return QuestionFilter(Compare(col, "=", LiteralValue(one)), words, direct=said is not None)


def join_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def describe_columns(columns: Sequence[SchemaColumn]) -> str:
    return join_words([column.noun for column in columns])


def describe_rows(noun: str, filters: Sequence[QuestionFilter]) -> str:
    """`customers from 'Lyon' whose age is above 30 and whose city is not known`."""
    direct = [one.said for one in filters if one.direct]
    others = [one.said for one in filters if not one.direct]
    return " ".join([noun, *direct, *([" and ".join(others)] if others else [])])


def list_conditions(*filters: Sequence[QuestionFilter]) -> tuple[Cond, ...]:
    return tuple(one.holds for some in filters for one in some)


def make_source(table: SchemaTable, alias: str = "") -> TableSource:
    return TableSource(table.name, alias or table.name)


def make_column_ref(table: SchemaTable, column: SchemaColumn | SchemaLink, alias: str = "") -> ColumnRef:
    return ColumnRef(alias or table.name, column.name)


def make_key_ref(table: SchemaTable, alias: str = "") -> ColumnRef:
    return ColumnRef(alias or table.name, table.key)


def make_label_ref(table: SchemaTable, alias: str = "") -> ColumnRef:
    return ColumnRef(alias or table.name, table.label.name)


def make_join_condition(child: SchemaTable, link: SchemaLink, parent: SchemaTable, child_alias: str = "") -> Compare:
    """The condition that joins the rows of both tables."""
    return Compare(ColumnRef(child_alias or child.name, link.name), "=", make_key_ref(parent))


def choose_pronoun(table: SchemaTable) -> str:
    return "their" if table.thing.person else "its"


def order_by_label(table: SchemaTable) -> tuple[OrderBy, str]:
    """Tie-breaker by label. Numbers go downwards, since rows are stored upwards."""
    said = "in alphabetical order" if table.has_label else "from the highest down"
    return OrderBy(make_label_ref(table), down=not table.has_label), said
