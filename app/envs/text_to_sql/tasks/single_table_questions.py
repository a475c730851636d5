"""Questions about one table."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from app.envs.text_to_sql.tasks.database_schemas import SchemaColumn, SchemaTable
from app.envs.text_to_sql.tasks.query_ast import (
    Aggregate,
    AggregateName,
    ColumnRef,
    Compare,
    Expr,
    LiteralValue,
    NullCheck,
    OrCondition,
    OrderBy,
    Round,
    ScalarSubquery,
    SelectQuery,
    Year,
)
from app.envs.text_to_sql.tasks.question_builder import (
    QuestionBuilder,
    QuestionFilter,
    Slots,
    SqlQuestion,
    describe_columns,
    describe_rows,
    list_conditions,
    make_column_ref,
    make_label_ref,
    make_source,
    order_by_label,
)
from app.envs.text_to_sql.tasks.row_generation import HIDDEN

ROUNDING = ", rounded to 2 decimal places"
FEW = 40
_AGGREGATES: Final[dict[str, AggregateName]] = {"highest": "MAX", "lowest": "MIN", "average": "AVG", "total": "SUM"}


def is_plain_number(column: SchemaColumn) -> bool:
    return column.numeric and not column.nullable


def is_plain_choice(column: SchemaColumn) -> bool:
    return bool(column.values) and not column.nullable


def build_aggregate(asking: QuestionBuilder, column: SchemaColumn, of: ColumnRef) -> tuple[Expr, Slots]:
    """An aggregate over a column, with its words and a note on rounding."""
    word = asking.pick([word for word in _AGGREGATES if word != "total" or (column.trait and column.trait.sums)])
    over: Expr = Aggregate(_AGGREGATES[word], of)
    slots: Slots = {"figure": f"{word} {column.noun}", "rounding": ROUNDING * (word == "average")}
    return (Round(over) if word == "average" else over), slots


def estimate_group_size(table: SchemaTable, group: SchemaColumn, filters: Sequence[QuestionFilter]) -> int:
    """Rough number of hidden rows per value of the group column."""
    return max(2, HIDDEN.count_rows(table) * 4 // (len(group.values) * (9 if filters else 4)))


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
    table = asking.pick_table(lambda table: any(column.numeric for column in table.columns))
    column = asking.pick_column(table, lambda column: column.numeric)
    filters = draw_other_filters(asking, table, column, 1)
    value, said = build_aggregate(asking, column, make_column_ref(table, column))
    query = SelectQuery((value,), make_source(table), where=list_conditions(filters))
    return SqlQuestion(query, asking.say("figure", things=describe_rows(table.many, filters), **said))


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
    table = asking.pick_table(lambda table: any(column.numeric for column in table.columns))
    column = asking.pick_column(table, lambda column: column.numeric)
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
        lambda table: any(map(is_plain_choice, table.columns)) and any(map(_is_number, table.columns))
    )
    group = asking.pick_column(table, is_plain_choice)
    column = asking.pick_column(table, _is_number)
    filters = draw_other_filters(asking, table, group, asking.draws.below(2), column)
    value, said = build_aggregate(asking, column, make_column_ref(table, column))
    least = estimate_group_size(table, group, filters) + asking.draws.below(2)
    query = SelectQuery(
        (make_column_ref(table, group), value),
        make_source(table),
        where=list_conditions(filters),
        group=(make_column_ref(table, group),),
        having=(Compare(Aggregate("COUNT"), ">=", LiteralValue(least)),),
    )
    slots: Slots = {"noun": group.noun, "things": describe_rows(table.many, filters), "count": least, **said}
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
    unknown = NullCheck(make_column_ref(table, column), False)
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
    slots: Slots = {"columns": describe_columns(columns), "many": table.many, "one": one.said, "other": other.said}
    return SqlQuestion(query, asking.say("either", **slots), (both,))


def _has_few_numbers(column: SchemaColumn) -> bool:
    """Few different values, so several rows share the highest one."""
    low, high, step = (*(column.trait.range if column.trait and column.trait.range else (0.0, 1e9)), 1.0)[:3]
    return (high - low) / step <= FEW


def _is_number(column: SchemaColumn) -> bool:
    return column.numeric


def draw_other_filters(
    asking: QuestionBuilder, table: SchemaTable, column: SchemaColumn, count: int, *more: SchemaColumn, alias: str = ""
) -> tuple[QuestionFilter, ...]:
    """Filters on other columns than these."""
    free = [one for one in table.columns if one not in (column, *more)]
    chosen = asking.draws.some(free, count)
    return tuple(asking.draw_filter(one, alias or table.name) for one in chosen)
