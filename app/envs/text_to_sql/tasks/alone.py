"""Questions about one table."""

from collections.abc import Sequence
from typing import Final

from app.envs.text_to_sql.tasks.asking import (
    Asked,
    Asking,
    Filter,
    Slots,
    by_label,
    col,
    held,
    label,
    rows,
    source,
    the,
)
from app.envs.text_to_sql.tasks.filling import HIDDEN
from app.envs.text_to_sql.tasks.queries import (
    Agg,
    AggregateName,
    Col,
    Compare,
    Either,
    Expr,
    Known,
    Lit,
    Order,
    Rounded,
    Scalar,
    Select,
    Year,
)
from app.envs.text_to_sql.tasks.schemas import Column, Table

ROUNDING = ", rounded to 2 decimal places"
FEW = 40
_AGGREGATES: Final[dict[str, AggregateName]] = {"highest": "MAX", "lowest": "MIN", "average": "AVG", "total": "SUM"}


def plain_number(column: Column) -> bool:
    return column.numeric and not column.nullable


def plain_choice(column: Column) -> bool:
    return bool(column.values) and not column.nullable


def aggregate(asking: Asking, column: Column, of: Col) -> tuple[Expr, Slots]:
    """An aggregate over a column, with its words and a note on rounding."""
    word = asking.pick([word for word in _AGGREGATES if word != "total" or (column.trait and column.trait.sums)])
    over: Expr = Agg(_AGGREGATES[word], of)
    slots: Slots = {"figure": f"{word} {column.noun}", "rounding": ROUNDING * (word == "average")}
    return (Rounded(over) if word == "average" else over), slots


