"""Questions that take several steps: sets, groups within groups, all or none of the rows that belong to one."""

from dataclasses import replace
from typing import Final, Literal

from app.sql_tasks.alone import group_size, other_filters, plain_choice, plain_number
from app.sql_tasks.asking import (
    Asked,
    Asking,
    Filter,
    Slots,
    Unfit,
    an,
    col,
    held,
    joined,
    key,
    label,
    rows,
    source,
    their,
)
from app.sql_tasks.queries import (
    Agg,
    Binary,
    Col,
    Combined,
    Compare,
    Exists,
    Flagged,
    Join,
    Lit,
    Operator,
    Order,
    Rounded,
    Scalar,
    Select,
)
from app.sql_tasks.related import children_of, known_by_name, measured, numeric, only
from app.sql_tasks.schemas import Column

_CONTRARY: Final[dict[Operator, Operator]] = {"=": "<>", "<>": "=", ">": "<=", "<=": ">", "<": ">=", ">=": "<"}


def _sortable(column: Column) -> bool:
    return plain_number(column) or (column.dated and not column.nullable)


def partners(asking: Asking) -> Asked:
    middle, one, left, other, right = asking.between()
    ours = asking.filters(middle, asking.draws.below(2))
    query = Select(
        (label(left), Agg("COUNT", col(middle, other), distinct=True)),
        source(left),
        (children_of(middle, one, left),),
        held(ours),
        (key(left),),
    )
    slots: Slots = {
        "one": left.one,
        "label": left.label.noun,
        "others": right.many,
        "rows": rows(middle.many, ours),
        "row": rows(middle.one, ours),
        "their": their(left),
        "by": other.tie.by,
    }
    return Asked(query, asking.say("partners", **slots))


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


def both(asking: Asking) -> Asked:
    return _two_sets(asking, "both", "INTERSECT")


def one_but_not_other(asking: Asking) -> Asked:
    return _two_sets(asking, "one_but_not_other", "EXCEPT")


def _two_sets(asking: Asking, shape: str, by: Literal["INTERSECT", "EXCEPT"]) -> Asked:
    """Of parents, by two values of one column: of their rows, or of what these rows lead to."""
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
        "one": rows(an(child.one), [one]),
        "other": rows(an(child.one), [other]),
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
        "one": rows(an(one.one), first),
        "other": rows(an(other.one), second),
        "no_other": rows(other.one, second),
    }
    return Asked(query, asking.say(f"in_two_tables_{by.lower()}", **slots))


def most_in_total(asking: Asking) -> Asked:
    child, link, parent = asking.family(measured)
    column = asking.column(child, lambda column: not column.nullable and column.trait and column.trait.sums)
    ours = other_filters(asking, child, column, 1)
    total, down = Agg("SUM", col(child, column)), asking.draws.chance(65)
    query = Select(
        (label(parent), total),
        source(parent),
        (children_of(child, link, parent),),
        held(ours),
        (key(parent),),
        order=(Order(total, down),),
        limit=2 + asking.draws.below(4),
    )
    slots: Slots = {
        "label": parent.label.noun,
        "parents": parent.many,
        "total": f"total {column.noun}",
        "children": rows(child.many, ours),
        "plain": child.many,
        "noun": column.noun,
        "count": query.limit or 0,
        "most": "highest" if down else "lowest",
        "child": rows(child.one, ours),
    }
    return Asked(query, asking.say("most_in_total", **slots))


def only_such(asking: Asking) -> Asked:
    """Without a row that is otherwise; where nothing is unknown, so that there is no third way."""
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
        "wanted": rows(child.many, [wanted]),
        "a_wanted": rows(an(child.one), [wanted]),
    }
    return Asked(query, asking.say("only_such", **slots), (any_of_them,))


def best_of_each(asking: Asking) -> Asked:
    child, link, parent = asking.family(lambda child, parent: parent.named and any(map(_sortable, child.columns)))
    column = asking.column(child, _sortable)
    high = asking.draws.chance(50)
    same = Compare(Col("other", link.name), "=", Col(child.name, link.name))
    best = Select((Agg("MAX" if high else "MIN", Col("other", column.name)),), source(child, "other"), where=(same,))
    query = Select(
        (label(parent), label(child), col(child, column)),
        source(child),
        (Join(source(parent), (joined(child, link, parent),)),),
        (Compare(col(child, column), "=", Scalar(best)),),
    )
    slots: Slots = {
        "one": parent.one,
        "parents": parent.many,
        "label": parent.label.noun,
        "child_label": child.label.noun,
        "child": child.one,
        "children": child.many,
        "noun": column.noun,
        "most": ("latest" if high else "earliest") if column.dated else ("highest" if high else "lowest"),
        "their_many": "their",
    }
    once = Select(query.outputs, query.source, query.joins, (), (Col(child.name, link.name),))
    return Asked(query, asking.say("best_of_each", **slots), (once,))


