"""Questions for a figure per row: shares, totals, extremes over child and grandchild rows."""

from app.envs.text_to_sql.tasks.alone import group_size, other_filters, plain_choice, plain_number
from app.envs.text_to_sql.tasks.asking import (
    Asked,
    Asking,
    Slots,
    col,
    held,
    joined,
    key,
    label,
    rows,
    source,
    their,
)
from app.envs.text_to_sql.tasks.queries import (
    Agg,
    Binary,
    Col,
    Compare,
    Flagged,
    Join,
    Lit,
    Order,
    Rounded,
    Scalar,
    Select,
)
from app.envs.text_to_sql.tasks.related import children_of, known_by_name, measured, numeric, only
from app.envs.text_to_sql.tasks.schemas import Column


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
    return Asked(query, asking.say("best_of_each", **slots))


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
    """Three tables in a line: grandchild rows per parent row."""
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
        "lasts": last.many,
        "by": link.tie.by,
    }
    return Asked(query, asking.say("grandchildren", **slots))
