"""Questions about two tables: rows and their parent rows."""

from collections.abc import Sequence

from app.envs.text_to_sql.tasks.alone import aggregate, other_filters, plain_choice
from app.envs.text_to_sql.tasks.asking import (
    Asked,
    Asking,
    Filter,
    Slots,
    by_label,
    col,
    held,
    joined,
    key,
    label,
    listed,
    rows,
    source,
    their,
)
from app.envs.text_to_sql.tasks.queries import Agg, Compare, Exists, Join, Lit, Operator, Order, Select
from app.envs.text_to_sql.tasks.schemas import Column, Link, Table

_AT_LEAST: dict[str, Operator] = {"at least": ">=", "more than": ">", "exactly": "="}


def numeric(column: Column) -> bool:
    return column.numeric


def measured(child: Table, parent: Table) -> bool:
    return parent.named and any(map(numeric, child.columns))


def known_by_name(child: Table, parent: Table) -> bool:
    return parent.named


def _join(child: Table, link: Link, parent: Table, outer: bool = False, telling: bool = False) -> Join:
    """Joins the parent table to its child rows."""
    return Join(source(parent), (joined(child, link, parent),), outer, telling)


def children_of(child: Table, link: Link, parent: Table, outer: bool = False, telling: bool = False) -> Join:
    """Joins the child table to its parent rows."""
    return Join(source(child), (joined(child, link, parent),), outer, telling)


def with_parent(asking: Asking) -> Asked:
    child, link, parent = asking.family(known_by_name)
    ours, theirs = asking.filters(child, asking.draws.below(2)), asking.filters(parent, 1)
    extra = asking.columns(child, asking.draws.below(2))
    query = Select(
        (*(col(child, column) for column in extra), label(parent)),
        source(child),
        (_join(child, link, parent),),
        held(theirs, ours),
    )
    slots: Slots = {
        "columns": listed(
            [*(f"the {column.noun}" for column in extra), f"the {parent.label.noun} of the {parent.one}"]
        ),
        "things": f"{child.many} {link.tie.by} {rows(parent.many, theirs)}",
        "only": only(rows(child.many, ours), ours),
    }
    return Asked(query, asking.say("with_parent", **slots))


def only(wanted: str, filters: Sequence[Filter]) -> str:
    return f" Only {wanted} count." if filters else ""


