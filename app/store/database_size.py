"""Measures a database from its catalogue and from some of its rows, without changing it."""

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Table, cast, func, literal, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import LargeBinary, Text

from app.domain.database_size import DatabaseSize, RunGrowth, TableSize
from app.domain.errors import StoreUnavailable
from app.store.database import describe, find_file, is_postgres, open_for_inspection
from app.store.group_sizes import ROW_BYTES
from app.store.migration import find_newest_revision, read_revision
from app.store.pruning import load_run_sizes
from app.store.rows import from_micros
from app.store.tables import groups, metadata

RECENT_DAYS: Final = 7.0
FORECAST_DAYS: Final = 30
PAGES_COUNTED_UP_TO: Final = 4 * 1024**3
"""Bytes of a SQLite file whose pages are all looked at; that reads the whole file."""
SAMPLED_ROWS: Final = 200
DEAD_SHARE: Final = 0.2
LEAST_DEAD_ROWS: Final = 10_000
FREE_SHARE: Final = 0.25
LEAST_FREE_BYTES: Final = 64 * 1024**2
_PAGES: Final = (
    "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name"
    " WHERE s.aggregate = TRUE GROUP BY m.tbl_name"
)
_MICROSECONDS_PER_DAY: Final = 86_400_000_000


def measure_database(url: str, migrations: Path, now: int) -> DatabaseSize:
    """Blocking. `now` is in microseconds since 1970. StoreUnavailable when the database cannot be read."""
    file = find_file(url)
    if file is not None and not file.exists():
        raise StoreUnavailable(f"there is no store: {file}")
    engine = open_for_inspection(url)
    try:
        with engine.connect() as connection:
            found, newest = read_revision(connection), find_newest_revision(migrations)
            if found is None or found < newest:
                have = "no schema" if found is None else f"schema {found}"
                raise StoreUnavailable(f"the store has {have}, not {newest}: run `atropos-envs migrate` on it")
            return _measure(connection, describe(url), is_postgres(engine), now)
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        raise StoreUnavailable(f"the database cannot be reached or read: {reason}") from error
    finally:
        engine.dispose()


def _measure(connection: Connection, name: str, postgres: bool, now: int) -> DatabaseSize:
    if postgres:
        whole, free, how = _read_integer(connection, "SELECT pg_database_size(current_database())"), 0, "pages"
        tables = _measure_postgres_tables(connection)
    else:
        page = _read_integer(connection, "PRAGMA page_size")
        whole = page * _read_integer(connection, "PRAGMA page_count")
        free = page * _read_integer(connection, "PRAGMA freelist_count")
        counted = None if whole > PAGES_COUNTED_UP_TO else _count_pages(connection)
        how = "estimate" if counted is None else "pages"
        tables = [_measure_sqlite_table(connection, table, counted) for table in metadata.sorted_tables]
    days, runs = _load_growth(connection, now)
    a_day = sum(each.bytes_per_day for each in runs)
    return DatabaseSize(
        database=name,
        bytes=whole,
        free_bytes=free,
        measured_by=how,
        tables=tuple(sorted((one for one in tables if one.rows), key=lambda one: -one.bytes)),
        runs=tuple(sorted(runs, key=lambda one: -one.stored.bytes)),
        recent_days=days,
        bytes_per_day=a_day,
        forecast_bytes=whole + max(0, FORECAST_DAYS * a_day - free),
        advice=tuple(_advise(whole, free, tables)),
    )


def _read_integer(connection: Connection, statement: str) -> int:
    return int(connection.execute(text(statement)).scalar_one())


def _count_pages(connection: Connection) -> dict[str, int] | None:
    """Bytes by table, with its indexes; None where this SQLite was built without that."""
    try:
        return {table: int(size) for table, size in connection.execute(text(_PAGES))}
    except DBAPIError:
        return None


def _measure_sqlite_table(connection: Connection, table: Table, counted: dict[str, int] | None) -> TableSize:
    rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
    size = counted.get(table.name, 0) if counted is not None else round(rows * _estimate_row(connection, table))
    return TableSize(table=table.name, rows=rows, bytes=size)


def _estimate_row(connection: Connection, table: Table) -> float:
    """By the first and the last rows in the order of the key."""
    long = [column for column in table.columns if isinstance(column.type, Text | LargeBinary)]
    lengths = sum((func.coalesce(func.length(cast(column, LargeBinary)), 0) for column in long), start=literal(0))
    if not long:
        return ROW_BYTES
    sizes: list[int] = []
    for descending in (False, True):
        keys = [column.desc() if descending else column for column in table.primary_key]
        some = select(lengths).select_from(table).order_by(*keys).limit(SAMPLED_ROWS // 2)
        sizes += connection.execute(some).scalars()
    return ROW_BYTES + (sum(sizes) / len(sizes) if sizes else 0)


def _measure_postgres_tables(connection: Connection) -> list[TableSize]:
    statement = text(
        "SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables"
        " WHERE schemaname = current_schema()"
    )
    known = {table.name for table in metadata.sorted_tables}
    found = [
        TableSize(table=name, rows=live, dead_rows=dead, bytes=size)
        for name, live, dead, size in connection.execute(statement)
        if name in known
    ]
    return [one if one.rows else one.model_copy(update={"rows": _count(connection, one.table)}) for one in found]


def _count(connection: Connection, table: str) -> int:
    """Where the server has not counted yet, as after a restore."""
    return int(connection.execute(select(func.count()).select_from(metadata.tables[table])).scalar_one())


def _load_growth(connection: Connection, now: int) -> tuple[float, list[RunGrowth]]:
    """The days that growth is from, and runs. A store that is younger than a week has fewer days."""
    first = connection.execute(select(groups.c.created_at).order_by(groups.c.sequence).limit(1)).scalar()
    age = 0.0 if first is None else (now - first) / _MICROSECONDS_PER_DAY
    days = min(RECENT_DAYS, max(age, 1 / 24))
    since = groups.c.created_at >= now - int(days * _MICROSECONDS_PER_DAY)
    place = (groups.c.run, groups.c.environment, groups.c.purpose)
    lately: defaultdict[Any, int] = defaultdict(int)
    for *key, count in connection.execute(select(*place, func.count()).where(since).group_by(*place)):
        lately[tuple(key)] = count
    newest = {
        tuple(key): last
        for *key, last in connection.execute(select(*place, func.max(groups.c.created_at)).group_by(*place))
    }
    runs: list[RunGrowth] = []
    for stored in load_run_sizes(connection):
        here = (stored.run, stored.environment, stored.purpose)
        a_day = lately[here] / days * stored.bytes / stored.groups
        runs.append(RunGrowth(stored=stored, last_at=from_micros(newest[here]), bytes_per_day=round(a_day)))
    return days, runs


def _advise(whole: int, free: int, tables: list[TableSize]) -> list[str]:
    advice: list[str] = []
    if free > LEAST_FREE_BYTES and free > FREE_SHARE * whole:
        advice.append(
            "Much of the file is free and will be filled again. To give it back to the disk, stop the service and run"
            " `VACUUM` with the sqlite3 command; that needs as much free disk as the file then has."
        )
    for table in tables:
        if table.dead_rows > LEAST_DEAD_ROWS and table.dead_rows > DEAD_SHARE * table.rows:
            advice.append(
                f"Much of {table.table} is dead rows: see that autovacuum is on and comes to it, or run"
                f" `VACUUM (ANALYZE) {table.table}`. Their room is filled again; only `VACUUM FULL`, which locks the"
                " table, gives it back to the disk."
            )
    return advice