def group_size(table: Table, group: Column, filters: Sequence[Filter]) -> int:
    """Rough number of hidden rows per value of the group column."""
    return max(2, HIDDEN.of(table) * 4 // (len(group.values) * (9 if filters else 4)))


def listing(asking: Asking) -> Asked:
    table = asking.table()
    filters = asking.filters(table, 1 + asking.draws.chance(55))
    columns = asking.columns(table, asking.draws.below(3))
    query = Select(tuple(col(table, one) for one in columns), source(table), where=held(filters))
    return Asked(query, asking.say("listing", columns=the(columns), things=rows(table.many, filters)))


def counting(asking: Asking) -> Asked:
    table = asking.table()
    filters = asking.filters(table, 1 + asking.draws.chance(50))
    query = Select((Agg("COUNT"),), source(table), where=held(filters))
    return Asked(query, asking.say("counting", things=rows(table.many, filters)))


def figure(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(column.numeric for column in table.columns))
    column = asking.column(table, lambda column: column.numeric)
    filters = other_filters(asking, table, column, 1)
    value, said = aggregate(asking, column, col(table, column))
    query = Select((value,), source(table), where=held(filters))
    return Asked(query, asking.say("figure", things=rows(table.many, filters), **said))


def different(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(map(plain_choice, table.columns)))
    column = asking.column(table, plain_choice)
    filters = other_filters(asking, table, column, 1)
    query = Select((col(table, column),), source(table), where=held(filters), distinct=True)
    return Asked(query, asking.say("different", noun=column.noun, things=rows(table.many, filters)))


def first_ones(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(plain_number(column) or column.dated for column in table.columns))
    column = asking.column(table, lambda column: plain_number(column) or column.dated)
    down, count = asking.draws.chance(50), 2 + asking.draws.below(5)
    last, sorting = by_label(table)
    filters = other_filters(asking, table, column, asking.draws.below(2))
    query = Select(
        (label(table), col(table, column)),
        source(table),
        where=held(filters),
        order=(Order(col(table, column), down), last),
        limit=count,
    )
    question = asking.say(
        "first_ones",
        columns=the((table.label, column)),
        count=count,
        things=rows(table.many, filters),
        most=("latest" if down else "earliest") if column.dated else ("highest" if down else "lowest"),
        noun=column.noun,
        label=table.label.noun,
        sorting=sorting,
    )
    return Asked(query, question)


def in_order(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(plain_number(column) or column.dated for column in table.columns))
    column = asking.column(table, lambda column: plain_number(column) or column.dated)
    down = asking.draws.chance(50)
    last, sorting = by_label(table)
    filters = other_filters(asking, table, column, 1)
    query = Select(
        (label(table), col(table, column)),
        source(table),
        where=held(filters),
        order=(Order(col(table, column), down), last),
    )
    lowest, highest = ("earliest", "latest") if column.dated else ("lowest", "highest")
    question = asking.say(
        "in_order",
        columns=the((table.label, column)),
        things=rows(table.many, filters),
        noun=column.noun,
        way=f"{highest} first" if down else f"{lowest} first",
        label=table.label.noun,
        sorting=sorting,
    )
    return Asked(query, question)


def per_value(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(map(plain_choice, table.columns)))
    column = asking.column(table, plain_choice)
    filters = other_filters(asking, table, column, 1)
    group = col(table, column)
    query = Select((group, Agg("COUNT")), source(table), where=held(filters), group=(group,))
    return Asked(query, asking.say("per_value", noun=column.noun, many=table.many, things=rows(table.many, filters)))


def known_ones(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(column.nullable for column in table.columns))
    column = asking.column(table, lambda column: column.nullable)
    filters = other_filters(asking, table, column, 1)
    query = Select((Agg("COUNT", col(table, column)),), source(table), where=held(filters))
    return Asked(query, asking.say("known_ones", noun=column.noun, things=rows(table.many, filters)))


def above_average(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(column.numeric for column in table.columns))
    column = asking.column(table, lambda column: column.numeric)
    filters = other_filters(asking, table, column, asking.draws.below(2))
    above = asking.draws.chance(50)
    everywhere = Scalar(Select((Agg("AVG", Col("every", column.name)),), source(table, "every")))
    condition = Compare(col(table, column), ">" if above else "<", everywhere)
    query = Select((label(table), col(table, column)), source(table), where=(*held(filters), condition))
    question = asking.say(
        "above_average",
        columns=the((table.label, column)),
        things=rows(table.many, filters),
        noun=column.noun,
        above="above" if above else "below",
        many=table.many,
    )
    return Asked(query, question)


def having(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(map(plain_choice, table.columns)) and any(map(_number, table.columns)))
    group = asking.column(table, plain_choice)
    column = asking.column(table, _number)
    filters = other_filters(asking, table, group, asking.draws.below(2), column)
    value, said = aggregate(asking, column, col(table, column))
    least = group_size(table, group, filters) + asking.draws.below(2)
    query = Select(
        (col(table, group), value),
        source(table),
        where=held(filters),
        group=(col(table, group),),
        having=(Compare(Agg("COUNT"), ">=", Lit(least)),),
    )
    slots: Slots = {"noun": group.noun, "things": rows(table.many, filters), "count": least, **said}
    return Asked(query, asking.say("having", **slots))


def the_highest(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(map(_of_few_numbers, table.columns)))
    column = asking.column(table, _of_few_numbers)
    filters = other_filters(asking, table, column, asking.draws.below(2))
    high = asking.draws.chance(50)
    inner = held(filters)
    best = Scalar(Select((Agg("MAX" if high else "MIN", col(table, column)),), source(table), where=inner))
    query = Select((label(table),), source(table), where=(*inner, Compare(col(table, column), "=", best)))
    only = (*inner, *((Known(col(table, column), True),) if column.nullable else ()))
    trap = Select((label(table),), source(table), where=only, order=(Order(col(table, column), high),), limit=1)
    question = asking.say(
        "the_highest",
        label=table.label.noun,
        one=table.one,
        things=rows(table.many, filters),
        most="highest" if high else "lowest",
        noun=column.noun,
    )
    return Asked(query, question, (trap,))


def per_year(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(column.dated for column in table.columns))
    column = asking.column(table, lambda column: column.dated)
    filters = other_filters(asking, table, column, 1)
    year = Year(col(table, column))
    query = Select((year, Agg("COUNT")), source(table), where=held(filters), group=(year,))
    return Asked(query, asking.say("per_year", noun=column.noun, many=table.many, things=rows(table.many, filters)))


def how_many_different(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(column.values for column in table.columns))
    column = asking.column(table, lambda column: column.values)
    filters = other_filters(asking, table, column, 1)
    query = Select((Agg("COUNT", col(table, column), distinct=True),), source(table), where=held(filters))
    return Asked(query, asking.say("how_many_different", noun=column.noun, things=rows(table.many, filters)))


def not_that(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(column.nullable and column.values for column in table.columns))
    column = asking.column(table, lambda column: column.nullable and column.values)
    value = asking.pick(column.values)
    other = Compare(col(table, column), "<>", Lit(value))
    filters = other_filters(asking, table, column, asking.draws.below(2))
    unknown = Known(col(table, column), False)
    query = Select((label(table),), source(table), where=(*held(filters), Either((other, unknown))))
    slots: Slots = {"label": table.label.noun, "things": rows(table.many, filters), "noun": column.noun, "value": value}
    return Asked(query, asking.say("not_that", **slots))


def either(asking: Asking) -> Asked:
    table = asking.table(lambda table: len(table.columns) > 1)
    one, other = asking.filters(table, 2, plain=True)
    columns = asking.columns(table, asking.draws.below(2))
    outputs = tuple(col(table, column) for column in columns)
    query = Select(outputs, source(table), where=(Either((one.holds, other.holds)),))
    both = Select(outputs, source(table), where=(one.holds, other.holds))
    slots: Slots = {"columns": the(columns), "many": table.many, "one": one.said, "other": other.said}
    return Asked(query, asking.say("either", **slots), (both,))


def _of_few_numbers(column: Column) -> bool:
    """Few different values, so several rows share the highest one."""
    low, high, step = (*(column.trait.range if column.trait and column.trait.range else (0.0, 1e9)), 1.0)[:3]
    return (high - low) / step <= FEW


def _number(column: Column) -> bool:
    return column.numeric


def other_filters(
    asking: Asking, table: Table, column: Column, count: int, *more: Column, alias: str = ""
) -> tuple[Filter, ...]:
    """Filters on other columns than these."""
    free = [one for one in table.columns if one not in (column, *more)]
    chosen = asking.draws.some(free, count)
    return tuple(asking.filter(one, alias or table.name) for one in chosen)
