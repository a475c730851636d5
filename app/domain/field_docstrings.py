"""The docstrings below the fields of a class, read from its source."""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise


def describe_fields(model: type) -> dict[str, str]:
    """By field. Those of base classes count but for fields that the class declares anew. A class without source, or
    inside a function, has none."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        kept = {name: text for name, text in found.items() if name not in inspect.get_annotations(one)}
        found = {**kept, **_docstrings_in(one.__module__).get(one.__qualname__, {})}
    return found


@cache
def _docstrings_in(module: str) -> Mapping[str, Mapping[str, str]]:
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {name: dict(_iter_described(body)) for name, body in _classes(ast.parse(source), "")}


def _classes(inside: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, list[ast.stmt]]]:
    for node in inside.body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, node.body
            yield from _classes(node, f"{prefix}{node.name}.")


def _iter_described(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield field.target.id, inspect.cleandoc(below.value.value)
