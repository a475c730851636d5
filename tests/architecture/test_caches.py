"""Each cache of a function has a bound in bytes: `remember` states it, and others keep little."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.domain.values import MEBIBYTE
from tests.support.tables import read_table

ROOT: Final = Path(__file__).parents[2]

BOUNDED: Final = read_table(__file__, "caches.yaml", dict[str, list[str]])
"""What bounds the bytes of an entry, and the functions, or calls without a name, of which that is true."""
CACHES: Final = {"lru_cache", "cache"}


def list_caches() -> Iterator[str]:
    """`room/module.function` where `lru_cache` or `cache` decorates one, and its own name where it is called."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        module = path.relative_to(ROOT / "app").with_suffix("").as_posix()
        decorating = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                decorating |= set(node.decorator_list)
                yield from (f"{module}.{node.name}" for one in node.decorator_list if find_name(one) in CACHES)
            elif isinstance(node, ast.Call) and node not in decorating:
                called = node.func.func if isinstance(node.func, ast.Call) else node.func
                if find_name(called) in CACHES and (node.func is not called or find_name(called) == "cache"):
                    yield f"{module}.{find_name(called)}"


def find_name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.id if isinstance(called, ast.Name) else ""


def test_a_cache_without_a_bound_in_bytes_says_why_it_is_small() -> None:
    assert sorted(list_caches()) == sorted(name for names in BOUNDED.values() for name in names)


def list_bounds() -> Iterator[int]:
    """Of `remember`, in bytes."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and find_name(node) == "remember" and not isinstance(node.func, ast.Call):
                bound = ast.unparse(node.args[0])
                if "MEBIBYTE" in bound:
                    yield int(bound.removesuffix("MEBIBYTE").removesuffix(" * ") or 1) * MEBIBYTE


def test_the_page_for_operators_says_what_functions_keep_together() -> None:
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert f"| {sum(list_bounds()) // MEBIBYTE} MiB | results of functions of texts" in page
