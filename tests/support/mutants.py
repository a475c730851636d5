"""A plug-in of pytest for `make mutants`, whose tests of one fault after another begin in copies of one process.

What a module has cached is forgotten before each test: otherwise only the first test that needs an answer runs the code
that makes it. The tests that took least time run first, since the first that fails ends the run."""

import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

TIMES: Final = Path("mutmut-stats.json")
"""Written beside the mutated modules, where the tests run, once their times are known."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if TIMES.exists():
        seconds: dict[str, float] = json.loads(TIMES.read_text(encoding="utf-8"))["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))


def pytest_runtest_setup() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("app.") and "_mutmut_mutated" in vars(module):
            for function in _iterate_cached(module):
                function.cache_clear()


def _iterate_cached(module: ModuleType) -> Iterator["functools._lru_cache_wrapper[object]"]:
    for value in vars(module).values():
        if isinstance(value, functools._lru_cache_wrapper):
            yield value
