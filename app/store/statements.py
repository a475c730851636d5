"""Statements and rows: prepared statements, locks on names, inserts of many rows, values as JSON, long values packed.

A statement that runs for each request is compiled once per dialect, and rows are inserted many at a time in the way
that takes each database least: SQLAlchemy's own ways take longer than the database does.
"""

import hashlib
import json
import sqlite3
import struct
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

import zstandard
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Engine,
    Insert,
    Integer,
    Table,
    Text,
    TextClause,
    all_,
    any_,
    bindparam,
    event,
    func,
    insert,
    make_url,
    or_,
    select,
    text,
)
from sqlalchemy import cast as cast_to
from sqlalchemy import column as name_column
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.expression import Executable

from app.domain.tasks import LARGE_TEXT, Completion
from app.domain.values import is_encodable

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
        bound = (values.get(name, fixed.get(name)) for name in names)
        return sql, tuple(bound if postgres else map(_encode_list, bound))


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


def is_among(column: ColumnElement[Any], name: str, postgres: bool) -> ColumnElement[bool]:
    """Whether the column is in the list that is given as `name`: one statement, however long the list is."""
    if postgres:
        kind = BigInteger() if isinstance(column.type, Integer) else Text()
        return column == any_(bindparam(name, type_=ARRAY(kind)))
    return column.in_(select(func.json_each(bindparam(name)).table_valued("value", name="given").c.value))


def is_outside(column: Column[Any], name: str, postgres: bool) -> ColumnElement[bool]:
    """The opposite of `is_among`, which must not be negated: SQLAlchemy would make `!= ANY` of it, true for any two."""
    if postgres:
        kind = BigInteger() if isinstance(column.type, Integer) else Text()
        return column != all_(bindparam(name, type_=ARRAY(kind)))
    return column.not_in(select(func.json_each(bindparam(name)).table_valued("value", name="given").c.value))


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


# Locks on names.

_LOCK_NUMBERS: Final = PreparedStatement(
    lambda _: text("SELECT pg_advisory_xact_lock(one) FROM unnest(CAST(:numbers AS bigint[])) AS one")
)


def lock_names(connection: Connection, names: Iterable[str]) -> None:
    """Whoever locks one of these names waits until the transaction ends. There may be no row yet to lock. A name begins
    with the word for what it is of."""
    if connection.dialect.name != "postgresql":  # SQLite has one writer at a time as it is
        return
    numbers = {int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True) for name in names}
    # Sorted: transactions that lock several take them in one order, and so never wait for each other.
    _LOCK_NUMBERS.run(connection, numbers=format_integers(sorted(numbers), postgres=True))


# Values of rows: models as JSON, times as microseconds.

_ModelT = TypeVar("_ModelT", bound=BaseModel)

MICROSECONDS_PER_SECOND: Final = 1_000_000
MICROSECONDS_PER_DAY: Final = 86_400 * MICROSECONDS_PER_SECOND
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


def decode(model: type[_ModelT], text: str) -> _ModelT:
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
    return all("\x00" not in one and is_encodable(one) for one in identifiers)


def filter_storable(identifiers: Iterable[str]) -> list[str]:
    return [one for one in dict.fromkeys(identifiers) if is_storable(one)]


RowValue = str | int | float | bytes | None
Row = Mapping[str, RowValue]


# Inserts of many rows. SQLite gets many with each statement: after each its driver lets other threads run, and waits
# until one of them lets it go on. PostgreSQL gets new rows by COPY, and rows of which some may be there as one value of
# JSON: its driver would look for the values of each row of a statement whenever that is executed.

_Changed = tuple[str, ...] | None
"""Columns that get the new value where the key exists: without one the row stays as it is. None where no key may."""

_MOST_ROWS: Final = 100
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


def _merge_rows(connection: Connection, table: Table, rows: Sequence[Row], changed: _Changed) -> None:
    if not rows:
        return
    values = _list_values(table, rows)
    if connection.dialect.name == "sqlite":
        _insert_portions(connection, _compile_insert(table, _SQLITE, changed), values)
    elif any(isinstance(value, bytes) for row in values for value in row):  # JSON would have to spell them out
        connection.exec_driver_sql(_compile_insert(table, _POSTGRES, changed), values)
    else:
        for part in _split_rows(values):
            connection.exec_driver_sql(_compile_merge(table, changed, ()), (_write_json(table, part),))


