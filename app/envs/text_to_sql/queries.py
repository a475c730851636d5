"""Queries as syntax trees: their SQL, and their mutants.

Columns always name their table, so a tree can be put into another one unchanged. A mutant is the query with one
plausible mistake. A task is asked only if every mutant of its query has another result on at least one of its two
databases. The result of a mutant does not depend on the version of SQLite: a reversed order is a mutant, a missing
order is not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, singledispatch
from typing import Any, Final, Literal

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
    """`outer` keeps rows without a partner."""

    source: TableSource
    on: tuple[Cond, ...]
    outer: bool = False


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
    return [pair for part in _list_parts(query) for pair in list_literals(part)]


def list_sources(query: object) -> list[TableSource]:
    here = [query] if isinstance(query, TableSource) else []
    return here + [source for part in _list_parts(query) for source in list_sources(part)]


def _list_parts(node: object) -> list[object]:
    """The children of a node."""
    if isinstance(node, tuple):
        return list(node)
    kind: Any = type(node)
    return [getattr(node, name) for name in _list_fields(kind)]


@cache  # `fields` is slow, and every draw walks through many trees
def _list_fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


# SQL of syntax trees.


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


# Mutants: the right query with one plausible mistake.

UNROUNDED: Final = "not rounded"
"""The mistake that soundness looks at apart: its result shows how near a figure is to the middle of two cents."""
_EDGE: Final[dict[Operator, Operator]] = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}
_REVERSED: Final[dict[Operator, Operator]] = {"=": "<>", "<>": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


def list_mutants(query: Query) -> Iterator[tuple[str, Query]]:
    """Mistakes with the resulting queries. None of them equals `query`."""
    yield from _mutate_tree(query)


def _mutate_tree(node: Any) -> Iterator[tuple[str, Any]]:
    yield from _mutate_node(node)
    for field in fields(node):
        value = getattr(node, field.name)
        if is_dataclass(value):
            for name, wrong in _mutate_tree(value):
                yield name, replace(node, **{field.name: wrong})
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                for name, wrong in _mutate_tree(item):
                    yield name, replace(node, **{field.name: (*value[:index], wrong, *value[index + 1 :])})


@singledispatch
def _mutate_node(node: object) -> Iterator[tuple[str, object]]:
    return iter(())


@_mutate_node.register
def _(node: Compare) -> Iterator[tuple[str, object]]:
    if isinstance(node.right, LiteralValue | ScalarSubquery):
        yield "comparison turned", replace(node, operator=_REVERSED[node.operator])
        if node.operator in _EDGE and _can_meet_edge(node):
            yield "off by one", replace(node, operator=_EDGE[node.operator])


def _can_meet_edge(node: Compare) -> bool:
    """Averages and sums need not meet the value that they are compared with."""
    return not isinstance(node.right, ScalarSubquery) and not (
        isinstance(node.left, Aggregate) and node.left.name in ("AVG", "SUM")
    )


@_mutate_node.register
def _(node: Aggregate) -> Iterator[tuple[str, object]]:
    if node.distinct:
        yield "DISTINCT in an aggregate forgotten", replace(node, distinct=False)
    elif node.name == "COUNT" and node.of is not None:
        yield "COUNT(*) for COUNT(column)", Aggregate("COUNT")
    elif node.name in ("MIN", "MAX"):
        yield "MIN for MAX", replace(node, name="MAX" if node.name == "MIN" else "MIN")
    elif node.name in ("SUM", "AVG"):
        yield "AVG for SUM", replace(node, name="AVG" if node.name == "SUM" else "SUM")


@_mutate_node.register
def _(node: Round) -> Iterator[tuple[str, object]]:
    yield UNROUNDED, node.of


@_mutate_node.register
def _(node: Binary) -> Iterator[tuple[str, object]]:
    if node.sign == "-":
        yield "difference the wrong way round", replace(node, left=node.right, right=node.left)


@_mutate_node.register
def _(node: NullCheck) -> Iterator[tuple[str, object]]:
    yield "NULL taken for known", replace(node, known=not node.known)


@_mutate_node.register
def _(node: InList) -> Iterator[tuple[str, object]]:
    for index in range(len(node.values)):
        yield "a value forgotten", replace(node, values=(*node.values[:index], *node.values[index + 1 :]))


@_mutate_node.register
def _(node: Exists) -> Iterator[tuple[str, object]]:
    yield "NOT forgotten", replace(node, exists=not node.exists)


@_mutate_node.register
def _(node: OrCondition) -> Iterator[tuple[str, object]]:
    for index in range(len(node.holds)):
        yield "half of an OR forgotten", node.holds[index]


@_mutate_node.register
def _(node: Join) -> Iterator[tuple[str, object]]:
    # not the other way round: where every row has a partner, an outer join gives the same as an inner one
    if node.outer:
        yield "wrong kind of join", replace(node, outer=False)
    for index in range(1, len(node.on)):  # the first condition is the join itself
        yield "filter forgotten", replace(node, on=(*node.on[:index], *node.on[index + 1 :]))


@_mutate_node.register
def _(node: OrderBy) -> Iterator[tuple[str, object]]:
    yield "wrong order", replace(node, down=not node.down)


@_mutate_node.register
def _(node: SelectQuery) -> Iterator[tuple[str, object]]:
    for index in range(len(node.where)):
        yield "filter forgotten", replace(node, where=(*node.where[:index], *node.where[index + 1 :]))
    for index in range(len(node.having)):
        yield "HAVING forgotten", replace(node, having=(*node.having[:index], *node.having[index + 1 :]))
    if node.distinct:
        yield "DISTINCT forgotten", replace(node, distinct=False)
    if node.group and not node.having:
        yield "GROUP BY forgotten", replace(node, group=())
    if node.limit is not None:
        yield "LIMIT forgotten", replace(node, limit=None)
        yield "LIMIT off by one", replace(node, limit=node.limit + 1)
    yield from _mutate_outputs(node)


def _mutate_outputs(node: SelectQuery) -> Iterator[tuple[str, object]]:
    first, *rest = node.outputs
    if rest:
        yield "columns in another order", replace(node, outputs=(rest[0], first, *rest[1:]))
        yield "a column forgotten", replace(node, outputs=node.outputs[:-1])


@_mutate_node.register
def _(node: SetOperation) -> Iterator[tuple[str, object]]:
    for by in ("UNION", "UNION ALL", "INTERSECT", "EXCEPT"):
        if by != node.by:
            yield "another set operation", replace(node, by=by)
    yield "half of a set operation", node.left
    if node.by == "EXCEPT":
        yield "the other way round", replace(node, left=node.right, right=node.left)
