"""The schema of a database: migrating it to the newest one, and whether a service runs on the one it has.

In a roll-out replicas of two releases share a database. A migration that only expands the schema is one that a service
of the schema before does not notice; `schema_support` says the oldest schema whose service runs on this one. So a
service starts on a newer schema that supports its own, and leaves that as it is.
"""

import asyncio
import logging
import os
import random
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, inspect, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from app.domain.errors import StoreUnavailable
from app.domain.faults import explain_os_error
from app.store.database import (
    DISK_FULL,
    StorePart,
    find_file,
    is_disk_full,
    is_postgres,
    is_transient,
    open_for_inspection,
    open_for_migration,
)
from app.store.tables import runs

log = logging.getLogger(__name__)

_LOCK = 7_305_811_962_046
"""An arbitrary constant: the PostgreSQL advisory lock that lets one replica migrate at a time."""

_BASE = "base"

LIFTED_BY: Final = "5a1ee195"
"""The last commit whose `migrate` brings stores of older schemas to the oldest one that ours goes on from."""

_ATTEMPTS = 10
"""How often a migration that met a deadlock is tried. A running service holds its locks for a transaction, and the
database takes a second to find each deadlock."""


def find_newest_revision(migrations: Path) -> str:
    """Revisions are numbered: `versions/0007_what_changed.py` is revision 0007."""
    return max(_list_revisions(migrations))


def _list_revisions(migrations: Path) -> list[str]:
    return [path.name.partition("_")[0] for path in (migrations / "versions").glob("[0-9]*_*.py")]


def _require_way(current: str | None, migrations: Path) -> None:
    """StoreUnavailable for a schema that is older than our first one: there is no way from it to the newest."""
    first = min(_list_revisions(migrations))
    if current is not None and current < first:
        raise StoreUnavailable(
            f"the database has schema {current}, and this version of the service lifts schemas from {first} on: "
            f"first run `atropos-envs migrate` of the commit {LIFTED_BY}"
        )


def _find_oldest_revision(steps: Iterable[tuple[str, bool]]) -> str:
    """The oldest schema whose service runs on the newest one: everything after it only expanded the schema. `steps` are
    revisions, newest first, and whether they expand it."""
    return next((revision for revision, expands in steps if not expands), _BASE)


def migrate(url: str, migrations: Path) -> None:
    """Migrates the database. Blocking. Begins again when a running service brought it into a deadlock: it then left
    nothing behind. StoreUnavailable when the database cannot be reached or when a newer service changed it so that this
    one cannot run on it; ValueError for an invalid URL."""
    newest = find_newest_revision(migrations)
    try:
        engine = open_for_migration(url)
        try:
            _migrate_with_retries(newest, engine, migrations)
        finally:
            engine.dispose()
    except DBAPIError as error:
        raise StoreUnavailable(f"the database cannot be reached or migrated: {error.orig}") from error
    except OSError as error:
        raise StoreUnavailable(f"the folder of the database file cannot be created: {error}") from error


def require_servable(url: str, migrations: Path) -> None:
    """Raises what `migrate` would, but changes nothing: the schema may be older, and the SQLite file may be missing
    where it can be made."""
    file = find_file(url)
    if file is not None:
        _require_writable(file)
        if not file.exists():
            return
    newest = find_newest_revision(migrations)
    engine = open_for_inspection(url)
    try:
        with engine.connect() as connection:
            current, oldest = read_revision(connection), _read_oldest_revision(connection)
    except DBAPIError as error:
        raise StoreUnavailable(f"the database cannot be reached or read: {_join_lines(error.orig)}") from error
    finally:
        engine.dispose()
    _require_way(current, migrations)
    if current is not None and current > newest:
        _require_support(current, oldest, newest)


def _require_writable(file: Path) -> None:
    """SQLite writes other files beside its own. Missing folders would be made."""
    folder = next(parent for parent in file.parents if parent.exists())
    if not folder.is_dir():
        raise StoreUnavailable(f"the folder of the database file cannot be created: {folder} is a file")
    blocked = next((path for path in (folder, file) if path.exists() and not os.access(path, os.W_OK)), None)
    if blocked is not None:
        raise StoreUnavailable(f"the database cannot be written: this user may not write {blocked}")


