"""Syntax trees of queries.

Columns always name their table, so a tree can be put into another one unchanged."""

from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal

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
    kind: Any = type(node)
    return [getattr(node, name) for name in _list_fields(kind)]


@cache
def _list_fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
