"""A SQLite store is copied to PostgreSQL whole and exactly, or not at all."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from sqlalchemy import Boolean, Column, Float, Integer, LargeBinary, Table, insert, select, text, update

from app.domain.errors import StoreUnavailable
from app.domain.groups import GroupFilter
from app.features.worlds.store import EventStore
from app.main.store import Store, metadata
from app.store import copy
from app.store.copy import copy_store, count_rows
from app.store.database import open_reader, open_writer
from app.store.tables import prompts, runs
from tests.features.worlds.test_store import about, event, ids, searched
from tests.support.commands import ended
from tests.support.databases import MIGRATIONS, Postgres, connected
from tests.support.store_cases import group, record, using

ROWS = 450
"""More than are read at once."""
INDEXES = {"event_segments", "event_segment_pages", "group_texts", "text_progress"}
"""Each database has its own."""
TEXTS = ("plain", "ä 🜚 ‏rtl", '{"a": "\\u0000"}', "tab\tquote'\\N\\.\nline", "")
FLOATS = (0.1 + 0.2, -0.0, 5e-324, 1.7976931348623157e308, math.pi)

Rows = Mapping[str, list[tuple[object, ...]]]


def _make_value(column: "Column[object]", number: int, rows: Rows) -> object:
    for key in column.foreign_keys:
        parent = key.column.table
        place = [one.name for one in parent.columns].index(key.column.name)
        return rows[parent.name][number % len(rows[parent.name])][place]
    if column.nullable and number % 3 == 0:
        return None
    if isinstance(column.type, Boolean):
        return number % 2 == 0
    if isinstance(column.type, Float):
        return FLOATS[number % len(FLOATS)]
    if isinstance(column.type, LargeBinary):
        return bytes(range(number % 256))
    if isinstance(column.type, Integer):
        return number + 1 if column.primary_key or column.unique else (-(2**31), 2**31 - 1, number)[number % 3]
    return f"{TEXTS[number % len(TEXTS)]} {number}"


def _fill(url: str) -> Rows:
    """Rows in every table, with values that are easily changed by a copy."""
    rows: dict[str, list[tuple[object, ...]]] = {}
    with connected(url) as connection:
        for table in metadata.sorted_tables:
            if table.name in {"schema_support", *INDEXES}:
                continue
            size = ROWS if table.name == "prompts" else 7
            made = [{one.name: _make_value(one, number, rows) for one in table.columns} for number in range(size)]
            connection.execute(insert(table), made)
            rows[table.name] = [tuple(row.values()) for row in made]
    return rows


def _read(url: str) -> Rows:
    def order(row: tuple[object, ...]) -> str:
        return repr(row)

    engine = open_reader(url, connections=1)
    with engine.connect() as connection:
        rows = {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=order)
            for table in metadata.sorted_tables
            if table.name not in INDEXES
        }
    engine.dispose()
    return rows


def _nothing(_table: str, _rows: int) -> None:
    """No progress is shown."""


@pytest.fixture
def source(tmp_path: Path, migrated_file: Path) -> str:
    (tmp_path / "source.db").write_bytes(migrated_file.read_bytes())
    return f"sqlite:///{tmp_path / 'source.db'}"


def test_every_table_is_copied_exactly(source: str, postgres: Postgres) -> None:
    made = _fill(source)
    target = postgres.empty()
    advanced: dict[str, int] = {}

    def count(table: str, rows: int) -> None:
        advanced[table] = advanced.get(table, 0) + rows

    copied = copy_store(source, target, MIGRATIONS, count)
    assert copied == count_rows(source, MIGRATIONS) == {name: len(rows) for name, rows in made.items()}
    assert advanced == {name: 2 * rows for name, rows in copied.items()}
    assert _read(target) == _read(source)


def test_a_service_goes_on_where_the_old_one_stopped(source: str, postgres: Postgres) -> None:
    async def add(store: Store, *names: str) -> list[str]:
        await store.tasks.put([record(0)])
        await store.groups.add([group(name) for name in names])
        return [one.group_id for one in (await store.views.find_groups(GroupFilter())).groups]

    using(source, lambda store: add(store, "g1", "g2"))
    target = postgres.empty()
    copy_store(source, target, MIGRATIONS, _nothing)
    assert using(target, lambda store: add(store, "g3")) == ["g3", "g2", "g1"]


def test_events_are_found_in_the_copy(source: str, postgres: Postgres) -> None:
    async def tell(store: Store) -> list[str]:
        await store.part(EventStore).add_events("town", [event("a"), event("b", 1), event("gone", 2)])
        await store.part(EventStore).withdraw("town", "gone")
        return await look(store)

    async def look(store: Store) -> list[str]:
        return ids(await searched(store, about("town", "bridge")))

    told = using(source, tell)
    target = postgres.empty()
    copy_store(source, target, MIGRATIONS, _nothing)
    assert (told, using(target, look)) == (["b", "a"], ["b", "a"])


def test_a_copy_that_differs_is_not_kept(source: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(source)
    target = postgres.empty()
    write = copy._write_rows

    def lose_one(connection: object, table: Table, rows: object) -> None:
        write(connection, table, [row for row in rows if table.name != "runs" or row[1] != 5])  # type: ignore[arg-type,attr-defined]

    monkeypatch.setattr(copy, "_write_rows", lose_one)
    with pytest.raises(StoreUnavailable, match="the copy of runs differs from it: 7 and 6 rows"):
        copy_store(source, target, MIGRATIONS, _nothing)
    assert _count(target) == 0


def test_a_store_that_is_written_to_meanwhile_is_not_copied(source: str, postgres: Postgres) -> None:
    _fill(source)
    target = postgres.empty()
    engine = open_writer(source)

    def write(_table: str, _rows: int) -> None:
        with engine.begin() as connection:
            connection.execute(update(runs).values(strict=True))

    with pytest.raises(StoreUnavailable, match="stop the service that uses it"):
        copy_store(source, target, MIGRATIONS, write)
    engine.dispose()
    assert _count(target) == 0


def test_what_cannot_be_copied_is_said(source: str, postgres: Postgres, tmp_path: Path) -> None:
    _fill(source)
    full = postgres.migrated()
    copy_store(source, full, MIGRATIONS, _nothing)
    missing = tmp_path / "missing.db"
    messages = {
        _complain(
            source, full
        ): "the target holds rows already (admin_actions, api_keys, authored): give an empty database",
        _complain(source, source): "the target must be a PostgreSQL database: postgresql://user@host/name",
        _complain(full, source): "the source is a PostgreSQL database: use pg_dump and pg_restore",
        _complain(f"sqlite:///{missing}", full): f"there is no store: {missing}",
    }
    assert list(messages) == list(messages.values())
    assert not missing.exists()


def test_rows_of_a_feature_that_is_not_there_are_not_left_behind(source: str, postgres: Postgres) -> None:
    _fill(source)
    with connected(source) as connection:
        connection.execute(text("CREATE TABLE of_another (name TEXT)"))
        connection.execute(text("INSERT INTO of_another VALUES ('one')"))
    refusal = _complain(source, postgres.empty())
    assert refusal == "the source has rows in of_another, which this service does not know"


def test_the_command_copies_and_says_how_much(source: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(source)
    monkeypatch.setenv("ATROPOS_ENVS_DATABASE_URL", source)
    target = postgres.empty()
    done, again = ended("db", "copy", target), ended("db", "copy", target)
    counts = count_rows(source, MIGRATIONS)
    lines = [f"{table}: {rows}" for table, rows in counts.items()]
    assert done.stdout.splitlines() == [*lines, f"{sum(counts.values())} rows are equal in both databases"]
    assert (done.returncode, again.returncode) == (0, 2)
    assert "the target holds rows already" in again.stderr


def _complain(source: str, target: str) -> str:
    with pytest.raises(StoreUnavailable) as refused:
        copy_store(source, target, MIGRATIONS, _nothing)
    return refused.value.detail


def _count(url: str) -> int:
    engine = open_reader(url, connections=1)
    with engine.connect() as connection:
        counted = len(connection.execute(select(prompts)).all()) + len(connection.execute(select(runs)).all())
    engine.dispose()
    return counted
