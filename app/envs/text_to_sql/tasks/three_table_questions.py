"""Questions over three tables: two that a third one links, and grandchildren."""

from app.envs.text_to_sql.tasks.query_ast import (
    Aggregate,
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
    make_key_ref,
    make_label_ref,
    make_source,
)
from app.envs.text_to_sql.tasks.two_table_questions import (
    describe_restriction,
    join_children,
)


def partners(asking: QuestionBuilder) -> SqlQuestion:
    middle, one, left, other, right = asking.pick_junction()
    ours = asking.draw_filters(middle, asking.draws.below(2))
    query = SelectQuery(
        (make_label_ref(left), Aggregate("COUNT", make_column_ref(middle, other), distinct=True)),
        make_source(left),
        (join_children(middle, one, left),),
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
    value, said = Aggregate("COUNT"), "number"
    columns = [column for column in last.columns if column.trait and column.trait.sums]
    if columns and asking.draws.chance(60):
        column = asking.pick(columns)
        value, said = Aggregate("SUM", make_column_ref(last, column)), f"total {column.noun}"
    query = SelectQuery(
        (make_label_ref(parent), value),
        make_source(parent),
        (join_children(middle, up, parent), join_children(last, link, middle)),
        list_conditions(filters),
        (make_key_ref(parent),),
    )
    slots: Slots = {
        "one": parent.one,
        "label": parent.label.noun,
        "said": said,
        "last": describe_rows(last.many, filters),
        "only": f"{last.many} {link.tie.by} {choose_pronoun(parent)} {middle.many}",
        "wanted": describe_restriction(describe_rows(last.many, filters), filters),
        "lasts": last.many,
        "by": link.tie.by,
    }
    return SqlQuestion(query, asking.say("grandchildren", **slots))