def insert_new_returning(
    connection: Connection, table: Table, rows: Sequence[Row], columns: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Inserts rows, as `insert_new_rows`, and returns these columns of those that are new."""
    new_rows: list[tuple[Any, ...]] = []
    bound: tuple[RowValue, ...]
    for part in _split_rows(_list_values(table, rows)):
        if connection.dialect.name == "postgresql":
            sql, bound = _compile_merge(table, (), columns), (_write_json(table, part),)
        else:
            into = _repeat_values(_compile_insert(table, _SQLITE, ()), len(part))
            sql, bound = f"{into} RETURNING {', '.join(columns)}", tuple(chain.from_iterable(part))
        new_rows += map(tuple, fetch_rows(connection, sql, bound))
    return new_rows


def _split_rows(rows: Sequence[tuple[RowValue, ...]]) -> Iterator[Sequence[tuple[RowValue, ...]]]:
    return (rows[first : first + _MOST_ROWS] for first in range(0, len(rows), _MOST_ROWS))


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
            bound = tuple(chain.from_iterable(rows[done : done + size]))
            fetch_rows(connection, _repeat_values(sql, size), bound)
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
def _compile_insert(table: Table, url: str, changed: _Changed) -> str:
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


def begin_insert(table: Table, postgres: bool) -> Any:
    """An insert that may say what happens where a key exists: each dialect has its own."""
    if postgres:
        from sqlalchemy.dialects import postgresql  # takes long to import

        return postgresql.insert(table)
    return sqlite.insert(table)


def _build_merge(table: Table, changed: tuple[str, ...], url: str) -> Insert:
    into = begin_insert(table, url == _POSTGRES)
    keys = [column.name for column in table.primary_key]
    merge: Insert = (
        into.on_conflict_do_update(index_elements=keys, set_={name: into.excluded[name] for name in changed})
        if changed
        else into.on_conflict_do_nothing()
    )
    return merge


# Long texts and long lists of numbers, packed: what a table's `packed` column holds in place of its JSON text.
# The first byte is the form, the rest is a Zstandard frame. All of it comes back exactly as it was: a log-probability
# is kept in four bytes only where these say the same number.

PACKED_FROM: Final = 4096
"""Characters of JSON from which on a text is packed. Packing as many takes 17 microseconds and saves half of them."""
NUMBERS_FROM: Final = 256
"""Token ids from which on a completion is packed, whatever its text."""
_LEVEL: Final = 3

_TEXT: Final = b"\x01"
_COMPLETION: Final = b"\x02"
_HEAD: Final = struct.Struct("<III")
"""Of a completion: the bytes of its JSON without numbers, the number of its token ids, the form of its logprobs."""
_ABSENT, _SINGLES, _JSON = 0, 1, 2
_SAMPLE: Final = 16
"""Log-probabilities that are tried first: mostly these tell already that single precision will not do."""


class StoredText(NamedTuple):
    """A JSON text as two columns. Where `packed` is not null, `text` is empty, which no reader takes for JSON."""

    text: str
    packed: bytes | None = None


class _Codec(threading.local):
    """Each thread's own: they are not safe for several, and to make one takes as long as to use it on a page."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=_LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_CODEC: Final = _Codec()


def is_long(completion: Completion) -> bool:
    """Whether it will be packed, and so takes long to encode; about, where much stands beside its text."""
    if completion.token_ids is not None and len(completion.token_ids) >= NUMBERS_FROM:
        return True
    if completion.text is not None:
        return len(completion.text) >= PACKED_FROM
    return sum(len(one.content or "") for one in completion.messages or ()) >= PACKED_FROM


def pack_text(text: str) -> StoredText:
    """`text` is JSON, and so can be encoded."""
    if len(text) < PACKED_FROM:
        return StoredText(text)
    return StoredText("", _TEXT + _CODEC.compress(text.encode()))


def measure_stored(stored: StoredText) -> int:
    return len(stored.text) + len(stored.packed or b"")


def unpack_text(text: str, packed: bytes | None) -> str:
    return text if packed is None else _open(packed, _TEXT).decode()


def pack_completion(completion: Completion) -> StoredText:
    ids = completion.token_ids
    if ids is None or len(ids) < NUMBERS_FROM:
        return pack_text(encode_completion(completion))
    body = encode_completion(completion.model_copy(update={"token_ids": None, "logprobs": None})).encode()
    form, numbers = _pack_logprobs(completion.logprobs)
    head = _HEAD.pack(len(body), len(ids), form)
    return StoredText("", _COMPLETION + _CODEC.compress(b"".join((head, body, _split_bytes(array("I", ids)), numbers))))


def unpack_completion(text: str, packed: bytes | None) -> Completion:
    if packed is None or packed[:1] == _TEXT:
        return decode(Completion, unpack_text(text, packed))
    whole = _open(packed, _COMPLETION)
    size, count, form = _HEAD.unpack_from(whole)
    ids, numbers = _HEAD.size + size, _HEAD.size + size + 4 * count
    rest = decode(Completion, whole[_HEAD.size : ids].decode())
    values = {
        "token_ids": tuple(_join_bytes("I", whole[ids:numbers])),
        "logprobs": _unpack_logprobs(form, whole[numbers:]),
    }
    return rest.model_copy(update=values)


def _pack_logprobs(logprobs: tuple[float, ...] | None) -> tuple[int, bytes]:
    """In single precision where each is such a number, as inference servers compute them."""
    if logprobs is None:
        return _ABSENT, b""
    for some in (logprobs[:_SAMPLE], logprobs):
        singles = array("f", some)
        if tuple(singles) != some:
            return _JSON, to_json(logprobs)
    return _SINGLES, _split_bytes(singles)


def _unpack_logprobs(form: int, numbers: bytes) -> tuple[float, ...] | None:
    if form == _ABSENT:
        return None
    return tuple(_join_bytes("f", numbers) if form == _SINGLES else from_json(numbers))


def _split_bytes(numbers: "array[int] | array[float]") -> bytes:
    """All first bytes, then all second ones, and so on: the high ones of token ids hardly differ."""
    if sys.byteorder == "big":
        numbers.byteswap()
    held = numbers.tobytes()
    return b"".join(held[byte :: numbers.itemsize] for byte in range(numbers.itemsize))


def _join_bytes(kind: str, planes: bytes) -> "array[int] | array[float]":
    numbers = array(kind)
    held = bytearray(len(planes))
    count = len(planes) // numbers.itemsize
    for byte in range(numbers.itemsize):
        held[byte :: numbers.itemsize] = planes[byte * count : (byte + 1) * count]
    numbers.frombytes(held)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _open(packed: bytes, form: bytes) -> bytes:
    if packed[:1] != form:
        raise ValueError("a packed value has a form that this release does not know")
    return _CODEC.decompress(packed[1:])