def _join_lines(error: BaseException | None) -> str:
    return " ".join(str(error).split())


def _migrate_with_retries(newest: str, engine: Engine, migrations: Path) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _migrate_to(newest, engine, migrations)
        except DBAPIError as error:
            if attempt == _ATTEMPTS or not is_transient(error):
                raise
            log.warning("a running service and the migration waited for each other: the migration begins again")
        time.sleep(random.uniform(0.05, 0.1) * attempt)  # noqa: S311  # the other transaction gets ahead


def _migrate_to(newest: str, engine: Engine, migrations: Path) -> None:
    with engine.connect() as connection:
        current = read_revision(connection)
        oldest = _read_oldest_revision(connection)
    _require_way(current, migrations)
    if current is None or current < newest:
        _upgrade(engine, migrations, newest)
    elif current > newest:
        _require_support(current, oldest, newest)


def _require_support(current: str, oldest: str | None, ours: str) -> None:
    """StoreUnavailable unless the service of schema `ours` runs on schema `current`."""
    if oldest is None or oldest > ours:
        raise StoreUnavailable(
            f"the database has schema {current}, but this version of the service supports {ours}: upgrade the service"
        )
    log.info("the database has schema %s, which a newer version expanded; this version runs on it", current)


def read_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _read_oldest_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("schema_support"):
        return None
    return connection.execute(text("SELECT oldest FROM schema_support")).scalar()


def _upgrade(engine: Engine, migrations: Path, newest: str) -> None:
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
    # Alembic takes long to import and most starts need none of it.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    with engine.begin() as connection:
        if is_postgres(engine):
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        current = read_revision(connection)
        if current is None:  # a line for each step of a store without data would tell nobody anything
            logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)
        if current is None or current < newest:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            scripts = ScriptDirectory.from_config(config).walk_revisions()
            steps = ((one.revision, getattr(one.module, "IS_EXPANSION", False)) for one in scripts)
            _write_oldest_revision(connection, _find_oldest_revision(steps))
        elif current > newest:  # by a newer replica that started at the same time
            _require_support(current, _read_oldest_revision(connection), newest)


def _write_oldest_revision(connection: Connection, oldest: str) -> None:
    """What a service has written may have made it a newer one already."""
    former = _read_oldest_revision(connection)
    if former is not None and former != _BASE:
        oldest = max(oldest, former)
    connection.execute(text("DELETE FROM schema_support"))
    connection.execute(text("INSERT INTO schema_support (oldest) VALUES (:oldest)"), {"oldest": oldest})


# Whether the store can be written to.

_HEALTH_SECONDS: Final = 5.0
PROBE_BYTES: Final = 256 * 1024


class HealthCheck(StorePart):
    """Whether the store can be written to."""

    async def check(self) -> None:
        """Writes and reads a probe; StoreUnavailable when that fails."""
        try:
            async with asyncio.timeout(_HEALTH_SECONDS):
                await self.database.write(_check_writable)
        except SQLAlchemyError as error:
            raise StoreUnavailable("the database schema is not the one that the service expects") from error
        except TimeoutError as error:
            raise StoreUnavailable(f"the store did not answer within {_HEALTH_SECONDS:.0f} seconds") from error
        except OSError as error:
            reason = (
                DISK_FULL
                if is_disk_full(error)
                else f"the disk of the database cannot be written to: {explain_os_error(error)}"
            )
            raise StoreUnavailable(reason) from error


def _check_writable(connection: Connection) -> None:
    """A write that changes nothing, and a read, both in the writer's lane: readers may all be busy with long queries.
    SQLite reuses the space of its journal, so only a new file shows that the disk is full."""
    connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
    connection.execute(select(runs.c.name).limit(1)).all()
    file = connection.engine.url.database
    if connection.dialect.name == "sqlite" and file:
        with tempfile.TemporaryFile(dir=Path(file).absolute().parent) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
