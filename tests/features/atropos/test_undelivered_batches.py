"""A batch that did not reach its trainer is given back, at the next poll where the store fails first. One that did is
known to others when its process has stopped."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.domain.errors import StoreUnavailable
from app.features.atropos.model import PackedGroup
from app.features.atropos.service import AtroposQueue, OutgoingBatch
from app.features.atropos.store import SqlTrajectoryQueue
from app.store.database import Database
from app.store.migration import migrate
from app.telemetry.metrics import PrometheusObserver
from tests.features.atropos.test_store import TRAINER
from tests.support.databases import MIGRATIONS
from tests.support.store_cases import START


class Stumbling(SqlTrajectoryQueue):
    """The queue over a store that is down when the first batch is given back."""

    stumbles = 1

    async def return_batch(self, run: str, number: int) -> None:
        if self.stumbles:
            self.stumbles -= 1
            raise StoreUnavailable("down")
        await super().return_batch(run, number)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Database]:
    url = f"sqlite:///{folder / 'queue.db'}"
    migrate(url, MIGRATIONS)
    database = Database(url, readers=1, clock=None, committed=None)
    try:
        yield database
    finally:
        await database.close()


async def fill(atropos_queue: AtroposQueue, names: str) -> None:
    await atropos_queue.queue.register("run", TRAINER)
    await atropos_queue.queue.add("run", [*(PackedGroup(0, 8, name, zlib.compress(name.encode())) for name in names)])


def test_a_batch_that_was_sent_before_a_stop_is_not_sent_after_it(tmp_path: Path) -> None:
    async def scenario() -> tuple[bool, bool]:
        async with opened(tmp_path) as database:
            stopped, next_one = (
                AtroposQueue(SqlTrajectoryQueue(database), PrometheusObserver(), lambda: START) for _ in range(2)
            )
            await fill(stopped, "abcd")
            sent = await stopped.take_batch("run")
            assert isinstance(sent, OutgoingBatch)
            await sent.settle(True)
            await stopped.close()
            new = await next_one.take_batch("run")
            return isinstance(new, OutgoingBatch) and new.text != sent.text, isinstance(
                await next_one.take_batch("run"), OutgoingBatch
            )

    assert asyncio.run(scenario()) == (True, False)


def test_a_batch_that_could_not_be_given_back_comes_again(tmp_path: Path) -> None:
    async def scenario() -> tuple[bool, bool]:
        async with opened(tmp_path) as database:
            atropos_queue = AtroposQueue(Stumbling(database), PrometheusObserver(), lambda: START)
            await fill(atropos_queue, "ab")
            lost = await atropos_queue.take_batch("run")
            assert isinstance(lost, OutgoingBatch)
            with pytest.raises(StoreUnavailable):
                await lost.settle(False)
            again = await atropos_queue.take_batch("run")
            return isinstance(again, OutgoingBatch) and again.text == lost.text, isinstance(
                await atropos_queue.take_batch("run"), OutgoingBatch
            )

    assert asyncio.run(scenario()) == (True, False)
