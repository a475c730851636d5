"""Questions about one database, each with its query, and what all questions are built from.

A shape is a function that draws one question from a `QuestionBuilder`: it picks tables, columns and filters that the
schema has, and writes the query and the words side by side. A schema that lacks what the shape needs raises
`UnsuitableSchema`. The name of the function is the name of the shape in a task's metadata. The shapes of this module
ask about one table; those of `join_questions` ask about several.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter

from app.domain.values import digest_of_text
from app.envs.text_to_sql.databases import (
    HIDDEN,
    DatabaseSchema,
    SchemaColumn,
    SchemaLink,
    SchemaTable,
    draw_date,
    draw_number,
)
from app.envs.text_to_sql.queries import (
    Aggregate,
    AggregateName,
    ColumnRef,
    Compare,
    Cond,
    Expr,
    InList,
    LiteralValue,
    NullCheck,
    Operator,
    OrCondition,
    OrderBy,
    Query,
    Round,
    ScalarSubquery,
    SelectQuery,
    TableSource,
    Year,
)
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, read_packaged_data

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
_FEW_VALUES = 12
"""Steps of a range up to which a filter may ask for one number exactly: more would rarely have a row."""
_FEW_YEARS = 6
"""Years of a range up to which a filter may ask for one year."""
_ONCE_SHARE = 40
"""Percent of questions about equal rows that ask for each once."""

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
    words: str
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
        if self.draws.chance(_ONCE_SHARE):
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
            is_known = self.draws.chance(40)
            return QuestionFilter(
                NullCheck(col, is_known), f"whose {column.noun} is {'known' if is_known else 'not known'}"
            )
        if trait is not None and trait.flag is not None:
            is_so = self.draws.chance(60)
            return QuestionFilter(
                Compare(col, "=", LiteralValue(int(is_so))), trait.flag[0 if is_so else 1], direct=True
            )
        if column.numeric:
            return self._draw_number_filter(column, col)
        return self._draw_date_filter(column, col) if column.dated else self._draw_choice_filter(column, col)

    def draw_threshold(self, column: SchemaColumn) -> int | float:
        """A value away from both ends of the range, so that some rows lie on either side."""
        within = column.trait.range if column.trait and column.trait.range else (0.0, 1.0)
        low, high, step = (*within, 1.0)[:3]
        away = step * max(1, round((high - low) / step) // 5)
        value = draw_number(self.draws, (low + away, high - away, step))
        return value if column.type == "REAL" else int(value)

    def _draw_number_filter(self, column: SchemaColumn, col: ColumnRef) -> QuestionFilter:
        low, high, step = (*(column.trait.range if column.trait and column.trait.range else ()), 1.0)[:3]
        few = (high - low) / step <= _FEW_VALUES
        operator = self.draws.one((*_BOUNDS, "=") if few else _BOUNDS)
        value = self.draw_threshold(column)
        words = (_DATES[operator],) if column.noun.endswith("year") else _NUMBERS[operator]
        simple = " of " not in column.noun and " in " not in column.noun
        phrase = self.draws.one([text for text in words if simple or "{a}" not in text])
        return QuestionFilter(
            Compare(col, operator, LiteralValue(value)),
            phrase.format(noun=column.noun, a=f"a {column.noun}", value=f"{value:g}"),
        )

    def _draw_date_filter(self, column: SchemaColumn, col: ColumnRef) -> QuestionFilter:
        first, last = column.trait.date if column.trait and column.trait.date else (0, 0)
        if last - first < _FEW_YEARS and self.draws.chance(50):
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
        template = column.trait.said if column.trait else None
        words = template.format(f"'{one}'") if template else f"whose {column.noun} is '{one}'"
        return QuestionFilter(Compare(col, "=", LiteralValue(one)), words, direct=template is not None)


def join_words(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def describe_columns(columns: Sequence[SchemaColumn]) -> str:
    return join_words([column.noun for column in columns])


def describe_rows(noun: str, filters: Sequence[QuestionFilter]) -> str:
    """`customers from 'Lyon' whose age is above 30 and whose city is not known`."""
    direct = [one.words for one in filters if one.direct]
    others = [one.words for one in filters if not one.direct]
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
    order = "in alphabetical order" if table.has_label else "from the highest down"
    return OrderBy(make_label_ref(table), down=not table.has_label), order


# The shapes of one table.

_ROUNDING = ", rounded to 2 decimal places"
_FEW_NUMBERS = 40
_AGGREGATES: Final[dict[str, AggregateName]] = {"highest": "MAX", "lowest": "MIN", "average": "AVG", "total": "SUM"}


def is_numeric(column: SchemaColumn) -> bool:
    return column.numeric


def is_plain_number(column: SchemaColumn) -> bool:
    return column.numeric and not column.nullable


def is_plain_choice(column: SchemaColumn) -> bool:
    return bool(column.values) and not column.nullable


def build_aggregate(asking: QuestionBuilder, column: SchemaColumn, of: ColumnRef) -> tuple[Expr, Slots]:
    """An aggregate over a column, with its words and a note on rounding."""
    word = asking.pick([word for word in _AGGREGATES if word != "total" or (column.trait and column.trait.sums)])
    over: Expr = Aggregate(_AGGREGATES[word], of)
    slots: Slots = {"figure": f"{word} {column.noun}", "rounding": _ROUNDING * (word == "average")}
    return (Round(over) if word == "average" else over), slots


def estimate_group_size(table: SchemaTable, group: SchemaColumn, filters: Sequence[QuestionFilter]) -> int:
    """Rough number of hidden rows per value of the group column."""
    return max(2, HIDDEN.count_rows(table) * 4 // (len(group.values) * (9 if filters else 4)))


def draw_other_filters(
    asking: QuestionBuilder, table: SchemaTable, column: SchemaColumn, count: int, *more: SchemaColumn, alias: str = ""
) -> tuple[QuestionFilter, ...]:
    """Filters on other columns than these."""
    free = [one for one in table.columns if one not in (column, *more)]
    chosen = asking.draws.some(free, count)
    return tuple(asking.draw_filter(one, alias or table.name) for one in chosen)


def _has_few_numbers(column: SchemaColumn) -> bool:
    """Few different values, so several rows share the highest one."""
    low, high, step = (*(column.trait.range if column.trait and column.trait.range else (0.0, 1e9)), 1.0)[:3]
    return (high - low) / step <= _FEW_NUMBERS


def listing(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table()
    filters = asking.draw_filters(table, 1 + asking.draws.chance(55))
    columns = asking.pick_columns(table, asking.draws.below(3))
    query = SelectQuery(
        tuple(make_column_ref(table, one) for one in columns), make_source(table), where=list_conditions(filters)
    )
    return SqlQuestion(
        query, asking.say("listing", columns=describe_columns(columns), things=describe_rows(table.many, filters))
    )


def listing_all(asking: QuestionBuilder) -> SqlQuestion:
    """Of level `first`: one column, without a condition."""
    table = asking.pick_table()
    columns = asking.pick_columns(table, 0)
    query = SelectQuery(tuple(make_column_ref(table, one) for one in columns), make_source(table))
    return SqlQuestion(query, asking.say("listing", columns=describe_columns(columns), things=table.many))


def counting_all(asking: QuestionBuilder) -> SqlQuestion:
    """Of level `first`: without a condition."""
    table = asking.pick_table()
    query = SelectQuery((Aggregate("COUNT"),), make_source(table))
    return SqlQuestion(query, asking.say("counting", things=table.many), _count_without_repeats(query, table))


def counting(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table()
    filters = asking.draw_filters(table, 1 + asking.draws.chance(50))
    query = SelectQuery((Aggregate("COUNT"),), make_source(table), where=list_conditions(filters))
    things = describe_rows(table.many, filters)
    return SqlQuestion(query, asking.say("counting", things=things), _count_without_repeats(query, table))


def _count_without_repeats(query: SelectQuery, table: SchemaTable) -> tuple[SelectQuery, ...]:
    """What counting different values instead of rows gives."""
    few = next((column for column in table.columns if column.values), None)
    if few is None:
        return ()
    return (replace(query, outputs=(Aggregate("COUNT", make_column_ref(table, few), distinct=True),)),)


def figure(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(map(is_numeric, table.columns)))
    column = asking.pick_column(table, is_numeric)
    filters = draw_other_filters(asking, table, column, 1)
    value, words = build_aggregate(asking, column, make_column_ref(table, column))
    query = SelectQuery((value,), make_source(table), where=list_conditions(filters))
    return SqlQuestion(query, asking.say("figure", things=describe_rows(table.many, filters), **words))


def different(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(map(is_plain_choice, table.columns)))
    column = asking.pick_column(table, is_plain_choice)
    filters = draw_other_filters(asking, table, column, 1)
    query = SelectQuery(
        (make_column_ref(table, column),), make_source(table), where=list_conditions(filters), distinct=True
    )
    return SqlQuestion(query, asking.say("different", noun=column.noun, things=describe_rows(table.many, filters)))


def first_ones(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(is_plain_number(column) or column.dated for column in table.columns))
    column = asking.pick_column(table, lambda column: is_plain_number(column) or column.dated)
    down, count = asking.draws.chance(50), 2 + asking.draws.below(5)
    last, sorting = order_by_label(table)
    filters = draw_other_filters(asking, table, column, asking.draws.below(2))
    query = SelectQuery(
        (make_label_ref(table), make_column_ref(table, column)),
        make_source(table),
        where=list_conditions(filters),
        order=(OrderBy(make_column_ref(table, column), down), last),
        limit=count,
    )
    question = asking.say(
        "first_ones",
        columns=describe_columns((table.label, column)),
        count=count,
        things=describe_rows(table.many, filters),
        most=("latest" if down else "earliest") if column.dated else ("highest" if down else "lowest"),
        noun=column.noun,
        label=table.label.noun,
        sorting=sorting,
    )
    return SqlQuestion(query, question)


def in_order(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(is_plain_number(column) or column.dated for column in table.columns))
    column = asking.pick_column(table, lambda column: is_plain_number(column) or column.dated)
    down = asking.draws.chance(50)
    last, sorting = order_by_label(table)
    filters = draw_other_filters(asking, table, column, 1)
    query = SelectQuery(
        (make_label_ref(table), make_column_ref(table, column)),
        make_source(table),
        where=list_conditions(filters),
        order=(OrderBy(make_column_ref(table, column), down), last),
    )
    lowest, highest = ("earliest", "latest") if column.dated else ("lowest", "highest")
    question = asking.say(
        "in_order",
        columns=describe_columns((table.label, column)),
        things=describe_rows(table.many, filters),
        noun=column.noun,
        way=f"{highest} first" if down else f"{lowest} first",
        label=table.label.noun,
        sorting=sorting,
    )
    return SqlQuestion(query, question)


def per_value(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(map(is_plain_choice, table.columns)))
    column = asking.pick_column(table, is_plain_choice)
    filters = draw_other_filters(asking, table, column, 1)
    group = make_column_ref(table, column)
    query = SelectQuery((group, Aggregate("COUNT")), make_source(table), where=list_conditions(filters), group=(group,))
    return SqlQuestion(
        query, asking.say("per_value", noun=column.noun, many=table.many, things=describe_rows(table.many, filters))
    )


def known_ones(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(column.nullable for column in table.columns))
    column = asking.pick_column(table, lambda column: column.nullable)
    filters = draw_other_filters(asking, table, column, 1)
    query = SelectQuery(
        (Aggregate("COUNT", make_column_ref(table, column)),), make_source(table), where=list_conditions(filters)
    )
    question = asking.say("known_ones", noun=column.noun, things=describe_rows(table.many, filters))
    different = Aggregate("COUNT", make_column_ref(table, column), distinct=True)
    return SqlQuestion(query, question, (replace(query, outputs=(different,)),))


def above_average(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(map(is_numeric, table.columns)))
    column = asking.pick_column(table, is_numeric)
    filters = draw_other_filters(asking, table, column, asking.draws.below(2))
    above = asking.draws.chance(50)
    everywhere = ScalarSubquery(
        SelectQuery((Aggregate("AVG", ColumnRef("every", column.name)),), make_source(table, "every"))
    )
    condition = Compare(make_column_ref(table, column), ">" if above else "<", everywhere)
    query = SelectQuery(
        (make_label_ref(table), make_column_ref(table, column)),
        make_source(table),
        where=(*list_conditions(filters), condition),
    )
    question = asking.say(
        "above_average",
        columns=describe_columns((table.label, column)),
        things=describe_rows(table.many, filters),
        noun=column.noun,
        above="above" if above else "below",
        many=table.many,
    )
    return SqlQuestion(query, question)


def having(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(
        lambda table: any(map(is_plain_choice, table.columns)) and any(map(is_numeric, table.columns))
    )
    group = asking.pick_column(table, is_plain_choice)
    column = asking.pick_column(table, is_numeric)
    filters = draw_other_filters(asking, table, group, asking.draws.below(2), column)
    value, words = build_aggregate(asking, column, make_column_ref(table, column))
    least = estimate_group_size(table, group, filters) + asking.draws.below(2)
    query = SelectQuery(
        (make_column_ref(table, group), value),
        make_source(table),
        where=list_conditions(filters),
        group=(make_column_ref(table, group),),
        having=(Compare(Aggregate("COUNT"), ">=", LiteralValue(least)),),
    )
    slots: Slots = {"noun": group.noun, "things": describe_rows(table.many, filters), "count": least, **words}
    return SqlQuestion(query, asking.say("having", **slots))


def the_highest(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(map(_has_few_numbers, table.columns)))
    column = asking.pick_column(table, _has_few_numbers)
    filters = draw_other_filters(asking, table, column, asking.draws.below(2))
    high = asking.draws.chance(50)
    inner = list_conditions(filters)
    best = ScalarSubquery(
        SelectQuery(
            (Aggregate("MAX" if high else "MIN", make_column_ref(table, column)),), make_source(table), where=inner
        )
    )
    query = SelectQuery(
        (make_label_ref(table),), make_source(table), where=(*inner, Compare(make_column_ref(table, column), "=", best))
    )
    # sorting for the first row would find NULL, or one of several rows that share the highest value
    only = (*inner, *((NullCheck(make_column_ref(table, column), True),) if column.nullable else ()))
    trap = SelectQuery(
        (make_label_ref(table),),
        make_source(table),
        where=only,
        order=(OrderBy(make_column_ref(table, column), high),),
        limit=1,
    )
    question = asking.say(
        "the_highest",
        label=table.label.noun,
        one=table.one,
        things=describe_rows(table.many, filters),
        most="highest" if high else "lowest",
        noun=column.noun,
    )
    return SqlQuestion(query, question, (trap,))


def per_year(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(column.dated for column in table.columns))
    column = asking.pick_column(table, lambda column: column.dated)
    filters = draw_other_filters(asking, table, column, 1)
    year = Year(make_column_ref(table, column))
    query = SelectQuery((year, Aggregate("COUNT")), make_source(table), where=list_conditions(filters), group=(year,))
    return SqlQuestion(
        query, asking.say("per_year", noun=column.noun, many=table.many, things=describe_rows(table.many, filters))
    )


def not_that(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(column.nullable and column.values for column in table.columns))
    column = asking.pick_column(table, lambda column: column.nullable and column.values)
    value = asking.pick(column.values)
    other = Compare(make_column_ref(table, column), "<>", LiteralValue(value))
    filters = draw_other_filters(asking, table, column, asking.draws.below(2))
    unknown = NullCheck(make_column_ref(table, column), False)  # `<>` alone leaves out rows with NULL
    query = SelectQuery(
        (make_label_ref(table),), make_source(table), where=(*list_conditions(filters), OrCondition((other, unknown)))
    )
    slots: Slots = {
        "label": table.label.noun,
        "things": describe_rows(table.many, filters),
        "noun": column.noun,
        "value": value,
    }
    return SqlQuestion(query, asking.say("not_that", **slots))


def either(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: len(table.columns) > 1)
    one, other = asking.draw_filters(table, 2, plain=True)
    columns = asking.pick_columns(table, asking.draws.below(2))
    outputs = tuple(make_column_ref(table, column) for column in columns)
    query = SelectQuery(outputs, make_source(table), where=(OrCondition((one.holds, other.holds)),))
    both = SelectQuery(outputs, make_source(table), where=(one.holds, other.holds))
    slots: Slots = {"columns": describe_columns(columns), "many": table.many, "one": one.words, "other": other.words}
    return SqlQuestion(query, asking.say("either", **slots), (both,))
