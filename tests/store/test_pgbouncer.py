"""Two replicas behind a real PgBouncer in transaction mode, where a transaction may get any session of the server."""

import asyncio
from collections.abc import Iterator

import pytest

from app.domain.errors import StoreUnavailable
from app.main.store import Store
from tests.support.databases import MIGRATIONS, Postgres, find_pgbouncer, running_pgbouncer
from tests.support.store_cases import cycle, group, record, stream

ROUNDS = 20
"""More than the driver waits for before it prepares a statement."""


@pytest.fixture
def pooled_url(postgres: Postgres) -> Iterator[str]:
    program = find_pgbouncer()
    if program is None:
        pytest.skip("PgBouncer is not tested: it is not installed")
    with running_pgbouncer(program, postgres.empty()) as url:
        yield url


async def play(store: Store, name: str) -> int:
    """Hands out tasks, scores them and reads the groups; the number of groups that were read."""
    read = 0
    for number in range(ROUNDS):
        task = record(number, task_id=f"{name}_{number}")
        await store.tasks.put([task])
        leased = await store.tasks.lease(stream(name), 1, 60, cycle(100))
        answer = group(f"{name}-{number}", task_id=task.task_id, run=name, lease_id=leased.leases[0].lease_id)
        await store.groups.add([answer])
        found = await asyncio.gather(*(store.groups.find([answer.group.group_id]) for _ in range(8)))
        read += sum(map(len, found))
    return read


async def play_on_replicas(url: str, *, prepare: bool) -> list[int]:
    stores = [Store.open(url, MIGRATIONS, prepare=prepare) for _ in range(2)]
    try:
        return await asyncio.gather(*(play(store, f"run_{number}") for number, store in enumerate(stores)))
    finally:
        for store in stores:
            await store.close()


def test_without_prepared_statements_every_request_succeeds(pooled_url: str) -> None:
    assert asyncio.run(play_on_replicas(pooled_url, prepare=False)) == [ROUNDS * 8] * 2


def test_with_prepared_statements_requests_fail_and_name_the_setting(pooled_url: str) -> None:
    with pytest.raises(StoreUnavailable, match="database_prepared_statements"):
        asyncio.run(play_on_replicas(pooled_url, prepare=True))
