"""Migrates a database to the newest schema. Fast if it is up to date."""

import logging
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from app.domain.errors import StoreUnavailable
from app.store.database import is_postgres, open_for_migration

_LOCK = 7_305_811_962_046
"""An arbitrary constant: the PostgreSQL advisory lock that lets one replica migrate at a time."""


def find_newest_revision(migrations: Path) -> str:
    """Revisions are numbered: `versions/0007_what_changed.py` is revision 0007."""
    return max(path.name.partition("_")[0] for path in (migrations / "versions").glob("[0-9]*_*.py"))


def migrate(url: str, migrations: Path) -> None:
    """Migrates the database. Blocking. StoreUnavailable when it cannot be reached or is newer than this service;
    ValueError for an invalid URL."""
    newest = find_newest_revision(migrations)
    try:
        engine = open_for_migration(url)
        try:
            _migrate_to(newest, engine, migrations)
        finally:
            engine.dispose()
    except DBAPIError as error:
        raise StoreUnavailable(f"the database cannot be reached or migrated: {error.orig}") from error
    except OSError as error:
        raise StoreUnavailable(f"the folder of the database file cannot be created: {error}") from error


def _migrate_to(newest: str, engine: Engine, migrations: Path) -> None:
    with engine.connect() as connection:
        current = _read_revision(connection)
    if current is not None and current > newest:
        raise StoreUnavailable(
            f"the database has schema {current}, but this version of the service supports {newest}: upgrade the service"
        )
    if current != newest:
        _upgrade(engine, migrations, newest)


def _read_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _upgrade(engine: Engine, migrations: Path, newest: str) -> None:
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
    # Alembic takes long to import and most starts need none of it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    with engine.begin() as connection:
        if is_postgres(engine):
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        if _read_revision(connection) != newest:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
