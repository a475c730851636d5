"""A batch that did not reach its trainer is given back, at the next poll where the store fails first."""

import asyncio
import zlib
from pathlib import Path

import pytest

from app.domain.errors import StoreUnavailable
from app.domain.trajectories import PackedGroup
from app.http.compat.atropos.queue import AtroposQueue, OutgoingBatch
from app.store.database import Database
from app.store.migration import migrate
from app.store.trajectory_store import SqlTrajectoryQueue
from app.telemetry.metrics import PrometheusObserver
from tests.store.test_trajectories import TRAINER
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


def test_a_batch_that_could_not_be_given_back_comes_again(tmp_path: Path) -> None:
    async def scenario() -> tuple[bool, bool]:
        url = f"sqlite:///{tmp_path / 'queue.db'}"
        migrate(url, MIGRATIONS)
        database = Database(url, readers=1, clock=None, committed=None)
        try:
            desk = AtroposQueue(Stumbling(database), PrometheusObserver(), lambda: START)
            await desk.queue.register("run", TRAINER)
            await desk.queue.add("run", [*(PackedGroup(0, 8, name, zlib.compress(name.encode())) for name in "ab")])
            lost = await desk.take_batch("run")
            assert isinstance(lost, OutgoingBatch)
            with pytest.raises(StoreUnavailable):
                await lost.settle(False)
            again = await desk.take_batch("run")
            return isinstance(again, OutgoingBatch) and again.text == lost.text, isinstance(
                await desk.take_batch("run"), OutgoingBatch
            )
        finally:
            await database.close()

    assert asyncio.run(scenario()) == (True, False)
