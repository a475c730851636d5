"""SQL of syntax trees."""

from functools import singledispatch

from app.envs.text_to_sql.tasks.query_ast import (
    Aggregate,
    Binary,
    CaseWhen,
    ColumnRef,
    Compare,
    Exists,
    InList,
    Join,
    LiteralValue,
    NullCheck,
    OrCondition,
    OrderBy,
    Round,
    ScalarSubquery,
    SelectQuery,
    SetOperation,
    TableSource,
    Year,
)


@singledispatch
def render_sql(node: object) -> str:
    raise TypeError(f"{node!r} is no part of a query")


@render_sql.register
def _(node: ColumnRef) -> str:
    return f"{node.table}.{node.name}"


@render_sql.register
def _(node: LiteralValue) -> str:
    return "'" + node.value.replace("'", "''") + "'" if isinstance(node.value, str) else repr(node.value)


@render_sql.register
def _(node: Aggregate) -> str:
    return f"{node.name}({'DISTINCT ' * node.distinct}{'*' if node.of is None else render_sql(node.of)})"


@render_sql.register
def _(node: Round) -> str:
    return f"ROUND({render_sql(node.of)}, 2)"


@render_sql.register
def _(node: Year) -> str:
    return f"CAST(strftime('%Y', {render_sql(node.of)}) AS INTEGER)"


@render_sql.register
def _(node: Binary) -> str:
    return f"{render_sql(node.left)} {node.sign} {render_sql(node.right)}"


@render_sql.register
def _(node: CaseWhen) -> str:
    return f"CASE WHEN {render_sql(node.holds)} THEN 1 ELSE 0 END"


@render_sql.register
def _(node: ScalarSubquery) -> str:
    return f"({render_sql(node.query)})"


@render_sql.register
def _(node: Compare) -> str:
    return f"{render_sql(node.left)} {node.operator} {render_sql(node.right)}"


@render_sql.register
def _(node: NullCheck) -> str:
    return f"{render_sql(node.of)} IS {'NOT ' * node.known}NULL"


@render_sql.register
def _(node: InList) -> str:
    return f"{render_sql(node.of)} IN ({', '.join(map(render_sql, node.values))})"


@render_sql.register
def _(node: Exists) -> str:
    return f"{'NOT ' * (not node.exists)}EXISTS ({render_sql(node.query)})"


@render_sql.register
def _(node: OrCondition) -> str:
    return f"({' OR '.join(map(render_sql, node.holds))})"


@render_sql.register
def _(node: TableSource) -> str:
    return node.table if node.alias == node.table else f"{node.table} AS {node.alias}"


@render_sql.register
def _(node: Join) -> str:
    return f"{'LEFT ' * node.outer}JOIN {render_sql(node.source)} ON {' AND '.join(map(render_sql, node.on))}"


@render_sql.register
def _(node: OrderBy) -> str:
    return render_sql(node.by) + " DESC" * node.down


@render_sql.register
def _(node: SelectQuery) -> str:
    clauses = [
        f"SELECT {'DISTINCT ' * node.distinct}{', '.join(map(render_sql, node.outputs))}",
        f"FROM {render_sql(node.source)}",
        *map(render_sql, node.joins),
        _render_clause("WHERE ", " AND ", node.where),
        _render_clause("GROUP BY ", ", ", node.group),
        _render_clause("HAVING ", " AND ", node.having),
        _render_clause("ORDER BY ", ", ", node.order),
        "" if node.limit is None else f"LIMIT {node.limit}",
    ]
    return " ".join(filter(None, clauses))


@render_sql.register
def _(node: SetOperation) -> str:
    return f"{render_sql(node.left)} {node.by} {render_sql(node.right)}"


def _render_clause(word: str, between: str, nodes: tuple[object, ...]) -> str:
    return word + between.join(map(render_sql, nodes)) if nodes else ""
