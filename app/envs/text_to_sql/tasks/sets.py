"""Questions about sets of rows: intersection, difference, all of a group, pairs."""

from dataclasses import replace
from typing import Final, Literal

from app.envs.text_to_sql.tasks.alone import other_filters, plain_choice
from app.envs.text_to_sql.tasks.asking import (
    Asked,
    Asking,
    Filter,
    Slots,
    Unfit,
    col,
    held,
    joined,
    key,
    label,
    rows,
    source,
)
from app.envs.text_to_sql.tasks.queries import (
    Agg,
    Col,
    Combined,
    Compare,
    Exists,
    Join,
    Lit,
    Operator,
    Select,
)
from app.envs.text_to_sql.tasks.related import children_of, known_by_name
from app.envs.text_to_sql.tasks.schemas import Column

_CONTRARY: Final[dict[Operator, Operator]] = {"=": "<>", "<>": "=", ">": "<=", "<=": ">", "<": ">=", ">=": "<"}


def both(asking: Asking) -> Asked:
    return _two_sets(asking, "both", "INTERSECT")


def one_but_not_other(asking: Asking) -> Asked:
    return _two_sets(asking, "one_but_not_other", "EXCEPT")


def _two_sets(asking: Asking, shape: str, by: Literal["INTERSECT", "EXCEPT"]) -> Asked:
    """Parents with one value of a child column combined with parents with another value."""
    child, link, parent = asking.family(known_by_name)
    column = asking.column(child, lambda column: bool(column.values) or column.flagged)
    one, other = _two_values(asking, column, Col(child.name, column.name))
    left, right = (
        Select((label(parent),), source(parent), (children_of(child, link, parent),), (value.holds,))
        for value in (one, other)
    )
    either = Combined(left, "UNION", right)
    query = Combined(left, by, right)
    slots: Slots = {
        "label": parent.label.noun,
        "many": parent.many,
        "one": rows(f"a {child.one}", [one]),
        "other": rows(f"a {child.one}", [other]),
        "no_other": rows(child.one, [other]),
    }
    return Asked(query, asking.say(shape, **slots), (either,))


def _two_values(asking: Asking, column: Column, of: Col) -> tuple[Filter, Filter]:
    trait = column.trait
    if trait is not None and trait.flag is not None:
        yes, no = (Filter(Compare(of, "=", Lit(value)), trait.flag[1 - value], True) for value in (1, 0))
        return (yes, no) if asking.draws.chance(50) else (no, yes)
    said = trait.said if trait is not None and trait.said else f"whose {column.noun} is {{}}"
    one, other = (
        Filter(Compare(of, "=", Lit(value)), said.format(f"'{value}'"), said[0] != "w")
        for value in asking.draws.some(column.values, 2)
    )
    return one, other


def in_two_tables(asking: Asking) -> Asked:
    found = [
        (one, mine, other, its)
        for one in asking.schema.tables
        for other in asking.schema.tables
        if one is not other
        for mine in one.columns
        for its in other.columns
        if mine.values and mine.values == its.values and not mine.nullable and not its.nullable
    ]
    one, mine, other, its = asking.pick(found)
    first, second = other_filters(asking, one, mine, 1), other_filters(asking, other, its, 1)
    ways: tuple[Literal["UNION", "INTERSECT", "EXCEPT"], ...] = ("UNION", "INTERSECT", "EXCEPT")
    by = asking.draws.one(ways)
    left = Select((col(one, mine),), source(one), where=held(first))
    right = Select((col(other, its),), source(other), where=held(second))
    query = Combined(left, by, right)
    slots: Slots = {
        "noun": mine.noun,
        "its": its.noun,
        "one": rows(f"a {one.one}", first),
        "other": rows(f"a {other.one}", second),
        "no_other": rows(other.one, second),
    }
    return Asked(query, asking.say(f"in_two_tables_{by.lower()}", **slots))


def only_such(asking: Asking) -> Asked:
    """Parents all of whose child rows meet a condition. The column has no NULL, so every row meets it or does not."""
    child, link, parent = asking.family(
        lambda child, parent: parent.named and not all(column.nullable for column in child.columns)
    )
    wanted = asking.filter(asking.column(child, lambda column: not column.nullable), child.name)
    if not isinstance(wanted.holds, Compare):
        raise Unfit
    otherwise = replace(wanted.holds, operator=_CONTRARY[wanted.holds.operator])
    belonging = joined(child, link, parent)
    some, none = (
        Exists(Select((Lit(1),), source(child), where=(belonging, *conditions)), exists)
        for conditions, exists in (((), True), ((otherwise,), False))
    )
    query = Select((label(parent),), source(parent), where=(some, none))
    any_of_them = replace(query, joins=(children_of(child, link, parent),), where=(wanted.holds,), distinct=True)
    slots: Slots = {
        "label": parent.label.noun,
        "parents": parent.many,
        "child": child.one,
        "children": child.many,
        "their": "their",
        "wanted": rows(child.one, [wanted]),
    }
    return Asked(query, asking.say("only_such", **slots), (any_of_them,))


def partners_at_least(asking: Asking) -> Asked:
    middle, one, left, other, right = asking.between()
    theirs = asking.filters(right, 1)
    count = 2 + asking.draws.below(2)
    query = Select(
        (label(left),),
        source(left),
        (children_of(middle, one, left), Join(source(right), (joined(middle, other, right),))),
        held(theirs),
        (key(left),),
        (Compare(Agg("COUNT", key(right), distinct=True), ">=", Lit(count)),),
    )
    slots: Slots = {
        "label": left.label.noun,
        "many": left.many,
        "rows": middle.many,
        "by": other.tie.by,
        "count": count,
        "others": rows(right.many, theirs),
    }
    return Asked(query, asking.say("partners_at_least", **slots))


def pairs(asking: Asking) -> Asked:
    table = asking.table(lambda table: table.named and any(map(plain_choice, table.columns)))
    same = asking.draws.some([column for column in table.columns if plain_choice(column)], 2)
    first, second = label(table, "one"), label(table, "other")
    match = tuple(Compare(Col("one", column.name), "=", Col("other", column.name)) for column in same)
    join = Join(source(table, "other"), (*match, Compare(first, "<", second)))
    query = Select((first, second), source(table, "one"), (join,))
    slots: Slots = {
        "many": table.many,
        "one": table.one,
        "same": " and ".join(f"the same {column.noun}" for column in same),
        "label": table.label.noun,
    }
    return Asked(query, asking.say("pairs", **slots))
