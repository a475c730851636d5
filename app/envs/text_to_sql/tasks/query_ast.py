"""Syntax trees of queries, and their SQL.

Columns always name their table, so a tree can be put into another one unchanged."""

from dataclasses import dataclass, fields, is_dataclass
from functools import singledispatch
from typing import Literal

AggregateName = Literal["COUNT", "SUM", "AVG", "MIN", "MAX"]
Operator = Literal["=", "<>", ">", ">=", "<", "<="]


@dataclass(frozen=True)
class ColumnRef:
    """A column of a table or alias."""

    table: str
    name: str


@dataclass(frozen=True)
class LiteralValue:
    value: int | float | str


@dataclass(frozen=True)
class Aggregate:
    """An aggregate over the rows of a group; without `of` it counts them."""

    name: AggregateName
    of: "Expr | None" = None
    distinct: bool = False


@dataclass(frozen=True)
class Round:
    of: "Expr"


@dataclass(frozen=True)
class Year:
    of: ColumnRef


@dataclass(frozen=True)
class Binary:
    left: "Expr"
    sign: Literal["-", "*", "/"]
    right: "Expr"


@dataclass(frozen=True)
class CaseWhen:
    """1 for rows where the condition holds, 0 for the others."""

    holds: "Cond"


@dataclass(frozen=True)
class ScalarSubquery:
    query: "SelectQuery"


Expr = ColumnRef | LiteralValue | Aggregate | Round | Year | Binary | CaseWhen | ScalarSubquery


@dataclass(frozen=True)
class Compare:
    left: Expr
    operator: Operator
    right: Expr


@dataclass(frozen=True)
class NullCheck:
    of: ColumnRef
    known: bool


@dataclass(frozen=True)
class InList:
    of: ColumnRef
    values: tuple[LiteralValue, ...]


@dataclass(frozen=True)
class Exists:
    query: "SelectQuery"
    exists: bool


@dataclass(frozen=True)
class OrCondition:
    holds: tuple["Cond", ...]


Cond = Compare | NullCheck | InList | Exists | OrCondition


@dataclass(frozen=True)
class TableSource:
    table: str
    alias: str


@dataclass(frozen=True)
class Join:
    """`outer` keeps rows without a partner. `telling`: whether the other kind of join counts as a mistake."""

    source: TableSource
    on: tuple[Cond, ...]
    outer: bool = False
    telling: bool = False


@dataclass(frozen=True)
class OrderBy:
    by: Expr
    down: bool = False


@dataclass(frozen=True)
class SelectQuery:
    outputs: tuple[Expr, ...]
    source: TableSource
    joins: tuple[Join, ...] = ()
    where: tuple[Cond, ...] = ()
    group: tuple[Expr, ...] = ()
    having: tuple[Cond, ...] = ()
    order: tuple[OrderBy, ...] = ()
    limit: int | None = None
    distinct: bool = False


@dataclass(frozen=True)
class SetOperation:
    left: SelectQuery
    by: Literal["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]
    right: SelectQuery


Query = SelectQuery | SetOperation


def is_ordered(query: Query) -> bool:
    """Whether the order of its rows is part of the answer."""
    return isinstance(query, SelectQuery) and bool(query.order)


def list_literals(query: object) -> list[tuple[ColumnRef, int | float | str]]:
    """Columns with the values that they are compared with, anywhere in the query."""
    if isinstance(query, Compare) and isinstance(query.left, ColumnRef) and isinstance(query.right, LiteralValue):
        return [(query.left, query.right.value)]
    if isinstance(query, InList):
        return [(query.of, value.value) for value in query.values]
    return [found for part in list_parts(query) for found in list_literals(part)]


def list_sources(query: object) -> list[TableSource]:
    here = [query] if isinstance(query, TableSource) else []
    return here + [found for part in list_parts(query) for found in list_sources(part)]


def list_parts(node: object) -> list[object]:
    """The children of a node."""
    if isinstance(node, tuple):
        return list(node)
    if is_dataclass(node) and not isinstance(node, type):
        return [getattr(node, field.name) for field in fields(node)]
    return []


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
