"""Rows: models encoded as JSON, times as microseconds, and fast bulk inserts."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import ColumnElement, Connection, Insert, Table, func, insert, make_url, or_
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.default import DefaultDialect

from app.domain.tasks import LARGE_TEXT, Completion
from app.domain.values import is_encodable
from app.store.prepared_statements import fetch_rows

ModelT = TypeVar("ModelT", bound=BaseModel)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PIECE: Final = 256 * 1024
"""Characters, encoded in a few milliseconds."""


def encode(value: BaseModel, exclude: set[str] | None = None) -> str:
    """A model as JSON without default values. NUL and lone surrogates are escaped."""
    try:
        return value.__pydantic_serializer__.to_json(value, exclude=exclude, exclude_defaults=True).decode()
    except PydanticSerializationError:  # a lone surrogate, which UTF-8 cannot hold but an ASCII escape can
        return json.dumps(value.model_dump(mode="json", exclude=exclude, exclude_defaults=True))


def encode_completion(completion: Completion) -> str:
    """As `encode`. Long texts are encoded in pieces, between which other threads run."""
    if completion.text is None:
        messages = ",".join(_encode_text_first(message, "content") for message in completion.messages or ())
        return _put_first(f'"messages":[{messages}]', encode(completion, exclude={"messages"}))
    return encode(completion) if len(completion.text) < LARGE_TEXT else _encode_text_first(completion, "text")


def _encode_text_first(value: BaseModel, field: str) -> str:
    text: str | None = getattr(value, field)
    if text is None:
        return encode(value)
    pieces = (_encode_text(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE))
    return _put_first(f'"{field}":"{"".join(pieces)}"', encode(value, exclude={field}))


def _encode_text(text: str) -> str:
    try:
        return to_json(text).decode()[1:-1]
    except PydanticSerializationError:
        return json.dumps(text)[1:-1]


def _put_first(member: str, rest: str) -> str:
    """`rest` is a JSON object."""
    return f"{{{member}}}" if rest == "{}" else f"{{{member},{rest[1:]}"


def decode(model: type[ModelT], text: str) -> ModelT:
    try:
        return model.model_validate_json(text)
    except ValidationError:
        return model.model_validate(json.loads(text))  # Python's parser alone accepts escaped lone surrogates


def encode_json(value: JsonValue) -> str:
    """A value as JSON, with keys in their order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def decode_json(text: str) -> JsonValue:
    value: JsonValue = json.loads(text)
    return value


def match_names(column: ColumnElement[str], patterns: Sequence[str]) -> ColumnElement[bool]:
    """Whether a name is one of these, or begins with one that ends in `*`. Not LIKE, which ignores case in SQLite."""
    return or_(
        *(func.substr(column, 1, len(one) - 1) == one[:-1] if one.endswith("*") else column == one for one in patterns)
    )


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def is_storable(*identifiers: str) -> bool:
    """Whether a text column can hold them; others cannot exist in the store."""
    return all("\x00" not in given and is_encodable(given) for given in identifiers)


def filter_storable(identifiers: Iterable[str]) -> list[str]:
    return [given for given in dict.fromkeys(identifiers) if is_storable(given)]


RowValue = str | int | float | bytes | None
Row = Mapping[str, RowValue]


@dataclass(frozen=True)
class _CompiledInsert:
    sql: str
    values: Callable[[Row], tuple[RowValue, ...]]


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts rows. Each row has a value for every column except a generated key."""
    _write_rows(connection, table, rows)


def insert_tuples(connection: Connection, table: Table, rows: Sequence[tuple[RowValue, ...]]) -> None:
    """As `insert_rows`, for tables that get many rows: values in the order of the table's columns, since to name each
    takes longer than to make it."""
    if rows:
        dialect = connection.dialect
        _execute_rows(connection, _compile_insert(table, f"{dialect.name}+{dialect.driver}://", None).sql, rows)


def insert_new_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Inserts rows, as `insert_rows`. Where a key exists, the row stays as it is."""
    _write_rows(connection, table, rows, ())


def upsert_rows(connection: Connection, table: Table, changed: str, rows: Sequence[Row]) -> None:
    """Inserts rows, as `insert_rows`. Where the primary key exists, the column `changed` gets the new value."""
    _write_rows(connection, table, rows, (changed,))


def _write_rows(
    connection: Connection, table: Table, rows: Sequence[Row], changed: tuple[str, ...] | None = None
) -> None:
    if rows:
        dialect = connection.dialect
        statement = _compile_insert(table, f"{dialect.name}+{dialect.driver}://", changed)
        _execute_rows(connection, statement.sql, [statement.values(row) for row in rows])


MOST_ROWS: Final = 100
"""Of one statement with values for each of them."""
_PORTIONS: Final = (64, 8, 1)
"""Few, so that each statement is prepared once. A group has eight rollouts, or a multiple of that."""


def _execute_rows(connection: Connection, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """SQLite gets many rows with each statement: for each the driver lets other threads run, and then waits until one
    of them lets it go on."""
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(sql, list(rows))
        return
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


def insert_new_returning(
    connection: Connection, table: Table, rows: Sequence[Row], columns: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Inserts rows, as `insert_new_rows`, and returns these columns of those that are new."""
    dialect = connection.dialect
    found: list[tuple[Any, ...]] = []
    for first in range(0, len(rows), MOST_ROWS):
        part = rows[first : first + MOST_ROWS]
        statement = _compile_returning(table, f"{dialect.name}+{dialect.driver}://", columns, len(part))
        given = tuple(chain.from_iterable(map(statement.values, part)))
        found += map(tuple, fetch_rows(connection, statement.sql, given))
    return found


@cache
def _compile_returning(table: Table, url: str, columns: tuple[str, ...], count: int) -> _CompiledInsert:
    """One statement for `count` rows: the drivers return nothing of one that is executed for each."""
    single = _compile_insert(table, url, None)
    into, _, values = single.sql.partition(" VALUES ")
    sql = f"{into} VALUES {', '.join([values] * count)} ON CONFLICT DO NOTHING RETURNING {', '.join(columns)}"
    return _CompiledInsert(sql, single.values)


@cache
def _compile_insert(table: Table, url: str, changed: tuple[str, ...] | None) -> _CompiledInsert:
    """`changed`: columns that get the new value where the key exists; None where it must not."""
    dialect = cast("type[DefaultDialect]", make_url(url).get_dialect())
    columns = [column.name for column in table.columns if column is not table.autoincrement_column]
    positional = dialect(paramstyle="qmark" if dialect.name == "sqlite" else "format")
    into: Insert = insert(table) if changed is None else _build_upsert(table, changed, dialect.name)
    compiled = into.inline().compile(dialect=positional, column_keys=columns)
    return _CompiledInsert(str(compiled), itemgetter(*columns))


def _build_upsert(table: Table, changed: tuple[str, ...], dialect: str) -> Insert:
    into: Any
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # takes long to import

        into = postgresql.insert(table)
    else:
        into = sqlite.insert(table)
    keys = [column.name for column in table.primary_key]
    written: Insert = (
        into.on_conflict_do_update(index_elements=keys, set_={name: into.excluded[name] for name in changed})
        if changed
        else into.on_conflict_do_nothing()
    )
    return written
