"""Questions about sets of rows: intersection, difference, all of a group, pairs."""

from dataclasses import replace
from typing import Final, Literal

from app.envs.text_to_sql.tasks.database_schemas import SchemaColumn
from app.envs.text_to_sql.tasks.query_ast import (
    Aggregate,
    ColumnRef,
    Compare,
    Exists,
    Join,
    LiteralValue,
    Operator,
    SelectQuery,
    SetOperation,
)
from app.envs.text_to_sql.tasks.question_builder import (
    QuestionBuilder,
    QuestionFilter,
    Slots,
    SqlQuestion,
    UnsuitableSchema,
    describe_columns,
    describe_rows,
    list_conditions,
    make_column_ref,
    make_join_condition,
    make_key_ref,
    make_label_ref,
    make_source,
)
from app.envs.text_to_sql.tasks.single_table_questions import draw_other_filters, is_plain_choice
from app.envs.text_to_sql.tasks.two_table_questions import is_known_by_name, join_children

_NEGATED: Final[dict[Operator, Operator]] = {"=": "<>", "<>": "=", ">": "<=", "<=": ">", "<": ">=", ">=": "<"}


def both(asking: QuestionBuilder) -> SqlQuestion:
    return _combine_two_sets(asking, "both", "INTERSECT")


def one_but_not_other(asking: QuestionBuilder) -> SqlQuestion:
    return _combine_two_sets(asking, "one_but_not_other", "EXCEPT")


def _combine_two_sets(asking: QuestionBuilder, shape: str, by: Literal["INTERSECT", "EXCEPT"]) -> SqlQuestion:
    """Parents with one value of a child column combined with parents with another value."""
    child, link, parent = asking.pick_family(is_known_by_name)
    column = asking.pick_column(child, lambda column: bool(column.values) or column.flagged)
    one, other = _draw_two_values(asking, column, ColumnRef(child.name, column.name))
    left, right = (
        SelectQuery(
            (make_label_ref(parent),), make_source(parent), (join_children(child, link, parent),), (value.holds,)
        )
        for value in (one, other)
    )
    either = SetOperation(left, "UNION", right)
    query = SetOperation(left, by, right)
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
    said = trait.said if trait is not None and trait.said else f"whose {column.noun} is {{}}"
    one, other = (
        QuestionFilter(Compare(of, "=", LiteralValue(value)), said.format(f"'{value}'"), said[0] != "w")
        for value in asking.draws.some(column.values, 2)
    )
    return one, other


def in_two_tables(asking: QuestionBuilder) -> SqlQuestion:
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
    wanted = asking.draw_filter(asking.pick_column(child, lambda column: not column.nullable), child.name)
    if not isinstance(wanted.holds, Compare):
        raise UnsuitableSchema
    otherwise = replace(wanted.holds, operator=_NEGATED[wanted.holds.operator])
    belonging = make_join_condition(child, link, parent)
    some, none = (
        Exists(SelectQuery((LiteralValue(1),), make_source(child), where=(belonging, *conditions)), exists)
        for conditions, exists in (((), True), ((otherwise,), False))
    )
    query = SelectQuery((make_label_ref(parent),), make_source(parent), where=(some, none))
    any_of_them = replace(query, joins=(join_children(child, link, parent),), where=(wanted.holds,), distinct=True)
    slots: Slots = {
        "label": parent.label.noun,
        "parents": parent.many,
        "child": child.one,
        "children": child.many,
        "their": "their",
        "wanted": describe_rows(child.one, [wanted]),
    }
    return SqlQuestion(query, asking.say("only_such", **slots), (any_of_them,))


def partners_at_least(asking: QuestionBuilder) -> SqlQuestion:
    middle, one, left, other, right = asking.pick_junction()
    theirs = asking.draw_filters(right, 1)
    count = 2 + asking.draws.below(2)
    query = SelectQuery(
        (make_label_ref(left),),
        make_source(left),
        (join_children(middle, one, left), Join(make_source(right), (make_join_condition(middle, other, right),))),
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
