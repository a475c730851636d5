"""The one writer: who gets which answer, and when."""

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from app.domain.errors import InvalidRequest, StoreUnavailable
from app.main.store import Store
from app.store import database as writing
from app.store.database import Database
from app.store.migration import HealthCheck, migrate
from app.store.statements import insert_rows
from app.store.tables import prompts
from tests.store.test_groups import refused
from tests.support.databases import MIGRATIONS, Postgres
from tests.support.event_loop import closed_after


def opened(
    url: str, committed: Callable[[float], None] | None = None, readers: int = 2
) -> AbstractAsyncContextManager[Database]:
    return closed_after(Database(url, readers=readers, clock=None, committed=committed))


@pytest.fixture
async def database(store_url: str) -> AsyncIterator[Database]:
    async with opened(store_url) as database:
        yield database


def put(digest: str) -> Callable[[Connection], str]:
    """A unit that fails when the digest is there already."""

    def unit(connection: Connection) -> str:
        connection.execute(insert(prompts), {"digest": digest, "body": "{}"})
        return digest

    return unit


def stored(connection: Connection) -> set[str]:
    return set(connection.execute(select(prompts.c.digest)).scalars())


class Gate:
    """A unit that keeps the writer busy until it is opened, so that what follows is one batch."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    def __call__(self, _connection: Connection) -> None:
        self.entered.set()
        self._open.wait(10)

    def open(self) -> None:
        self._open.set()

    async def shut(self, database: Database) -> "asyncio.Future[None]":
        waiting = asyncio.ensure_future(database.write(self))
        await asyncio.to_thread(self.entered.wait, 10)
        return waiting


async def in_one_batch(database: Database, units: list[Callable[[Connection], str]]) -> list[str | BaseException]:
    gate = Gate()
    first = await gate.shut(database)
    calls = asyncio.gather(*(database.write(unit) for unit in units), return_exceptions=True)
    await asyncio.sleep(0)
    gate.open()
    await first
    return await calls


@pytest.mark.dialects
async def test_many_callers_share_a_commit(store_url: str) -> None:
    seconds: list[float] = []
    names = [f"p{number}" for number in range(30)]
    async with opened(store_url, seconds.append) as database:
        written = await in_one_batch(database, [put(name) for name in names])
        assert (written, await database.read(stored)) == (names, set(names))
    assert len(seconds) == 2
    assert all(0 <= one < 10 for one in seconds)


@pytest.mark.dialects
async def test_only_the_guilty_get_the_error(database: Database) -> None:
    def refuse(connection: Connection) -> str:
        put("of the refused")(connection)
        raise InvalidRequest("no")

    def broken(_connection: Connection) -> str:
        raise ZeroDivisionError

    units = [put("a"), put("a"), refuse, put("b"), broken, put("c")]
    answers = await in_one_batch(database, units)
    assert ([one if isinstance(one, str) else type(one) for one in answers], await database.read(stored)) == (
        ["a", IntegrityError, InvalidRequest, "b", ZeroDivisionError, "c"],
        {"a", "b", "c"},
    )


async def test_a_shared_unit_is_called_once_for_those_of_a_batch_and_alone_where_one_is_bad(database: Database) -> None:
    calls: list[list[str]] = []

    def put_all(connection: Connection, names: Sequence[str]) -> list[str]:
        calls.append(list(names))
        return [put(name)(connection) for name in names]

    answers = []
    for names in (("a", "b"), ("c", "c")):
        together = (database.write_shared("put_all", put_all, name) for name in names)
        answers += await asyncio.gather(*together, return_exceptions=True)
    assert ([one if isinstance(one, str) else type(one) for one in answers], await database.read(stored)) == (
        ["a", "b", "c", IntegrityError],
        {"a", "b", "c"},
    )
    assert calls == [["a", "b"], ["c", "c"], ["c"], ["c"]]


async def test_a_full_queue_makes_callers_wait(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "CAPACITY", 3)
    gate = Gate()
    await gate.shut(database)
    calls = asyncio.gather(*(database.write(put(f"p{number}")) for number in range(20)))
    await asyncio.sleep(0.05)
    depth = database.writer.depth
    gate.open()
    assert (depth, len(await calls), database.writer.depth) == (3, 20, 0)


@pytest.mark.dialects
async def test_closing_commits_what_was_accepted_and_refuses_the_rest(
    database: Database, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CAPACITY", 2)
    gate = Gate()
    await gate.shut(database)
    calls = asyncio.gather(*(database.write(put(name)) for name in ("a", "b", "c")), return_exceptions=True)
    await asyncio.sleep(0.05)
    closing = asyncio.ensure_future(database.close())
    while not database.writer.closed:  # noqa: ASYNC110  # another thread sets it
        await asyncio.sleep(0.001)
    gate.open()
    await closing
    answers = [one if isinstance(one, str) else type(one) for one in await calls]
    assert (answers, type(await refused(database.write(put("d")))), type(await refused(database.read(stored)))) == (
        ["a", "b", StoreUnavailable],
        StoreUnavailable,
        StoreUnavailable,
    )
    async with opened(store_url) as again:
        assert await again.read(stored) == {"a", "b"}


async def test_a_caller_that_went_away_does_not_disturb_the_others(database: Database) -> None:
    gate = Gate()
    await gate.shut(database)
    gone, stays = (asyncio.ensure_future(database.write(put(name))) for name in ("gone", "stays"))
    await asyncio.sleep(0)
    gone.cancel()
    gate.open()
    assert (await stays, gone.cancelled(), await database.read(stored)) == ("stays", True, {"gone", "stays"})


@pytest.mark.dialects
async def test_readers_cannot_write(database: Database) -> None:
    with pytest.raises(Exception, match=r"read.?only|retry later"):
        await database.read(put("a"))
    assert await database.read(stored) == set()


async def test_a_database_that_is_gone_is_unavailable_and_welcome_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'mounted' / 'store.db'}"
    async with opened(url) as database:
        errors = [type(await refused(database.write(put("a")))), type(await refused(database.read(stored)))]
        migrate(url, MIGRATIONS)
        found = errors, await database.write(put("b")), await database.read(stored)
    assert found == ([StoreUnavailable] * 2, "b", {"b"})


async def test_a_file_that_was_replaced_takes_nothing_more(tmp_path: Path) -> None:
    """What is written into the old file is acknowledged, and gone."""
    file = tmp_path / "store.db"
    url = f"sqlite:///{file}"
    migrate(url, MIGRATIONS)
    said = []
    async with opened(url, readers=1) as database:
        await database.write(put("a"))
        await database.read(stored)
        shutil.copy(file, tmp_path / "copy.db")
        (tmp_path / "copy.db").replace(file)
        for work in (database.write(put("b")), database.read(stored)):
            with pytest.raises(StoreUnavailable) as refused:
                await work
            said.append(refused.value.detail)
    assert said == [writing.FILE_REPLACED] * 2


async def test_a_database_that_another_process_locks_is_unavailable_to_all_at_once(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.database._PRAGMAS", ("busy_timeout = 50", "journal_mode = WAL", "foreign_keys = ON"))
    monkeypatch.setattr("app.store.database.BUSY_MILLISECONDS", 50)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as holder:
        async with opened(sqlite_url) as database:
            await database.write(put("before"))
            holder.execute("BEGIN IMMEDIATE")
            calls = asyncio.gather(*(database.write(put(f"p{number}")) for number in range(5)), return_exceptions=True)
            answers = {type(one) for one in await calls}
            holder.execute("ROLLBACK")
            found = answers, await database.write(put("after")), await database.read(stored)
    assert found == ({StoreUnavailable}, "after", {"before", "after"})


async def test_connections_that_the_server_ends_are_replaced_unnoticed(postgres: Postgres) -> None:
    url = postgres.migrated()
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
    async with opened(url) as database:
        await database.write(put("a"))
        await database.read(stored)
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(end_all, [url.partition("?")[0].rpartition("/")[2]])
        found = await in_one_batch(database, [put("b"), put("c")]), await database.read(stored)
    assert found == (["b", "c"], {"a", "b", "c"})


async def test_a_connection_that_ends_before_a_copy_is_replaced_unnoticed(postgres: Postgres) -> None:
    attempts = []

    def copy(connection: Connection) -> int:
        attempts.append(connection.execute(select(func.pg_backend_pid())).scalar_one())
        if len(attempts) == 1:
            with psycopg.connect(postgres.url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [attempts[0]])
        insert_rows(connection, prompts, [{"digest": name, "body": "{}", "packed": None} for name in ("a", "b")])
        return len(attempts)

    async with opened(postgres.migrated()) as database:
        assert (await database.write(copy), await database.read(stored)) == (2, {"a", "b"})


async def test_a_server_that_takes_no_writes_is_unavailable(postgres: Postgres) -> None:
    """As a standby is, where a URL leads to one."""
    url = postgres.migrated()
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
    async with opened(url) as database:
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            await database.write(put("a"))


async def test_replicas_that_deadlock_are_tried_again(postgres: Postgres) -> None:
    url = postgres.migrated()
    met = threading.Barrier(2)
    first_time = threading.local()

    def touch(*digests: str) -> Callable[[Connection], str]:
        def unit(connection: Connection) -> str:
            for digest in digests:
                connection.execute(text("UPDATE prompts SET body = body WHERE digest = :digest"), {"digest": digest})
                if not getattr(first_time, "over", False):
                    first_time.over = True
                    met.wait(10)
            return digests[0]

        return unit

    async with opened(url) as database, opened(url) as other:
        await database.write(put("a"))
        await database.write(put("b"))
        touched = await asyncio.gather(database.write(touch("a", "b")), other.write(touch("b", "a")))
    assert [*touched] == ["a", "b"]


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    url = "postgresql://nobody@127.0.0.1:9/nothing"
    with pytest.raises(StoreUnavailable):
        Store.open(url, MIGRATIONS)
    async with opened(url) as database:
        found = type(await refused(database.write(put("a")))), type(await refused(database.read(stored)))
    assert found == (StoreUnavailable, StoreUnavailable)


@pytest.mark.dialects
async def test_health_fails_without_the_tables(empty_url: str) -> None:
    async with opened(empty_url) as database:
        assert type(await refused(HealthCheck(database).check())) is StoreUnavailable


async def test_keys_are_remembered_by_digest(store: Store) -> None:
    before = store.keys.list_digests()
    for digest in ("first", "second", "first"):
        store.keys.add(digest)
    after = store.keys.list_digests()
    assert (before, after) == ((), ("first", "second"))
