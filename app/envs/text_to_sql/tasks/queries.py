"""Syntax trees of queries, and their SQL.

Columns always name their table, so a tree can be put into another one unchanged."""

from dataclasses import dataclass, fields, is_dataclass
from functools import singledispatch
from typing import Literal

AggregateName = Literal["COUNT", "SUM", "AVG", "MIN", "MAX"]
Operator = Literal["=", "<>", ">", ">=", "<", "<="]


@dataclass(frozen=True)
class Col:
    """A column of a table or alias."""

    table: str
    name: str


@dataclass(frozen=True)
class Lit:
    value: int | float | str


@dataclass(frozen=True)
class Agg:
    """An aggregate over the rows of a group; without `of` it counts them."""

    name: AggregateName
    of: "Expr | None" = None
    distinct: bool = False


@dataclass(frozen=True)
class Rounded:
    of: "Expr"


@dataclass(frozen=True)
class Year:
    of: Col


@dataclass(frozen=True)
class Binary:
    left: "Expr"
    sign: Literal["-", "*", "/"]
    right: "Expr"


@dataclass(frozen=True)
class Flagged:
    """1 for rows where the condition holds, 0 for the others."""

    holds: "Cond"


@dataclass(frozen=True)
class Scalar:
    query: "Select"


Expr = Col | Lit | Agg | Rounded | Year | Binary | Flagged | Scalar


@dataclass(frozen=True)
class Compare:
    left: Expr
    operator: Operator
    right: Expr


@dataclass(frozen=True)
class Known:
    of: Col
    known: bool


@dataclass(frozen=True)
class Among:
    of: Col
    values: tuple[Lit, ...]


@dataclass(frozen=True)
class Exists:
    query: "Select"
    exists: bool


@dataclass(frozen=True)
class Either:
    holds: tuple["Cond", ...]


Cond = Compare | Known | Among | Exists | Either


@dataclass(frozen=True)
class Source:
    table: str
    alias: str


@dataclass(frozen=True)
class Join:
    """`outer` keeps rows without a partner. `telling`: whether the other kind of join counts as a mistake."""

    source: Source
    on: tuple[Cond, ...]
    outer: bool = False
    telling: bool = False


@dataclass(frozen=True)
class Order:
    by: Expr
    down: bool = False


@dataclass(frozen=True)
class Select:
    outputs: tuple[Expr, ...]
    source: Source
    joins: tuple[Join, ...] = ()
    where: tuple[Cond, ...] = ()
    group: tuple[Expr, ...] = ()
    having: tuple[Cond, ...] = ()
    order: tuple[Order, ...] = ()
    limit: int | None = None
    distinct: bool = False


@dataclass(frozen=True)
class Combined:
    left: Select
    by: Literal["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]
    right: Select


Query = Select | Combined


def ordered(query: Query) -> bool:
    """Whether the order of its rows is part of the answer."""
    return isinstance(query, Select) and bool(query.order)


def literals(query: object) -> list[tuple[Col, int | float | str]]:
    """Columns with the values that they are compared with, anywhere in the query."""
    if isinstance(query, Compare) and isinstance(query.left, Col) and isinstance(query.right, Lit):
        return [(query.left, query.right.value)]
    if isinstance(query, Among):
        return [(query.of, value.value) for value in query.values]
    return [found for part in parts(query) for found in literals(part)]


def sources(query: object) -> list[Source]:
    here = [query] if isinstance(query, Source) else []
    return here + [found for part in parts(query) for found in sources(part)]


def parts(node: object) -> list[object]:
    """The children of a node."""
    if isinstance(node, tuple):
        return list(node)
    if is_dataclass(node) and not isinstance(node, type):
        return [getattr(node, field.name) for field in fields(node)]
    return []


@singledispatch
def sql(node: object) -> str:
    raise TypeError(f"{node!r} is no part of a query")


@sql.register
def _(node: Col) -> str:
    return f"{node.table}.{node.name}"


@sql.register
def _(node: Lit) -> str:
    return "'" + node.value.replace("'", "''") + "'" if isinstance(node.value, str) else repr(node.value)


@sql.register
def _(node: Agg) -> str:
    return f"{node.name}({'DISTINCT ' * node.distinct}{'*' if node.of is None else sql(node.of)})"


@sql.register
def _(node: Rounded) -> str:
    return f"ROUND({sql(node.of)}, 2)"


@sql.register
def _(node: Year) -> str:
    return f"CAST(strftime('%Y', {sql(node.of)}) AS INTEGER)"


@sql.register
def _(node: Binary) -> str:
    return f"{sql(node.left)} {node.sign} {sql(node.right)}"


@sql.register
def _(node: Flagged) -> str:
    return f"CASE WHEN {sql(node.holds)} THEN 1 ELSE 0 END"


@sql.register
def _(node: Scalar) -> str:
    return f"({sql(node.query)})"


@sql.register
def _(node: Compare) -> str:
    return f"{sql(node.left)} {node.operator} {sql(node.right)}"


@sql.register
def _(node: Known) -> str:
    return f"{sql(node.of)} IS {'NOT ' * node.known}NULL"


@sql.register
def _(node: Among) -> str:
    return f"{sql(node.of)} IN ({', '.join(map(sql, node.values))})"


@sql.register
def _(node: Exists) -> str:
    return f"{'NOT ' * (not node.exists)}EXISTS ({sql(node.query)})"


@sql.register
def _(node: Either) -> str:
    return f"({' OR '.join(map(sql, node.holds))})"


@sql.register
def _(node: Source) -> str:
    return node.table if node.alias == node.table else f"{node.table} AS {node.alias}"


@sql.register
def _(node: Join) -> str:
    return f"{'LEFT ' * node.outer}JOIN {sql(node.source)} ON {' AND '.join(map(sql, node.on))}"


@sql.register
def _(node: Order) -> str:
    return sql(node.by) + " DESC" * node.down


@sql.register
def _(node: Select) -> str:
    clauses = [
        f"SELECT {'DISTINCT ' * node.distinct}{', '.join(map(sql, node.outputs))}",
        f"FROM {sql(node.source)}",
        *map(sql, node.joins),
        _clause("WHERE ", " AND ", node.where),
        _clause("GROUP BY ", ", ", node.group),
        _clause("HAVING ", " AND ", node.having),
        _clause("ORDER BY ", ", ", node.order),
        "" if node.limit is None else f"LIMIT {node.limit}",
    ]
    return " ".join(filter(None, clauses))


@sql.register
def _(node: Combined) -> str:
    return f"{sql(node.left)} {node.by} {sql(node.right)}"


def _clause(word: str, between: str, nodes: tuple[object, ...]) -> str:
    return word + between.join(map(sql, nodes)) if nodes else ""
