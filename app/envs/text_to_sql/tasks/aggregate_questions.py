"""Questions for a figure per row: shares, totals, extremes over child rows."""

from app.envs.text_to_sql.tasks.database_schemas import SchemaColumn
from app.envs.text_to_sql.tasks.query_ast import (
    Aggregate,
    Binary,
    CaseWhen,
    ColumnRef,
    Compare,
    Join,
    LiteralValue,
    OrderBy,
    Round,
    ScalarSubquery,
    SelectQuery,
)
from app.envs.text_to_sql.tasks.question_builder import (
    QuestionBuilder,
    Slots,
    SqlQuestion,
    choose_pronoun,
    describe_rows,
    list_conditions,
    make_column_ref,
    make_join_condition,
    make_key_ref,
    make_label_ref,
    make_source,
)
from app.envs.text_to_sql.tasks.single_table_questions import (
    draw_other_filters,
    estimate_group_size,
    is_plain_choice,
    is_plain_number,
)
from app.envs.text_to_sql.tasks.two_table_questions import (
    has_measures,
    is_known_by_name,
    is_numeric,
    join_children,
)


def _is_sortable(column: SchemaColumn) -> bool:
    return is_plain_number(column) or (column.dated and not column.nullable)


def most_in_total(asking: QuestionBuilder) -> SqlQuestion:
    child, link, parent = asking.pick_family(has_measures)
    column = asking.pick_column(child, lambda column: not column.nullable and column.trait and column.trait.sums)
    ours = draw_other_filters(asking, child, column, 1)
    total, down = Aggregate("SUM", make_column_ref(child, column)), asking.draws.chance(65)
    query = SelectQuery(
        (make_label_ref(parent), total),
        make_source(parent),
        (join_children(child, link, parent),),
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
    child, link, parent = asking.pick_family(has_measures)
    column = asking.pick_column(child, is_numeric)
    above = asking.draws.chance(50)
    overall = ScalarSubquery(
        SelectQuery((Aggregate("AVG", ColumnRef("every", column.name)),), make_source(child, "every"))
    )
    query = SelectQuery(
        (make_label_ref(parent),),
        make_source(parent),
        (join_children(child, link, parent),),
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
    child, link, parent = asking.pick_family(is_known_by_name)
    ours, theirs = asking.draw_filters(child, 1), asking.draw_filters(parent, asking.draws.below(2))
    join = Join(make_source(child), (make_join_condition(child, link, parent), *list_conditions(ours)), outer=True)
    query = SelectQuery(
        (make_label_ref(parent), Aggregate("COUNT", make_key_ref(child))),
        make_source(parent),
        (join,),
        list_conditions(theirs),
        (make_key_ref(parent),),
    )
    late = SelectQuery(
        query.outputs,
        query.source,
        (join_children(child, link, parent, outer=True),),
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
    child, link, parent = asking.pick_family(is_known_by_name)
    (wanted,) = asking.draw_filters(child, 1)
    portion = Binary(
        Binary(LiteralValue(100.0), "*", Aggregate("SUM", CaseWhen(wanted.holds))), "/", Aggregate("COUNT")
    )
    query = SelectQuery(
        (make_label_ref(parent), Round(portion)),
        make_source(parent),
        (join_children(child, link, parent),),
        group=(make_key_ref(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "label": parent.label.noun,
        "child": child.one,
        "children": child.many,
        "wanted": describe_rows(child.many, [wanted]),
        "their": choose_pronoun(parent),
    }
    return SqlQuestion(query, asking.say("share", **slots))


def two_counts(asking: QuestionBuilder) -> SqlQuestion:
    table = asking.pick_table(lambda table: any(map(is_plain_choice, table.columns)))
    column = asking.pick_column(table, is_plain_choice)
    (wanted,) = draw_other_filters(asking, table, column, 1)  # a table has two columns at least
    group = make_column_ref(table, column)
    query = SelectQuery(
        (group, Aggregate("COUNT"), Aggregate("SUM", CaseWhen(wanted.holds))), make_source(table), group=(group,)
    )
    slots: Slots = {"noun": column.noun, "many": table.many, "wanted": describe_rows(table.many, [wanted])}
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
