"""Query mutants: the right query with one plausible mistake.

A task is asked only if every mutant has another result on at least one of its two databases. A mutant's result does not
depend on the version of SQLite: a reversed order is a mutant, a missing order is not."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import singledispatch
from typing import Any, Final

from app.envs.text_to_sql.tasks.query_ast import (
    Aggregate,
    Binary,
    Compare,
    Exists,
    InList,
    Join,
    LiteralValue,
    NullCheck,
    Operator,
    OrCondition,
    OrderBy,
    Query,
    Round,
    ScalarSubquery,
    SelectQuery,
    SetOperation,
)

UNROUNDED: Final = "not rounded"
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
            for place, item in enumerate(value):
                for name, wrong in _mutate_tree(item):
                    yield name, replace(node, **{field.name: (*value[:place], wrong, *value[place + 1 :])})


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
    for place in range(len(node.values)):
        yield "a value forgotten", replace(node, values=(*node.values[:place], *node.values[place + 1 :]))


@_mutate_node.register
def _(node: Exists) -> Iterator[tuple[str, object]]:
    yield "NOT forgotten", replace(node, exists=not node.exists)


@_mutate_node.register
def _(node: OrCondition) -> Iterator[tuple[str, object]]:
    for place in range(len(node.holds)):
        yield "half of an OR forgotten", node.holds[place]


@_mutate_node.register
def _(node: Join) -> Iterator[tuple[str, object]]:
    if node.outer or node.telling:
        yield "wrong kind of join", replace(node, outer=not node.outer)
    for place in range(1, len(node.on)):
        yield "filter forgotten", replace(node, on=(*node.on[:place], *node.on[place + 1 :]))


@_mutate_node.register
def _(node: OrderBy) -> Iterator[tuple[str, object]]:
    yield "wrong order", replace(node, down=not node.down)


@_mutate_node.register
def _(node: SelectQuery) -> Iterator[tuple[str, object]]:
    for place in range(len(node.where)):
        yield "filter forgotten", replace(node, where=(*node.where[:place], *node.where[place + 1 :]))
    for place in range(len(node.having)):
        yield "HAVING forgotten", replace(node, having=(*node.having[:place], *node.having[place + 1 :]))
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
