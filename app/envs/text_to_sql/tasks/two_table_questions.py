"""Questions about two tables: rows and their parent rows."""

from collections.abc import Sequence

from app.envs.text_to_sql.tasks.database_schemas import SchemaColumn, SchemaLink, SchemaTable
from app.envs.text_to_sql.tasks.query_ast import (
    Aggregate,
    Compare,
    Exists,
    Join,
    LiteralValue,
    Operator,
    OrderBy,
    SelectQuery,
)
from app.envs.text_to_sql.tasks.question_builder import (
    QuestionBuilder,
    QuestionFilter,
    Slots,
    SqlQuestion,
    choose_pronoun,
    describe_rows,
    join_words,
    list_conditions,
    make_column_ref,
    make_join_condition,
    make_key_ref,
    make_label_ref,
    make_source,
    order_by_label,
)
from app.envs.text_to_sql.tasks.single_table_questions import build_aggregate, draw_other_filters, is_plain_choice

_AT_LEAST: dict[str, Operator] = {"at least": ">=", "more than": ">", "exactly": "="}


def is_numeric(column: SchemaColumn) -> bool:
    return column.numeric


def has_measures(child: SchemaTable, parent: SchemaTable) -> bool:
    return parent.has_label and any(map(is_numeric, child.columns))


def is_known_by_name(child: SchemaTable, parent: SchemaTable) -> bool:
    return parent.has_label


def _join_parent(
    child: SchemaTable, link: SchemaLink, parent: SchemaTable, outer: bool = False, telling: bool = False
) -> Join:
    """Joins the parent table to its child rows."""
    return Join(make_source(parent), (make_join_condition(child, link, parent),), outer, telling)


def join_children(
    child: SchemaTable, link: SchemaLink, parent: SchemaTable, outer: bool = False, telling: bool = False
) -> Join:
    """Joins the child table to its parent rows."""
    return Join(make_source(child), (make_join_condition(child, link, parent),), outer, telling)


def with_parent(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(is_known_by_name)
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
        "only": describe_restriction(describe_rows(child.many, ours), ours),
    }
    return SqlQuestion(query, asking.say("with_parent", **slots))


def parents_of_rows(asking: QuestionBuilder) -> SqlQuestion:
    """What rows belong to, without what tells the rows apart: each of them counts."""
    child, link, parent = asking.pick_family(is_known_by_name)
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


def describe_restriction(wanted: str, filters: Sequence[QuestionFilter]) -> str:
    return f" Only {wanted} count." if filters else ""


def children_of_each(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(is_known_by_name)
    theirs = asking.draw_filters(parent, asking.draws.below(2))
    query = SelectQuery(
        (make_label_ref(parent), Aggregate("COUNT", make_key_ref(child))),
        make_source(parent),
        (join_children(child, link, parent, outer=True),),
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
    child, link, parent = asking.pick_family(is_known_by_name)
    ours = asking.draw_filters(child, asking.draws.below(2))
    word = asking.pick(tuple(_AT_LEAST))
    count = 2 + asking.draws.below(3)
    query = SelectQuery(
        (make_label_ref(parent), Aggregate("COUNT")),
        make_source(parent),
        (join_children(child, link, parent),),
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
    value, said = build_aggregate(asking, column, make_column_ref(child, column))
    query = SelectQuery(
        (value,), make_source(child), (_join_parent(child, link, parent),), list_conditions(theirs, ours)
    )
    slots: Slots = {
        **said,
        "things": f"{child.many} {link.tie.by} {describe_rows(parent.many, theirs)}",
        "only": describe_restriction(describe_rows(child.many, ours), ours),
    }
    return SqlQuestion(query, asking.say("over_children", **slots))


def without(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(is_known_by_name)
    ours, theirs = asking.draw_filters(child, asking.draws.below(2)), asking.draw_filters(parent, asking.draws.below(2))
    link_up = make_join_condition(child, link, parent)
    there = SelectQuery((LiteralValue(1),), make_source(child), where=(link_up, *list_conditions(ours)))
    query = SelectQuery(
        (make_label_ref(parent),), make_source(parent), where=(*list_conditions(theirs), Exists(there, False))
    )
    turned = tuple(
        SelectQuery(
            (make_label_ref(parent),),
            make_source(parent),
            (join_children(child, link, parent),),
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
    child, link, parent = asking.pick_family(is_known_by_name)
    ours, theirs = asking.draw_filters(child, 1), asking.draw_filters(parent, asking.draws.below(2))
    query = SelectQuery(
        (make_label_ref(parent),),
        make_source(parent),
        (join_children(child, link, parent),),
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
    value, said = build_aggregate(asking, column, make_column_ref(child, column))
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
        **said,
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
    child, link, parent = asking.pick_family(is_known_by_name)
    ours = asking.draw_filters(child, asking.draws.below(2))
    last, sorting = order_by_label(parent)
    query = SelectQuery(
        (make_label_ref(parent), Aggregate("COUNT")),
        make_source(parent),
        (join_children(child, link, parent),),
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
    child, link, parent = asking.pick_family(has_measures)
    column = asking.pick_column(child, is_numeric)
    ours = draw_other_filters(asking, child, column, asking.draws.below(2))
    value, said = build_aggregate(asking, column, make_column_ref(child, column))
    query = SelectQuery(
        (make_label_ref(parent), value),
        make_source(parent),
        (join_children(child, link, parent),),
        list_conditions(ours),
        (make_key_ref(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "label": parent.label.noun,
        **said,
        "child": describe_rows(child.one, ours),
        "their": choose_pronoun(parent),
        "children": describe_rows(child.many, ours),
    }
    return SqlQuestion(query, asking.say("known_figures", **slots))
