"""Questions about several tables: rows and their parents, tables that link two others, sets of rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from app.envs.text_to_sql.databases import SchemaColumn, SchemaLink, SchemaTable
from app.envs.text_to_sql.queries import (
    Aggregate,
    Binary,
    CaseWhen,
    ColumnRef,
    Compare,
    Exists,
    Join,
    LiteralValue,
    Operator,
    OrderBy,
    Round,
    ScalarSubquery,
    SelectQuery,
    SetOperation,
)
from app.envs.text_to_sql.questions import (
    QuestionBuilder,
    QuestionFilter,
    Slots,
    SqlQuestion,
    UnsuitableSchema,
    build_aggregate,
    choose_pronoun,
    describe_columns,
    describe_rows,
    draw_other_filters,
    estimate_group_size,
    is_numeric,
    is_plain_choice,
    is_plain_number,
    join_words,
    list_conditions,
    make_column_ref,
    make_join_condition,
    make_key_ref,
    make_label_ref,
    make_source,
    order_by_label,
)

_AT_LEAST: dict[str, Operator] = {"at least": ">=", "more than": ">", "exactly": "="}


def _has_measures(child: SchemaTable, parent: SchemaTable) -> bool:
    return parent.has_label and any(map(is_numeric, child.columns))


def _is_known_by_name(child: SchemaTable, parent: SchemaTable) -> bool:
    return parent.has_label


def _join_parent(child: SchemaTable, link: SchemaLink, parent: SchemaTable, outer: bool = False) -> Join:
    """Joins the parent table to its child rows."""
    return Join(make_source(parent), (make_join_condition(child, link, parent),), outer)


def _join_children(child: SchemaTable, link: SchemaLink, parent: SchemaTable, outer: bool = False) -> Join:
    """Joins the child table to its parent rows."""
    return Join(make_source(child), (make_join_condition(child, link, parent),), outer)


def _describe_restriction(rows: str, filters: Sequence[QuestionFilter]) -> str:
    return f" Only {rows} count." if filters else ""


def with_parent(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_is_known_by_name)
    ours, theirs = asking.draw_filters(child, asking.draws.below(2)), asking.draw_filters(parent, 1)
    extra = asking.pick_columns(child, asking.draws.below(2))
    query = SelectQuery(
        (*(make_column_ref(child, column) for column in extra), make_label_ref(parent)),
        make_source(child),
        (_join_parent(child, link, parent),),
        list_conditions(theirs, ours),
    )
    slots: Slots = {
        "columns": join_words(
            [*(f"the {column.noun}" for column in extra), f"the {parent.label.noun} of the {parent.one}"]
        ),
        "things": f"{child.many} {link.tie.by} {describe_rows(parent.many, theirs)}",
        "only": _describe_restriction(describe_rows(child.many, ours), ours),
    }
    return SqlQuestion(query, asking.say("with_parent", **slots))


def parents_of_rows(asking: QuestionBuilder) -> SqlQuestion:
    """What rows belong to, without what tells the rows apart: each of them counts."""
    child, link, parent = asking.pick_family(_is_known_by_name)
    ours = asking.draw_filters(child, 1)
    query = SelectQuery(
        (make_label_ref(parent),),
        make_source(child),
        (_join_parent(child, link, parent),),
        list_conditions(ours),
    )
    slots: Slots = {
        "columns": f"the {parent.label.noun} of the {parent.one}",
        "one": f"{child.one} {link.tie.by} a {parent.one}",
        "things": f"{describe_rows(child.many, ours)} that belong to a {parent.one}",
    }
    return asking.ask_about_repeats("parents_of_rows", query, slots)


def children_of_each(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_is_known_by_name)
    theirs = asking.draw_filters(parent, asking.draws.below(2))
    query = SelectQuery(
        (make_label_ref(parent), Aggregate("COUNT", make_key_ref(child))),
        make_source(parent),
        (_join_children(child, link, parent, outer=True),),
        list_conditions(theirs),
        (make_key_ref(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "things": describe_rows(parent.many, theirs),
        "label": parent.label.noun,
        "their": choose_pronoun(parent),
        "children": child.many,
        "child": child.one,
    }
    return SqlQuestion(query, asking.say("children_of_each", **slots))


def at_least(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_is_known_by_name)
    ours = asking.draw_filters(child, asking.draws.below(2))
    word = asking.pick(tuple(_AT_LEAST))
    count = 2 + asking.draws.below(3)
    query = SelectQuery(
        (make_label_ref(parent), Aggregate("COUNT")),
        make_source(parent),
        (_join_children(child, link, parent),),
        list_conditions(ours),
        (make_key_ref(parent),),
        (Compare(Aggregate("COUNT"), _AT_LEAST[word], LiteralValue(count)),),
    )
    slots: Slots = {
        "label": parent.label.noun,
        "many": parent.many,
        "count": f"{word} {count}",
        "children": describe_rows(child.many, ours),
    }
    return SqlQuestion(query, asking.say("at_least", **slots))


def over_children(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(lambda child, parent: any(map(is_numeric, child.columns)))
    column = asking.pick_column(child, is_numeric)
    ours = draw_other_filters(asking, child, column, asking.draws.below(2))
    theirs = asking.draw_filters(parent, 1)
    value, words = build_aggregate(asking, column, make_column_ref(child, column))
    query = SelectQuery(
        (value,), make_source(child), (_join_parent(child, link, parent),), list_conditions(theirs, ours)
    )
    slots: Slots = {
        **words,
        "things": f"{child.many} {link.tie.by} {describe_rows(parent.many, theirs)}",
        "only": _describe_restriction(describe_rows(child.many, ours), ours),
    }
    return SqlQuestion(query, asking.say("over_children", **slots))


def without(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_is_known_by_name)
    ours, theirs = asking.draw_filters(child, asking.draws.below(2)), asking.draw_filters(parent, asking.draws.below(2))
    link_up = make_join_condition(child, link, parent)
    there = SelectQuery((LiteralValue(1),), make_source(child), where=(link_up, *list_conditions(ours)))
    query = SelectQuery(
        (make_label_ref(parent),), make_source(parent), where=(*list_conditions(theirs), Exists(there, False))
    )
    # the trap: parents with a row of another kind, instead of parents without a row of this kind
    turned = tuple(
        SelectQuery(
            (make_label_ref(parent),),
            make_source(parent),
            (_join_children(child, link, parent),),
            (*list_conditions(theirs), Compare(one.left, "<>", one.right)),
            distinct=True,
        )
        for one in list_conditions(ours)
        if isinstance(one, Compare) and one.operator == "="
    )
    slots: Slots = {
        "label": parent.label.noun,
        "things": describe_rows(parent.many, theirs),
        "child": describe_rows(child.one, ours),
        "children": describe_rows(child.many, ours),
        "a_child": describe_rows(f"a {child.one}", ours),
    }
    return SqlQuestion(query, asking.say("without", **slots), turned)


def with_some(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_is_known_by_name)
    ours, theirs = asking.draw_filters(child, 1), asking.draw_filters(parent, asking.draws.below(2))
    query = SelectQuery(
        (make_label_ref(parent),),
        make_source(parent),
        (_join_children(child, link, parent),),
        list_conditions(theirs, ours),
        distinct=True,
    )
    slots: Slots = {
        "label": parent.label.noun,
        "things": describe_rows(parent.many, theirs),
        "child": describe_rows(child.one, ours),
        "children": describe_rows(child.many, ours),
        "one": parent.one,
    }
    return SqlQuestion(query, asking.say("with_some", **slots))


def by_value_of_parent(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(
        lambda child, parent: any(map(is_plain_choice, parent.columns)) and any(map(is_numeric, child.columns))
    )
    group, column = asking.pick_column(parent, is_plain_choice), asking.pick_column(child, is_numeric)
    ours = draw_other_filters(asking, child, column, asking.draws.below(2))
    value, words = build_aggregate(asking, column, make_column_ref(child, column))
    query = SelectQuery(
        (make_column_ref(parent, group), value),
        make_source(child),
        (_join_parent(child, link, parent),),
        list_conditions(ours),
        (make_column_ref(parent, group),),
    )
    slots: Slots = {
        "noun": group.noun,
        "parents": parent.many,
        **words,
        "things": f"{describe_rows(child.many, ours)}",
        "child": child.one,
        "by": link.tie.by,
    }
    return SqlQuestion(query, asking.say("by_value_of_parent", **slots))


def lookup(asking: QuestionBuilder) -> SqlQuestion:
    every = [
        (child, link, asking.schema.find_table(link.to))
        for child in asking.schema.tables
        for link in child.links
        if link.tie.unknown
    ]
    child, link, parent = asking.pick(every)
    ours = asking.draw_filters(child, asking.draws.below(2))
    query = SelectQuery(
        (make_label_ref(child), make_label_ref(parent)),
        make_source(child),
        (_join_parent(child, link, parent, outer=True),),
        list_conditions(ours),
    )
    slots: Slots = {
        "things": describe_rows(child.many, ours),
        "label": child.label.noun,
        "one": child.one,
        "other": parent.label.noun,
        "parent": parent.one,
    }
    return SqlQuestion(query, asking.say("lookup", **slots))


def how_many_parents(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family()
    ours = asking.draw_filters(child, 1)
    query = SelectQuery(
        (Aggregate("COUNT", make_column_ref(child, link), distinct=True),),
        make_source(child),
        where=list_conditions(ours),
    )
    slots: Slots = {
        "parents": parent.many,
        "child": describe_rows(child.one, ours),
    }
    return SqlQuestion(query, asking.say("how_many_parents", **slots))


def most_children(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_is_known_by_name)
    ours = asking.draw_filters(child, asking.draws.below(2))
    last, sorting = order_by_label(parent)
    query = SelectQuery(
        (make_label_ref(parent), Aggregate("COUNT")),
        make_source(parent),
        (_join_children(child, link, parent),),
        list_conditions(ours),
        (make_key_ref(parent),),
        order=(OrderBy(Aggregate("COUNT"), down=True), last),
        limit=2 + asking.draws.below(4),
    )
    slots: Slots = {
        "label": parent.label.noun,
        "parents": parent.many,
        "count": query.limit or 0,
        "children": describe_rows(child.many, ours),
        "sorting": sorting,
    }
    return SqlQuestion(query, asking.say("most_children", **slots))


def known_figures(asking: QuestionBuilder) -> SqlQuestion:
    """An aggregate over the child rows of each parent row."""
    child, link, parent = asking.pick_family(_has_measures)
    column = asking.pick_column(child, is_numeric)
    ours = draw_other_filters(asking, child, column, asking.draws.below(2))
    value, words = build_aggregate(asking, column, make_column_ref(child, column))
    query = SelectQuery(
        (make_label_ref(parent), value),
        make_source(parent),
        (_join_children(child, link, parent),),
        list_conditions(ours),
        (make_key_ref(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "label": parent.label.noun,
        **words,
        "child": describe_rows(child.one, ours),
        "their": choose_pronoun(parent),
        "children": describe_rows(child.many, ours),
    }
    return SqlQuestion(query, asking.say("known_figures", **slots))


# Three tables: two that a third one links, and grandchildren.


def partners(asking: QuestionBuilder) -> SqlQuestion:
    middle, one, left, other, right = asking.pick_junction()
    ours = asking.draw_filters(middle, asking.draws.below(2))
    query = SelectQuery(
        (make_label_ref(left), Aggregate("COUNT", make_column_ref(middle, other), distinct=True)),
        make_source(left),
        (_join_children(middle, one, left),),
        list_conditions(ours),
        (make_key_ref(left),),
    )
    slots: Slots = {
        "one": left.one,
        "label": left.label.noun,
        "others": right.many,
        "rows": describe_rows(middle.many, ours),
        "row": describe_rows(middle.one, ours),
        "their": choose_pronoun(left),
        "by": other.tie.by,
    }
    return SqlQuestion(query, asking.say("partners", **slots))


def grandchildren(asking: QuestionBuilder) -> SqlQuestion:
    """Three tables in a line: grandchild rows per parent row."""
    lines = [
        (last, link, middle, up, asking.schema.find_table(up.to))
        for last in asking.schema.tables
        for link in last.links
        for middle in [asking.schema.find_table(link.to)]
        for up in middle.links
    ]
    last, link, middle, up, parent = asking.pick([line for line in lines if line[-1].has_label])
    filters = asking.draw_filters(last, asking.draws.below(2))
    value, words = Aggregate("COUNT"), "number"
    columns = [column for column in last.columns if column.trait and column.trait.sums]
    if columns and asking.draws.chance(60):
        column = asking.pick(columns)
        value, words = Aggregate("SUM", make_column_ref(last, column)), f"total {column.noun}"
    query = SelectQuery(
        (make_label_ref(parent), value),
        make_source(parent),
        (_join_children(middle, up, parent), _join_children(last, link, middle)),
        list_conditions(filters),
        (make_key_ref(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "label": parent.label.noun,
        "said": words,
        "last": describe_rows(last.many, filters),
        "only": f"{last.many} {link.tie.by} {choose_pronoun(parent)} {middle.many}",
        "wanted": _describe_restriction(describe_rows(last.many, filters), filters),
        "lasts": last.many,
        "by": link.tie.by,
    }
    return SqlQuestion(query, asking.say("grandchildren", **slots))


# Sets of rows: intersection, difference, all of a group, pairs.

_NEGATED: Final[dict[Operator, Operator]] = {"=": "<>", "<>": "=", ">": "<=", "<=": ">", "<": ">=", ">=": "<"}


def both(asking: QuestionBuilder) -> SqlQuestion:
    return _combine_two_sets(asking, "both", "INTERSECT")


def one_but_not_other(asking: QuestionBuilder) -> SqlQuestion:
    return _combine_two_sets(asking, "one_but_not_other", "EXCEPT")


def _combine_two_sets(asking: QuestionBuilder, shape: str, by: Literal["INTERSECT", "EXCEPT"]) -> SqlQuestion:
    """Parents with one value of a child column combined with parents with another value."""
    child, link, parent = asking.pick_family(_is_known_by_name)
    column = asking.pick_column(child, lambda column: bool(column.values) or column.flagged)
    one, other = _draw_two_values(asking, column, ColumnRef(child.name, column.name))
    left, right = (
        SelectQuery(
            (make_label_ref(parent),), make_source(parent), (_join_children(child, link, parent),), (value.holds,)
        )
        for value in (one, other)
    )
    query = SetOperation(left, by, right)
    either = SetOperation(left, "UNION", right)
    slots: Slots = {
        "label": parent.label.noun,
        "many": parent.many,
        "one": describe_rows(f"a {child.one}", [one]),
        "other": describe_rows(f"a {child.one}", [other]),
        "no_other": describe_rows(child.one, [other]),
    }
    return SqlQuestion(query, asking.say(shape, **slots), (either,))


def _draw_two_values(
    asking: QuestionBuilder, column: SchemaColumn, of: ColumnRef
) -> tuple[QuestionFilter, QuestionFilter]:
    trait = column.trait
    if trait is not None and trait.flag is not None:
        yes, no = (
            QuestionFilter(Compare(of, "=", LiteralValue(value)), trait.flag[1 - value], True) for value in (1, 0)
        )
        return (yes, no) if asking.draws.chance(50) else (no, yes)
    words = trait.said if trait is not None and trait.said else f"whose {column.noun} is {{}}"
    one, other = (
        QuestionFilter(Compare(of, "=", LiteralValue(value)), words.format(f"'{value}'"), words[0] != "w")
        for value in asking.draws.some(column.values, 2)
    )
    return one, other


def in_two_tables(asking: QuestionBuilder) -> SqlQuestion:
    candidates = [
        (one, mine, other, its)
        for one in asking.schema.tables
        for other in asking.schema.tables
        if one is not other
        for mine in one.columns
        for its in other.columns
        if mine.values and mine.values == its.values and not mine.nullable and not its.nullable
    ]
    one, mine, other, its = asking.pick(candidates)
    first, second = draw_other_filters(asking, one, mine, 1), draw_other_filters(asking, other, its, 1)
    ways: tuple[Literal["UNION", "INTERSECT", "EXCEPT"], ...] = ("UNION", "INTERSECT", "EXCEPT")
    by = asking.draws.one(ways)
    left = SelectQuery((make_column_ref(one, mine),), make_source(one), where=list_conditions(first))
    right = SelectQuery((make_column_ref(other, its),), make_source(other), where=list_conditions(second))
    query = SetOperation(left, by, right)
    slots: Slots = {
        "noun": mine.noun,
        "its": its.noun,
        "one": describe_rows(f"a {one.one}", first),
        "other": describe_rows(f"a {other.one}", second),
        "no_other": describe_rows(other.one, second),
    }
    return SqlQuestion(query, asking.say(f"in_two_tables_{by.lower()}", **slots))


def only_such(asking: QuestionBuilder) -> SqlQuestion:
    """Parents all of whose child rows meet a condition. The column has no NULL, so every row meets it or does not."""
    child, link, parent = asking.pick_family(
        lambda child, parent: parent.has_label and not all(column.nullable for column in child.columns)
    )
    condition = asking.draw_filter(asking.pick_column(child, lambda column: not column.nullable), child.name)
    if not isinstance(condition.holds, Compare):
        raise UnsuitableSchema
    otherwise = replace(condition.holds, operator=_NEGATED[condition.holds.operator])
    belonging = make_join_condition(child, link, parent)
    # parents without any rows are no answer, though all of their rows would meet the condition
    some, none = (
        Exists(SelectQuery((LiteralValue(1),), make_source(child), where=(belonging, *conditions)), exists)
        for conditions, exists in (((), True), ((otherwise,), False))
    )
    query = SelectQuery((make_label_ref(parent),), make_source(parent), where=(some, none))
    any_of_them = replace(query, joins=(_join_children(child, link, parent),), where=(condition.holds,), distinct=True)
    slots: Slots = {
        "label": parent.label.noun,
        "parents": parent.many,
        "child": child.one,
        "children": child.many,
        "their": "their",
        "wanted": describe_rows(child.one, [condition]),
    }
    return SqlQuestion(query, asking.say("only_such", **slots), (any_of_them,))


def partners_at_least(asking: QuestionBuilder) -> SqlQuestion:
    middle, one, left, other, right = asking.pick_junction()
    theirs = asking.draw_filters(right, 1)
    count = 2 + asking.draws.below(2)
    query = SelectQuery(
        (make_label_ref(left),),
        make_source(left),
        (_join_children(middle, one, left), Join(make_source(right), (make_join_condition(middle, other, right),))),
        list_conditions(theirs),
        (make_key_ref(left),),
        (Compare(Aggregate("COUNT", make_key_ref(right), distinct=True), ">=", LiteralValue(count)),),
    )
    slots: Slots = {
        "label": left.label.noun,
        "many": left.many,
        "rows": middle.many,
        "by": other.tie.by,
        "count": count,
        "others": describe_rows(right.many, theirs),
    }
    return SqlQuestion(query, asking.say("partners_at_least", **slots))


def how_many_different(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(column.values for column in table.columns))
    column = asking.pick_column(table, lambda column: column.values)
    filters = draw_other_filters(asking, table, column, 1)
    query = SelectQuery(
        (Aggregate("COUNT", make_column_ref(table, column), distinct=True),),
        make_source(table),
        where=list_conditions(filters),
    )
    return SqlQuestion(
        query, asking.say("how_many_different", noun=column.noun, things=describe_rows(table.many, filters))
    )


def repeated_rows(asking: QuestionBuilder) -> SqlQuestion:
    """Rows without a label, of which several are equal: each of them counts."""
    table = asking.pick_table()
    columns = asking.pick_repeating_columns(table, 2)
    filters = draw_other_filters(asking, table, columns[0], 1, *columns[1:])
    query = SelectQuery(
        tuple(make_column_ref(table, one) for one in columns), make_source(table), where=list_conditions(filters)
    )
    slots: Slots = {
        "columns": describe_columns(columns),
        "one": table.one,
        "things": describe_rows(table.many, filters),
    }
    return asking.ask_about_repeats("repeated_rows", query, slots)


def partners_of_rows(asking: QuestionBuilder) -> SqlQuestion:
    """What both partners of rows are like, without what tells the rows apart: each of them counts."""
    middle, one, left, other, right = asking.pick_junction()
    (column,) = asking.pick_repeating_columns(right, 1)
    theirs = draw_other_filters(asking, right, column, 1)
    query = SelectQuery(
        (make_label_ref(left), make_column_ref(right, column)),
        make_source(middle),
        tuple(
            Join(make_source(table), (make_join_condition(middle, link, table),))
            for link, table in ((one, left), (other, right))
        ),
        list_conditions(theirs),
    )
    slots: Slots = {
        "columns": f"the {left.label.noun} of the {left.one} and the {column.noun} of the {right.one}",
        "one": middle.one,
        "things": f"{middle.many} {other.tie.by} {describe_rows(right.many, theirs)}",
    }
    return asking.ask_about_repeats("partners_of_rows", query, slots)


def pairs(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: table.has_label and any(map(is_plain_choice, table.columns)))
    same = asking.draws.some([column for column in table.columns if is_plain_choice(column)], 2)
    first, second = make_label_ref(table, "one"), make_label_ref(table, "other")
    match = tuple(Compare(ColumnRef("one", column.name), "=", ColumnRef("other", column.name)) for column in same)
    join = Join(make_source(table, "other"), (*match, Compare(first, "<", second)))
    query = SelectQuery((first, second), make_source(table, "one"), (join,))
    slots: Slots = {
        "many": table.many,
        "one": table.one,
        "same": " and ".join(f"the same {column.noun}" for column in same),
        "label": table.label.noun,
    }
    return SqlQuestion(query, asking.say("pairs", **slots))


# A figure for each row: shares, totals, extremes over child rows.


def _is_sortable(column: SchemaColumn) -> bool:
    return is_plain_number(column) or (column.dated and not column.nullable)


def most_in_total(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_has_measures)
    column = asking.pick_column(child, lambda column: not column.nullable and column.trait and column.trait.sums)
    ours = draw_other_filters(asking, child, column, 1)
    total, down = Aggregate("SUM", make_column_ref(child, column)), asking.draws.chance(65)
    query = SelectQuery(
        (make_label_ref(parent), total),
        make_source(parent),
        (_join_children(child, link, parent),),
        list_conditions(ours),
        (make_key_ref(parent),),
        order=(OrderBy(total, down),),
        limit=2 + asking.draws.below(4),
    )
    slots: Slots = {
        "label": parent.label.noun,
        "parents": parent.many,
        "total": f"total {column.noun}",
        "children": describe_rows(child.many, ours),
        "plain": child.many,
        "noun": column.noun,
        "count": query.limit or 0,
        "most": "highest" if down else "lowest",
        "child": describe_rows(child.one, ours),
    }
    return SqlQuestion(query, asking.say("most_in_total", **slots))


def best_of_each(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(
        lambda child, parent: parent.has_label and any(map(_is_sortable, child.columns))
    )
    column = asking.pick_column(child, _is_sortable)
    high = asking.draws.chance(50)
    same = Compare(ColumnRef("other", link.name), "=", ColumnRef(child.name, link.name))
    best = SelectQuery(
        (Aggregate("MAX" if high else "MIN", ColumnRef("other", column.name)),),
        make_source(child, "other"),
        where=(same,),
    )
    query = SelectQuery(
        (make_label_ref(parent), make_label_ref(child), make_column_ref(child, column)),
        make_source(child),
        (Join(make_source(parent), (make_join_condition(child, link, parent),)),),
        (Compare(make_column_ref(child, column), "=", ScalarSubquery(best)),),
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
    return SqlQuestion(query, asking.say("best_of_each", **slots))


def above_overall(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_has_measures)
    column = asking.pick_column(child, is_numeric)
    above = asking.draws.chance(50)
    overall = ScalarSubquery(
        SelectQuery((Aggregate("AVG", ColumnRef("every", column.name)),), make_source(child, "every"))
    )
    query = SelectQuery(
        (make_label_ref(parent),),
        make_source(parent),
        (_join_children(child, link, parent),),
        group=(make_key_ref(parent),),
        having=(Compare(Aggregate("AVG", make_column_ref(child, column)), ">" if above else "<", overall),),
    )
    slots: Slots = {
        "label": parent.label.noun,
        "parents": parent.many,
        "their": "their",
        "children": child.many,
        "noun": column.noun,
        "above": "above" if above else "below",
    }
    return SqlQuestion(query, asking.say("above_overall", **slots))


def such_of_each(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_is_known_by_name)
    ours, theirs = asking.draw_filters(child, 1), asking.draw_filters(parent, asking.draws.below(2))
    join = Join(make_source(child), (make_join_condition(child, link, parent), *list_conditions(ours)), outer=True)
    query = SelectQuery(
        (make_label_ref(parent), Aggregate("COUNT", make_key_ref(child))),
        make_source(parent),
        (join,),
        list_conditions(theirs),
        (make_key_ref(parent),),
    )
    # the trap: a filter in WHERE instead of ON loses the parents without rows
    late = SelectQuery(
        query.outputs,
        query.source,
        (_join_children(child, link, parent, outer=True),),
        list_conditions(theirs, ours),
        query.group,
    )
    slots: Slots = {
        "one": parent.one,
        "things": describe_rows(parent.many, theirs),
        "label": parent.label.noun,
        "their": choose_pronoun(parent),
        "children": describe_rows(child.many, ours),
        "child": describe_rows(child.one, ours),
    }
    return SqlQuestion(query, asking.say("children_of_each", **slots), (late,))


def share(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(_is_known_by_name)
    (condition,) = asking.draw_filters(child, 1)
    portion = Binary(
        Binary(LiteralValue(100.0), "*", Aggregate("SUM", CaseWhen(condition.holds))), "/", Aggregate("COUNT")
    )
    query = SelectQuery(
        (make_label_ref(parent), Round(portion)),
        make_source(parent),
        (_join_children(child, link, parent),),
        group=(make_key_ref(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "label": parent.label.noun,
        "child": child.one,
        "children": child.many,
        "wanted": describe_rows(child.many, [condition]),
        "their": choose_pronoun(parent),
    }
    return SqlQuestion(query, asking.say("share", **slots))


def two_counts(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(map(is_plain_choice, table.columns)))
    column = asking.pick_column(table, is_plain_choice)
    (condition,) = draw_other_filters(asking, table, column, 1)  # a table has two columns at least
    group = make_column_ref(table, column)
    query = SelectQuery(
        (group, Aggregate("COUNT"), Aggregate("SUM", CaseWhen(condition.holds))), make_source(table), group=(group,)
    )
    slots: Slots = {"noun": column.noun, "many": table.many, "wanted": describe_rows(table.many, [condition])}
    return SqlQuestion(query, asking.say("two_counts", **slots))


def spread(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(
        lambda table: any(map(is_plain_choice, table.columns)) and any(map(is_plain_number, table.columns))
    )
    group, column = asking.pick_column(table, is_plain_choice), asking.pick_column(table, is_plain_number)
    filters = draw_other_filters(asking, table, group, asking.draws.below(2), column)
    of, least = make_column_ref(table, column), estimate_group_size(table, group, filters) + asking.draws.below(2)
    query = SelectQuery(
        (make_column_ref(table, group), Binary(Aggregate("MAX", of), "-", Aggregate("MIN", of))),
        make_source(table),
        where=list_conditions(filters),
        group=(make_column_ref(table, group),),
        having=(Compare(Aggregate("COUNT"), ">=", LiteralValue(least)),),
    )
    slots: Slots = {
        "noun": group.noun,
        "things": describe_rows(table.many, filters),
        "column": column.noun,
        "count": least,
    }
    return SqlQuestion(query, asking.say("spread", **slots))
