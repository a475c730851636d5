"""Fast bulk inserts: statements are compiled once, and each row only provides its values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import cast

from sqlalchemy import Connection, Table, insert, make_url
from sqlalchemy.engine.default import DefaultDialect

Row = Mapping[str, str | int | float | bytes | None]


@dataclass(frozen=True)
class _Statement:
    sql: str
    values: Callable[[Row], tuple[str | int | float | bytes | None, ...]]


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts rows. Each row has a value for every column except a generated key."""
    if rows:
        dialect = connection.dialect
        statement = _statement(table, f"{dialect.name}+{dialect.driver}://")
        connection.exec_driver_sql(statement.sql, [statement.values(row) for row in rows])


@cache
def _statement(table: Table, url: str) -> _Statement:
    dialect = cast("type[DefaultDialect]", make_url(url).get_dialect())
    columns = [column.name for column in table.columns if column is not table.autoincrement_column]
    positional = dialect(paramstyle="qmark" if dialect.name == "sqlite" else "format")
    compiled = insert(table).inline().compile(dialect=positional, column_keys=columns)
    return _Statement(str(compiled), itemgetter(*columns))
