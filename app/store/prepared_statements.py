"""Prepared statements for hot paths, compiled once per dialect."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Integer,
    Text,
    TextClause,
    any_,
    bindparam,
    func,
    make_url,
    select,
    text,
)
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import Executable

Value = str | int | float | bytes | bool | None


class PreparedStatement:
    """A statement with named parameters. `make` builds it, given whether the database is PostgreSQL."""

    def __init__(self, make: Callable[[bool], Executable]) -> None:
        self._compiled = cache(lambda postgres: _compile_statement(make(postgres), postgres))

    def run(self, connection: Connection, **values: Value | list[str] | list[int]) -> CursorResult[Any]:
        """Lists are for `is_among`."""
        return connection.exec_driver_sql(*self._bind(connection, values))

    def fetch(self, connection: Connection, **values: Value | list[str] | list[int]) -> Sequence[Sequence[Any]]:
        """The rows, as `fetch_rows` gets them."""
        return fetch_rows(connection, *self._bind(connection, values))

    def fetch_alone(self, connection: Connection, **values: Value | list[str] | list[int]) -> Sequence[Sequence[Any]]:
        """As `fetch`, for the only statement of a read: on SQLite it is a snapshot by itself, and needs no transaction
        around it."""
        return fetch_rows(connection, *self._bind(connection, values), alone=True)

    def _bind(
        self, connection: Connection, values: Mapping[str, Value | list[str] | list[int]]
    ) -> tuple[str, tuple[Any, ...]]:
        postgres = connection.dialect.name == "postgresql"
        sql, names, fixed = self._compiled(postgres)
        given = (values.get(name, fixed.get(name)) for name in names)
        return sql, tuple(given if postgres else map(_encode_list, given))


def fetch_rows(
    connection: Connection, sql: str, values: tuple[Any, ...], *, alone: bool = False
) -> Sequence[Sequence[Any]]:
    """What a statement of a transaction returns. SQLite's driver is asked itself, unless somebody listens: SQLAlchemy's
    cursors and results take longer than most statements do."""
    driver = connection.connection.driver_connection if alone or connection.in_transaction() else None
    if not isinstance(driver, sqlite3.Connection) or connection.dispatch.before_cursor_execute:
        result = connection.exec_driver_sql(sql, values)
        return result.all() if result.returns_rows else ()
    try:
        return driver.execute(sql, values).fetchall()
    except sqlite3.Error as error:
        raise DBAPIError.instance(sql, values, error, sqlite3.Error, dialect=connection.dialect) from error


def is_among(column: Column[Any], name: str, postgres: bool) -> ColumnElement[bool]:
    """Whether the column is in the list that is given as `name`: one statement, however long the list is."""
    if postgres:
        kind = BigInteger() if isinstance(column.type, Integer) else Text()
        return column == any_(bindparam(name, type_=ARRAY(kind)))
    return column.in_(select(func.json_each(bindparam(name)).table_valued("value", name="given").c.value))


def _encode_list(value: Value | list[str] | list[int]) -> Value:
    return json.dumps(value) if isinstance(value, list) else value


def _compile_statement(statement: Executable, postgres: bool) -> tuple[str, tuple[str, ...], dict[str, Value]]:
    """The SQL text, its parameter names in order, and the values that the statement itself sets."""
    dialect = cast("type[DefaultDialect]", make_url("postgresql+psycopg://" if postgres else "sqlite://").get_dialect())
    compiled = statement.compile(dialect=dialect(paramstyle="format" if postgres else "qmark"))  # type: ignore[attr-defined]
    return str(compiled), tuple(compiled.positiontup or ()), dict(compiled.params)


def build_dialect_sql(postgresql: str, sqlite: str) -> Callable[[bool], TextClause]:
    return lambda postgres: text(postgresql if postgres else sqlite)


def format_integers(values: Iterable[int], *, postgres: bool) -> str:
    """A list of integers as one text, in the database's syntax."""
    written = ",".join(map(str, values))
    return f"{{{written}}}" if postgres else f"[{written}]"
