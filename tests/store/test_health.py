"""What readiness asks of the store."""

import asyncio
import resource
import threading

import psycopg
import pytest

from app.domain.errors import StoreUnavailable
from app.main.store import Store
from app.store.migration import PROBE_BYTES
from app.toolkit.templates import find_packaged_folder
from tests.support.databases import Postgres


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    return sqlite_url


async def test_a_disk_that_takes_no_more_is_not_ready(store: Store) -> None:
    """Its journal has room, so that writes of the same size would go on for a while."""
    await store.health.check()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PROBE_BYTES // 2, before[1]))
    try:
        with pytest.raises(StoreUnavailable, match="disk"):
            await store.health.check()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_busy_readers_do_not_hold_up_readiness_and_those_that_wait_are_counted(store: Store) -> None:
    release = threading.Event()
    reading = [asyncio.create_task(store._database.read(lambda _: release.wait(60))) for _ in range(7)]
    async with asyncio.timeout(60):
        while store.read_depth < 3:  # noqa: ASYNC110  # of seven, for four readers
            await asyncio.sleep(0.01)
        await store.health.check()
    release.set()
    await asyncio.gather(*reading)
    assert store.read_depth == 0


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


async def test_the_disk_of_a_server_is_not_ours_to_see(store: Store, postgres: Postgres) -> None:
    served = Store.open(postgres.migrated(), find_packaged_folder("migrations"))
    own, other = store.find_free_space(), served.find_free_space()
    await served.close()
    assert (own is not None and own() > 0, other) == (True, None)
