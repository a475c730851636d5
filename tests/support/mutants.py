"""A plug-in of pytest for `make mutants`, whose tests of one mutant after another begin in copies of one process.

What a module has cached is forgotten before each test whose way is recorded, and once for each mutant: otherwise only
the first test that needs an answer runs the code that makes it. A mutant meets at most 200 of the tests that come by,
one of each test function in turn, those that take least time first: where thousands give one function one sentence
each, the next thousand find no more."""

import functools
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from mutmut.state import state

from app.store.statements import PreparedStatement

TIMES: Final = Path("mutmut-stats.json")
"""Written beside the mutated modules, where the tests run, once their times are known."""
MOST_TESTS: Final = 200
MOST_SECONDS: Final = 60
"""Of processor time, of which the dearest 200 tests take half. A mutant whose tests do not end would take hours."""


def pytest_configure(config: pytest.Config) -> None:
    if TIMES.exists():
        read_times()  # once, in the process that the others are copies of
    if "__mutmut_" in os.environ.get("MUTANT_UNDER_TEST", ""):
        forget_cached()
        config.args[:] = order_tests(config.args, read_times())[:MOST_TESTS]
        limit = round(time.process_time()) + MOST_SECONDS
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (limit if soft == resource.RLIM_INFINITY else min(limit, soft), hard))


def order_tests(names: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """One of each test function in turn, in each turn those that took least time first."""
    turns: Counter[str] = Counter()
    placed = []
    for name in sorted(names, key=lambda name: (seconds.get(name, 0.0), name)):
        function = name.partition("[")[0]
        placed.append((turns[function], name))
        turns[function] += 1
    return [name for _, name in sorted(placed, key=lambda one: one[0])]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(config.args)}
    items.sort(key=lambda item: places.get(item.nodeid, 0))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The copies collect again, with the same modules: what came from an iterator, and names that pytest had escaped,
    are to be there as they were."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        values = {"args": tuple(map(_keep, mark.args)), "kwargs": {key: _keep(one) for key, one in mark.kwargs.items()}}
        for name, value in values.items():
            object.__setattr__(mark, name, value)
        for one in (mark, mark._param_ids_from):
            if one is not None:
                object.__setattr__(one, "_param_ids_generated", None)


def _keep(argument: object) -> object:
    return list(argument) if isinstance(argument, Iterator) else argument


@functools.cache
def read_times() -> Mapping[str, float]:
    return json.loads(TIMES.read_text(encoding="utf-8"))["duration_by_test"]  # type: ignore[no-any-return]


def pytest_collection_finish() -> None:
    """What runs when modules are imported, runs without a mutant: it is not of the first test."""
    state()._stats.clear()


def pytest_runtest_setup() -> None:
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":
        forget_cached()


def forget_cached() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("app.") and "_mutmut_mutated" in vars(module):
            for function in _iterate_cached(module):
                function.cache_clear()


def _iterate_cached(module: ModuleType) -> Iterator["functools._lru_cache_wrapper[object]"]:
    for value in vars(module).values():
        if isinstance(value, functools._lru_cache_wrapper):
            yield value
        if isinstance(value, PreparedStatement):
            yield value._compiled
