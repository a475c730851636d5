"""What SQLAlchemy compiles for one store is kept for the next: it keeps it by engine, and tests open thousands."""

from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

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
