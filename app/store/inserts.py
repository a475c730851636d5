"""Inserts of many rows, in the way that takes each database least.

SQLite gets many rows with each statement: after each its driver lets other threads run, and waits until one of them
lets it go on. PostgreSQL gets new rows by COPY, and those of which some may be there as one value of JSON: values for
each row of a statement would have to be looked for by the driver whenever it is executed.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, cast

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Insert,
    Table,
    Text,
    bindparam,
    event,
    func,
    insert,
    make_url,
    select,
)
from sqlalchemy import cast as cast_to
from sqlalchemy import column as name_column
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.engine.interfaces import DBAPICursor

from app.store.prepared_statements import fetch_rows
from app.store.rows import Row, RowValue

Changed = tuple[str, ...] | None
"""Columns that get the new value where the key exists: without one the row stays as it is. None where no key may."""

MOST_ROWS: Final = 100
"""Of one value of JSON, and of one statement that returns something of them."""
_PORTIONS: Final = (64, 8, 1)
"""Few, so that each statement is prepared once. A group has eight rollouts, or a multiple of that."""
_COPY: Final = "COPY "


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts rows. Each row has a value for every column except a generated key."""
    insert_tuples(connection, table, _list_values(table, rows))


def insert_tuples(connection: Connection, table: Table, rows: Sequence[tuple[RowValue, ...]]) -> None:
    """As `insert_rows`, for tables that get many rows: values in the order of the table's columns, since to name each
    takes longer than to make it."""
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_write_copy(table), list(rows))
    else:
        _insert_portions(connection, _compile_insert(table, _SQLITE, None), rows)


def insert_new_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts rows, as `insert_rows`. Where a key exists, the row stays as it is."""
    _merge_rows(connection, table, rows, ())


def upsert_rows(connection: Connection, table: Table, changed: str, rows: Sequence[Row]) -> None:
    """Inserts rows, as `insert_rows`. Where the primary key exists, the column `changed` gets the new value. No two
    rows have the same key."""
    _merge_rows(connection, table, rows, (changed,))


def _merge_rows(connection: Connection, table: Table, rows: Sequence[Row], changed: Changed) -> None:
    if not rows:
        return
    values = _list_values(table, rows)
    if connection.dialect.name == "sqlite":
        _insert_portions(connection, _compile_insert(table, _SQLITE, changed), values)
    elif any(isinstance(value, bytes) for row in values for value in row):  # JSON would have to spell them out
        connection.exec_driver_sql(_compile_insert(table, _POSTGRES, changed), values)
    else:
        for part in _split(values):
            connection.exec_driver_sql(_compile_merge(table, changed, ()), (_write_json(table, part),))


def insert_new_returning(
    connection: Connection, table: Table, rows: Sequence[Row], columns: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Inserts rows, as `insert_new_rows`, and returns these columns of those that are new."""
    found: list[tuple[Any, ...]] = []
    given: tuple[RowValue, ...]
    for part in _split(_list_values(table, rows)):
        if connection.dialect.name == "postgresql":
            sql, given = _compile_merge(table, (), columns), (_write_json(table, part),)
        else:
            into = _repeat_values(_compile_insert(table, _SQLITE, ()), len(part))
            sql, given = f"{into} RETURNING {', '.join(columns)}", tuple(chain.from_iterable(part))
        found += map(tuple, fetch_rows(connection, sql, given))
    return found


def _split(rows: Sequence[tuple[RowValue, ...]]) -> Iterator[Sequence[tuple[RowValue, ...]]]:
    return (rows[first : first + MOST_ROWS] for first in range(0, len(rows), MOST_ROWS))


def let_copy(engine: Engine) -> None:
    """Lets `exec_driver_sql` take `COPY … FROM STDIN` with rows as its parameters, on PostgreSQL."""
    event.listen(engine, "do_executemany", _copy_rows)
    event.listen(engine, "do_execute", _copy_row)


def _copy_rows(cursor: DBAPICursor, statement: str, rows: Sequence[Sequence[RowValue]], _context: object) -> bool:
    """Whether this was it."""
    if not statement.startswith(_COPY):
        return False
    with cast("Any", cursor).copy(statement) as copying:
        for row in rows:
            copying.write_row(row)
    return True


def _copy_row(cursor: DBAPICursor, statement: str, row: Sequence[RowValue], context: object) -> bool:
    return _copy_rows(cursor, statement, [row], context)


def _insert_portions(connection: Connection, sql: str, rows: Sequence[tuple[RowValue, ...]]) -> None:
    done = 0
    for size in _PORTIONS:
        while len(rows) - done >= size:
            given = tuple(chain.from_iterable(rows[done : done + size]))
            fetch_rows(connection, _repeat_values(sql, size), given)
            done += size


@cache
def _repeat_values(sql: str, count: int) -> str:
    """The insert of one row, for this many."""
    into, _, rest = sql.partition(" VALUES ")
    values, _, conflict = rest.partition(")")
    return f"{into} VALUES {', '.join([f'{values})'] * count)}{conflict}"


@cache
def _list_columns(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if column is not table.autoincrement_column]


def _list_values(table: Table, rows: Sequence[Row]) -> list[tuple[RowValue, ...]]:
    values = itemgetter(*(column.name for column in _list_columns(table)))
    return [values(row) for row in rows]


def _write_json(table: Table, rows: Sequence[tuple[RowValue, ...]]) -> str:
    names = [column.name for column in _list_columns(table)]
    return json.dumps([dict(zip(names, row, strict=True)) for row in rows])


_SQLITE: Final = "sqlite://"
_POSTGRES: Final = "postgresql+psycopg://"


@cache
def _find_dialect(url: str) -> DefaultDialect:
    kind = cast("type[DefaultDialect]", make_url(url).get_dialect())
    return kind(paramstyle="qmark" if url == _SQLITE else "format")


@cache
def _write_copy(table: Table) -> str:
    write = _find_dialect(_POSTGRES).identifier_preparer
    columns = ", ".join(write.format_column(column) for column in _list_columns(table))
    return f"{_COPY}{write.format_table(table)} ({columns}) FROM STDIN"


@cache
def _compile_insert(table: Table, url: str, changed: Changed) -> str:
    """Of one row."""
    into = insert(table) if changed is None else _build_merge(table, changed, url)
    names = [column.name for column in _list_columns(table)]
    return str(into.inline().compile(dialect=_find_dialect(url), column_keys=names))


@cache
def _compile_merge(table: Table, changed: tuple[str, ...], returning: tuple[str, ...]) -> str:
    """On PostgreSQL, of rows in one value of JSON."""
    from sqlalchemy.dialects import postgresql  # takes long to import

    columns = _list_columns(table)
    value = cast_to(bindparam("rows", type_=Text()), postgresql.JSON())
    named = (name_column(column.name, column.type) for column in columns)
    given = func.json_to_recordset(value).table_valued(*named).render_derived("given", with_types=True)
    merge = _build_merge(table, changed, _POSTGRES).from_select([column.name for column in columns], select(given))
    return str(merge.returning(*(table.c[name] for name in returning)).compile(dialect=_find_dialect(_POSTGRES)))


def _build_merge(table: Table, changed: tuple[str, ...], url: str) -> Insert:
    into: Any
    if url == _POSTGRES:
        from sqlalchemy.dialects import postgresql  # takes long to import

        into = postgresql.insert(table)
    else:
        into = sqlite.insert(table)
    keys = [column.name for column in table.primary_key]
    merge: Insert = (
        into.on_conflict_do_update(index_elements=keys, set_={name: into.excluded[name] for name in changed})
        if changed
        else into.on_conflict_do_nothing()
    )
    return merge
