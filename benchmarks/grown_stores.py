"""Large stores from a small one: each copy of its rows is another stretch of the same trainings.

Rows are copied by `INSERT ... SELECT`, so that millions take minutes; statistics are those that the service would have
counted. A copy has its own groups, leases, judgements and costs. Some copies share tasks, as epochs do.
"""

# ruff: noqa: S608  # all that statements are put together from stands here

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from app.domain.rollups import GROUPS_PER_BUCKET, RollupKey
from app.domain.values import canonical_json
from app.store.database import find_file, parse_url

COPIES_OF_A_TASK: Final = 4
SECONDS_BETWEEN_COPIES: Final = 600
COPIES_AN_HOUR: Final = 3600 // SECONDS_BETWEEN_COPIES
COPIES_AT_ONCE: Final = 100
_POSITIONS: Final = 1_000
"""More than a stream of the small store has."""
_INDEXES: Final = 1_000_000_000_000

Report = Callable[[str], None]
Values = Sequence[Any]


Cursor = Any
"""That of either driver."""


@dataclass(frozen=True)
class Span:
    """What the small store takes: each copy begins behind the one before."""

    groups: int
    judgements: int
    copies: int
    """In all, the small store's own rows being the first."""

    @property
    def variants(self) -> int:
        return max(1, (self.copies - 1) // COPIES_OF_A_TASK)

    def count_copies(self, variant: int) -> int:
        return len(range(variant or self.variants, self.copies, self.variants))


def _name(kind: str, column: str) -> str:
    """Another identifier of the same form, for each copy."""
    return f"'{kind}_' || md5({column} || k.number)"


def _shift(by: str) -> str:
    return f"one.sequence + k.number * {{{by}}}"


_GROUP: Final = _name("group", "one.group_id")
_TASK: Final = "'task_' || md5(one.task_id || k.variant)"
_SEQUENCE: Final = "one.group_sequence + k.number * {groups}"
_LATER: Final = "one.created_at + k.number * {micros}"


@dataclass(frozen=True)
class CopiedTable:
    """`columns` are SQL expressions over a row `one` and its copy `k`; those that are not named stay as they are."""

    table: str
    columns: Mapping[str, str]
    where: str = "TRUE"
    each: str = "copies"


_INDEX: Final = 'one."index" + (1 + k.variant) * {indexes}'
COPIED: Final = (
    CopiedTable("prompts", {"digest": "md5(one.digest || k.variant)"}, each="variants"),
    CopiedTable(
        "tasks",
        {"task_id": _TASK, "index": _INDEX, "prompt_digest": "md5(one.prompt_digest || k.variant)"},
        each="variants",
    ),
    CopiedTable(
        "leases",
        {"lease_id": _name("lease", "one.lease_id"), "index": _INDEX, "group_id": _GROUP, "created_at": _LATER}
        | {"position": "one.position + k.number * {positions}"},
        where="one.state = 'done'",
    ),
    CopiedTable("groups", {"sequence": _shift("groups"), "group_id": _GROUP, "task_id": _TASK, "created_at": _LATER}),
    CopiedTable(
        "rollouts",
        {"group_sequence": _SEQUENCE}
        | {"rollout_id": "'group_' || md5(substr(one.rollout_id, 1, 38) || k.number) || '-' || one.position"},
    ),
    CopiedTable("judgements", {"sequence": _shift("judgements"), "group_sequence": _SEQUENCE, "created_at": _LATER}),
    CopiedTable(
        "idempotency_keys", {"key_digest": "md5(one.key_digest || k.number) || md5(k.number || one.key_digest)"}
    ),
    CopiedTable("parts", {"group_id": _GROUP, "scope": _GROUP, "task_id": _TASK, "due": "NULL", "created_at": _LATER}),
    CopiedTable("part_members", {"group_id": _GROUP, "scope": _GROUP}),
    CopiedTable(
        "spending",
        {"hour": "one.hour + k.number / {hours}"},
        where="one.kind = 'run' AND k.number % {hours} = 0",
    ),
)


def grow(url: str, copies: int, report: Report) -> None:
    """Makes the store so many times as large, in one transaction. Nobody else uses the store meanwhile, and what is
    half made is thrown away: nothing needs to be durable before the end."""
    postgres = find_file(url) is None
    mark = "%s" if postgres else "?"
    with _opened_postgres(url) if postgres else _opened_sqlite(url) as cursor:
        span = _measure(cursor, copies)
        _count_off(cursor, span)
        _age(cursor, span)
        for table in COPIED:
            _copy_table(cursor, table, span)
            report(f"{table.table} copied")
        _multiply_rollups(cursor, span, mark)
        _multiply_task_rollups(cursor, span, mark)
        cursor.execute(f"UPDATE streams SET position = {copies * _POSITIONS}, handed_out = handed_out * {copies}")
        report("statistics written")


def _measure(cursor: Cursor, copies: int) -> Span:
    largest = [_select(cursor, f"SELECT max(sequence) FROM {table}")[0][0] for table in ("groups", "judgements")]
    groups = -(-largest[0] // GROUPS_PER_BUCKET) * GROUPS_PER_BUCKET  # so that copies fill buckets of their own
    return Span(groups, largest[1] or 0, copies)


def _count_off(cursor: Cursor, span: Span) -> None:
    """The copies beside the small store's own rows, and the variants of tasks, as tables."""
    for table, first, last in (("copies", 1, span.copies - 1), ("variants", 0, span.variants - 1)):
        cursor.execute(f"CREATE TEMP TABLE {table} (number BIGINT PRIMARY KEY, variant BIGINT)")
        cursor.execute(
            f"INSERT INTO {table} WITH RECURSIVE counted (number) AS (SELECT {first} UNION ALL"
            f" SELECT number + 1 FROM counted WHERE number < {last})"
            f" SELECT number, number % {span.variants} FROM counted WHERE number <= {last}"
        )


def _age(cursor: Cursor, span: Span) -> None:
    """The newest copy is of now."""
    past = (span.copies - 1) * SECONDS_BETWEEN_COPIES
    for table in ("groups", "leases", "judgements", "tasks", "parts"):
        cursor.execute(f"UPDATE {table} SET created_at = created_at - {past * 1_000_000}")
    cursor.execute(f"UPDATE spending SET hour = hour - {past // 3600} WHERE kind = 'run'")


def _copy_table(cursor: Cursor, table: CopiedTable, span: Span) -> None:
    given = {"groups": span.groups, "judgements": span.judgements, "positions": _POSITIONS, "indexes": _INDEXES}
    given |= {"micros": SECONDS_BETWEEN_COPIES * 1_000_000, "hours": COPIES_AN_HOUR}
    names = _list_columns(cursor, table.table)
    made = ", ".join(table.columns.get(name, f'one."{name}"').format(**given) for name in names)
    quoted, where = ", ".join(f'"{name}"' for name in names), table.where.format(**given)
    cursor.execute(f'CREATE TEMP TABLE small AS SELECT * FROM "{table.table}"')
    into = f'INSERT INTO "{table.table}" ({quoted}) SELECT {made} FROM {table.each} AS k'
    for first in range(0, span.copies, COPIES_AT_ONCE):
        some = f"k.number >= {first} AND k.number < {first + COPIES_AT_ONCE}"
        cursor.execute(f"{into} CROSS JOIN small AS one WHERE {some} AND {where}")
    cursor.execute("DROP TABLE small")


def _list_columns(cursor: Cursor, table: str) -> list[str]:
    cursor.execute(f'SELECT * FROM "{table}" LIMIT 0')
    return [column[0] for column in cursor.description]


def _select(cursor: Cursor, statement: str) -> list[tuple[Any, ...]]:
    return list(cursor.execute(statement).fetchall())


_KEY: Final = RollupKey._fields


def _multiply_rollups(cursor: Cursor, span: Span, mark: str) -> None:
    """Buckets are each copy's own. Everything else counts every copy; pass rates count tasks, of which there are
    fewer."""
    columns = ("digest", *_KEY, "measures")
    stored = _select(cursor, f"SELECT {', '.join(columns)} FROM rollups")
    changed = [(_multiply(row[-1], span), row[0]) for row in stored if row[1] != "bucket"]
    cursor.executemany(f"UPDATE rollups SET measures = {mark} WHERE digest = {mark}", changed)
    buckets = [row for row in stored if row[1] == "bucket"]
    for copy in range(1, span.copies):
        moved = [_move_bucket(row, copy * span.groups // GROUPS_PER_BUCKET) for row in buckets]
        cursor.executemany(_write_insert("rollups", columns, mark), moved)


def _write_insert(table: str, columns: Sequence[str], mark: str) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"


def _multiply(measures: str, span: Span) -> str:
    def of(name: str, value: int | list[int]) -> int | list[int]:
        times = 1 + span.variants if name.startswith("pass_rate:") else span.copies
        return value * times if isinstance(value, int) else [number * times for number in value]

    return canonical_json({name: of(name, value) for name, value in json.loads(measures).items()})


def _move_bucket(row: Values, by: int) -> Values:
    _, *key, measures = row
    moved = RollupKey(*key)
    moved = moved._replace(bucket=(moved.bucket or 0) + by)
    label = None if moved.label is None else json.loads(moved.label)
    return (moved._replace(label=label).digest, *moved, measures)


def _multiply_task_rollups(cursor: Cursor, span: Span, mark: str) -> None:
    columns = ("run", "environment", "task_id", "sums")
    stored = _select(cursor, f"SELECT {', '.join(columns)} FROM task_rollups")
    for variant in range(span.variants):
        times = span.count_copies(variant)
        copied = [
            (
                run,
                environment,
                f"task_{_md5(f'{task_id}{variant}')}",
                canonical_json([times * n for n in json.loads(sums)]),
            )
            for run, environment, task_id, sums in stored
        ]
        cursor.executemany(_write_insert("task_rollups", columns, mark), copied)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@contextmanager
def _opened_sqlite(url: str) -> Iterator[Cursor]:
    connection = sqlite3.connect(str(find_file(url)), isolation_level=None)
    connection.create_function("md5", 1, _md5, deterministic=True)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -400000", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    cursor = connection.cursor()
    cursor.execute("BEGIN EXCLUSIVE")
    yield cursor
    cursor.execute("COMMIT")
    cursor.execute("PRAGMA journal_mode = WAL")
    connection.close()


@contextmanager
def _opened_postgres(url: str) -> Iterator[Cursor]:
    with psycopg.connect(parse_url(url).set(drivername="postgresql").render_as_string(hide_password=False)) as opened:
        cursor = opened.cursor()
        cursor.execute("SET session_replication_role = replica")  # foreign keys are not looked up
        yield cursor
        for table in ("groups", "judgements"):
            counter = f"pg_get_serial_sequence('{table}', 'sequence')"
            cursor.execute(f"SELECT setval({counter}, max(sequence)) FROM {table}")
        opened.commit()
        opened.autocommit = True
        cursor.execute("VACUUM (ANALYZE)")  # as autovacuum does
