"""What readiness asks of the store."""

import asyncio
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection

from app.domain.errors import StoreUnavailable
from app.main.store import Store
from app.store.migration import PROBE_BYTES
from app.toolkit.templates import find_packaged_folder
from tests.support.databases import Postgres


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'gateway.db'}", find_packaged_folder("migrations"))
    yield opened
    asyncio.run(opened.close())


def test_a_disk_that_takes_no_more_is_not_ready(store: Store) -> None:
    """Its journal has room, so that writes of the same size would go on for a while."""
    asyncio.run(store.health.check())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PROBE_BYTES // 2, before[1]))
    try:
        with pytest.raises(StoreUnavailable, match="disk"):
            asyncio.run(store.health.check())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_busy_readers_do_not_hold_up_readiness(store: Store) -> None:
    def read_slowly(_connection: Connection) -> None:
        time.sleep(3)

    reading = [asyncio.create_task(store._database.read(read_slowly)) for _ in range(16)]
    await asyncio.sleep(0.1)
    began = time.perf_counter()
    await store.health.check()
    taken = time.perf_counter() - began
    await asyncio.gather(*reading, return_exceptions=True)
    assert taken < 2


def test_readiness_commits_a_write_on_postgresql(postgres: Postgres) -> None:
    """The row that it updates is another one afterwards, as other connections see."""
    url = postgres.migrated()

    def read_versions() -> list[tuple[str, str]]:
        with psycopg.connect(url) as connection:
            return connection.execute("SELECT xmin::text, version_num FROM alembic_version").fetchall()

    opened = Store.open(url, find_packaged_folder("migrations"))
    before = read_versions()
    asyncio.run(opened.health.check())
    after = read_versions()
    asyncio.run(opened.close())
    assert (len(before), after != before, [row[1] for row in after]) == (1, True, [row[1] for row in before])


async def test_reads_that_wait_and_free_space_are_known(store: Store) -> None:
    read_free_space = store.find_free_space()
    before, release = store.read_depth, threading.Event()
    reading = [asyncio.create_task(store._database.read(lambda _: release.wait(5))) for _ in range(7)]
    await asyncio.sleep(0.1)
    waiting = store.read_depth
    release.set()
    await asyncio.gather(*reading)
    assert (before, waiting, store.read_depth) == (0, 3, 0)  # of seven, for four readers
    assert read_free_space is not None
    assert read_free_space() > 0


def test_the_disk_of_a_server_is_not_ours_to_see(postgres: Postgres) -> None:
    opened = Store.open(postgres.migrated(), find_packaged_folder("migrations"))
    found = opened.find_free_space()
    asyncio.run(opened.close())
    assert found is None