def children_of_each(asking: Asking) -> Asked:
    child, link, parent = asking.family(known_by_name)
    theirs = asking.filters(parent, asking.draws.below(2))
    query = Select(
        (label(parent), Agg("COUNT", key(child))),
        source(parent),
        (children_of(child, link, parent, outer=True),),
        held(theirs),
        (key(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "things": rows(parent.many, theirs),
        "label": parent.label.noun,
        "their": their(parent),
        "children": child.many,
        "child": child.one,
    }
    return Asked(query, asking.say("children_of_each", **slots))


def at_least(asking: Asking) -> Asked:
    child, link, parent = asking.family(known_by_name)
    ours = asking.filters(child, asking.draws.below(2))
    word = asking.pick(tuple(_AT_LEAST))
    count = 2 + asking.draws.below(3)
    query = Select(
        (label(parent), Agg("COUNT")),
        source(parent),
        (children_of(child, link, parent),),
        held(ours),
        (key(parent),),
        (Compare(Agg("COUNT"), _AT_LEAST[word], Lit(count)),),
    )
    slots: Slots = {
        "label": parent.label.noun,
        "many": parent.many,
        "count": f"{word} {count}",
        "children": rows(child.many, ours),
    }
    return Asked(query, asking.say("at_least", **slots))


def over_children(asking: Asking) -> Asked:
    child, link, parent = asking.family(lambda child, parent: any(map(numeric, child.columns)))
    column = asking.column(child, numeric)
    ours = other_filters(asking, child, column, asking.draws.below(2))
    theirs = asking.filters(parent, 1)
    value, said = aggregate(asking, column, col(child, column))
    query = Select((value,), source(child), (_join(child, link, parent),), held(theirs, ours))
    slots: Slots = {
        **said,
        "things": f"{child.many} {link.tie.by} {rows(parent.many, theirs)}",
        "only": only(rows(child.many, ours), ours),
    }
    return Asked(query, asking.say("over_children", **slots))


def without(asking: Asking) -> Asked:
    child, link, parent = asking.family(known_by_name)
    ours, theirs = asking.filters(child, asking.draws.below(2)), asking.filters(parent, asking.draws.below(2))
    link_up = joined(child, link, parent)
    there = Select((Lit(1),), source(child), where=(link_up, *held(ours)))
    query = Select((label(parent),), source(parent), where=(*held(theirs), Exists(there, False)))
    turned = tuple(
        Select(
            (label(parent),),
            source(parent),
            (children_of(child, link, parent),),
            (*held(theirs), Compare(one.left, "<>", one.right)),
            distinct=True,
        )
        for one in held(ours)
        if isinstance(one, Compare) and one.operator == "="
    )
    slots: Slots = {
        "label": parent.label.noun,
        "things": rows(parent.many, theirs),
        "child": rows(child.one, ours),
        "children": rows(child.many, ours),
        "a_child": rows(f"a {child.one}", ours),
    }
    return Asked(query, asking.say("without", **slots), turned)


def with_some(asking: Asking) -> Asked:
    child, link, parent = asking.family(known_by_name)
    ours, theirs = asking.filters(child, 1), asking.filters(parent, asking.draws.below(2))
    query = Select(
        (label(parent),),
        source(parent),
        (children_of(child, link, parent),),
        held(theirs, ours),
        distinct=True,
    )
    slots: Slots = {
        "label": parent.label.noun,
        "things": rows(parent.many, theirs),
        "child": rows(child.one, ours),
        "children": rows(child.many, ours),
        "one": parent.one,
    }
    return Asked(query, asking.say("with_some", **slots))


def by_value_of_parent(asking: Asking) -> Asked:
    child, link, parent = asking.family(
        lambda child, parent: any(map(plain_choice, parent.columns)) and any(map(numeric, child.columns))
    )
    group, column = asking.column(parent, plain_choice), asking.column(child, numeric)
    ours = other_filters(asking, child, column, asking.draws.below(2))
    value, said = aggregate(asking, column, col(child, column))
    query = Select(
        (col(parent, group), value),
        source(child),
        (_join(child, link, parent),),
        held(ours),
        (col(parent, group),),
    )
    slots: Slots = {
        "noun": group.noun,
        "parents": parent.many,
        **said,
        "things": f"{rows(child.many, ours)}",
        "child": child.one,
        "by": link.tie.by,
    }
    return Asked(query, asking.say("by_value_of_parent", **slots))


def lookup(asking: Asking) -> Asked:
    every = [
        (child, link, asking.schema.table(link.to))
        for child in asking.schema.tables
        for link in child.links
        if link.tie.unknown
    ]
    child, link, parent = asking.pick(every)
    ours = asking.filters(child, asking.draws.below(2))
    query = Select((label(child), label(parent)), source(child), (_join(child, link, parent, outer=True),), held(ours))
    slots: Slots = {
        "things": rows(child.many, ours),
        "label": child.label.noun,
        "one": child.one,
        "other": parent.label.noun,
        "parent": parent.one,
    }
    return Asked(query, asking.say("lookup", **slots))


def how_many_parents(asking: Asking) -> Asked:
    child, link, parent = asking.family()
    ours = asking.filters(child, 1)
    query = Select((Agg("COUNT", col(child, link), distinct=True),), source(child), where=held(ours))
    slots: Slots = {
        "parents": parent.many,
        "child": rows(child.one, ours),
    }
    return Asked(query, asking.say("how_many_parents", **slots))


def most_children(asking: Asking) -> Asked:
    child, link, parent = asking.family(known_by_name)
    ours = asking.filters(child, asking.draws.below(2))
    last, sorting = by_label(parent)
    query = Select(
        (label(parent), Agg("COUNT")),
        source(parent),
        (children_of(child, link, parent),),
        held(ours),
        (key(parent),),
        order=(Order(Agg("COUNT"), down=True), last),
        limit=2 + asking.draws.below(4),
    )
    slots: Slots = {
        "label": parent.label.noun,
        "parents": parent.many,
        "count": query.limit or 0,
        "children": rows(child.many, ours),
        "sorting": sorting,
    }
    return Asked(query, asking.say("most_children", **slots))


def known_figures(asking: Asking) -> Asked:
    """An aggregate over the child rows of each parent row."""
    child, link, parent = asking.family(measured)
    column = asking.column(child, numeric)
    ours = other_filters(asking, child, column, asking.draws.below(2))
    value, said = aggregate(asking, column, col(child, column))
    query = Select(
        (label(parent), value), source(parent), (children_of(child, link, parent),), held(ours), (key(parent),)
    )
    slots: Slots = {
        "one": parent.one,
        "label": parent.label.noun,
        **said,
        "child": rows(child.one, ours),
        "their": their(parent),
        "children": rows(child.many, ours),
    }
    return Asked(query, asking.say("known_figures", **slots))