def above_overall(asking: Asking) -> Asked:
    child, link, parent = asking.family(measured)
    column = asking.column(child, numeric)
    above = asking.draws.chance(50)
    overall = Scalar(Select((Agg("AVG", Col("every", column.name)),), source(child, "every")))
    query = Select(
        (label(parent),),
        source(parent),
        (children_of(child, link, parent),),
        group=(key(parent),),
        having=(Compare(Agg("AVG", col(child, column)), ">" if above else "<", overall),),
    )
    slots: Slots = {
        "label": parent.label.noun,
        "parents": parent.many,
        "their": "their",
        "children": child.many,
        "noun": column.noun,
        "above": "above" if above else "below",
    }
    return Asked(query, asking.say("above_overall", **slots))


def such_of_each(asking: Asking) -> Asked:
    child, link, parent = asking.family(known_by_name)
    ours, theirs = asking.filters(child, 1), asking.filters(parent, asking.draws.below(2))
    join = Join(source(child), (joined(child, link, parent), *held(ours)), outer=True)
    query = Select((label(parent), Agg("COUNT", key(child))), source(parent), (join,), held(theirs), (key(parent),))
    late = Select(
        query.outputs,
        query.source,
        (children_of(child, link, parent, outer=True),),
        held(theirs, ours),
        query.group,
    )
    slots: Slots = {
        "one": parent.one,
        "things": rows(parent.many, theirs),
        "label": parent.label.noun,
        "their": their(parent),
        "children": rows(child.many, ours),
        "child": rows(child.one, ours),
    }
    return Asked(query, asking.say("children_of_each", **slots), (late,))


def share(asking: Asking) -> Asked:
    child, link, parent = asking.family(known_by_name)
    (wanted,) = asking.filters(child, 1)
    portion = Binary(Binary(Lit(100.0), "*", Agg("SUM", Flagged(wanted.holds))), "/", Agg("COUNT"))
    query = Select(
        (label(parent), Rounded(portion)),
        source(parent),
        (children_of(child, link, parent),),
        group=(key(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "label": parent.label.noun,
        "child": child.one,
        "children": child.many,
        "wanted": rows(child.many, [wanted]),
        "their": their(parent),
    }
    return Asked(query, asking.say("share", **slots))


def two_counts(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(map(plain_choice, table.columns)))
    column = asking.column(table, plain_choice)
    (wanted,) = other_filters(asking, table, column, 1)  # a table has two columns at least
    group = col(table, column)
    query = Select((group, Agg("COUNT"), Agg("SUM", Flagged(wanted.holds))), source(table), group=(group,))
    slots: Slots = {"noun": column.noun, "many": table.many, "wanted": rows(table.many, [wanted])}
    return Asked(query, asking.say("two_counts", **slots))


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


def spread(asking: Asking) -> Asked:
    table = asking.table(lambda table: any(map(plain_choice, table.columns)) and any(map(plain_number, table.columns)))
    group, column = asking.column(table, plain_choice), asking.column(table, plain_number)
    filters = other_filters(asking, table, group, asking.draws.below(2), column)
    of, least = col(table, column), group_size(table, group, filters) + asking.draws.below(2)
    query = Select(
        (col(table, group), Binary(Agg("MAX", of), "-", Agg("MIN", of))),
        source(table),
        where=held(filters),
        group=(col(table, group),),
        having=(Compare(Agg("COUNT"), ">=", Lit(least)),),
    )
    slots: Slots = {
        "noun": group.noun,
        "things": rows(table.many, filters),
        "column": column.noun,
        "count": least,
    }
    return Asked(query, asking.say("spread", **slots))


def grandchildren(asking: Asking) -> Asked:
    """Three tables in a line: what belongs to what belongs to each."""
    lines = [
        (last, link, middle, up, asking.schema.table(up.to))
        for last in asking.schema.tables
        for link in last.links
        for middle in [asking.schema.table(link.to)]
        for up in middle.links
    ]
    last, link, middle, up, parent = asking.pick([line for line in lines if line[-1].named])
    filters = asking.filters(last, asking.draws.below(2))
    value, said = Agg("COUNT"), "number"
    columns = [column for column in last.columns if column.trait and column.trait.sums]
    if columns and asking.draws.chance(60):
        column = asking.pick(columns)
        value, said = Agg("SUM", col(last, column)), f"total {column.noun}"
    query = Select(
        (label(parent), value),
        source(parent),
        (children_of(middle, up, parent), children_of(last, link, middle)),
        held(filters),
        (key(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "label": parent.label.noun,
        "said": said,
        "last": rows(last.many, filters),
        "only": f"{last.many} {link.tie.by} {their(parent)} {middle.many}",
        "wanted": only(rows(last.many, filters), filters),
        "their": their(parent),
        "middle": middle.many,
        "by": link.tie.by,
    }
    return Asked(query, asking.say("grandchildren", **slots))
