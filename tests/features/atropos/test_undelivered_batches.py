"""A batch that did not reach its trainer is given back, at the next poll where the store fails first. One that did is
known to others when its process has stopped."""

import zlib

import pytest

from app.domain.errors import StoreUnavailable
from app.features.atropos.model import PackedGroup
from app.features.atropos.service import AtroposQueue, OutgoingBatch
from app.features.atropos.store import TrajectoryQueue
from app.main.store import Store
from app.telemetry.metrics import PrometheusObserver
from tests.features.atropos.test_store import TRAINER
from tests.support.store_cases import START

pytestmark = pytest.mark.dialects


class Stumbling(TrajectoryQueue):
    """The queue over a store that is down when the first batch is given back."""

    stumbles = 1

    async def return_batch(self, run: str, number: int) -> None:
        if self.stumbles:
            self.stumbles -= 1
            raise StoreUnavailable("down")
        await super().return_batch(run, number)


async def take_first(queue: TrajectoryQueue, names: str) -> tuple[AtroposQueue, OutgoingBatch]:
    atropos_queue = AtroposQueue(queue, PrometheusObserver(), lambda: START)
    await queue.register("run", TRAINER)
    await queue.add("run", [PackedGroup(0, 8, name, zlib.compress(name.encode())) for name in names])
    batch = await atropos_queue.take_batch("run")
    assert isinstance(batch, OutgoingBatch)
    return atropos_queue, batch


async def take_texts(atropos_queue: AtroposQueue) -> list[object]:
    """Of two more batches; nothing for what is none."""
    batches = [await atropos_queue.take_batch("run") for _ in range(2)]
    return [one.text if isinstance(one, OutgoingBatch) else None for one in batches]


async def test_a_batch_that_was_sent_before_a_stop_is_not_sent_after_it(store: Store) -> None:
    queue = TrajectoryQueue(store._database)
    stopped, sent = await take_first(queue, "abcd")
    await sent.settle(True)
    await stopped.close()
    new, none = await take_texts(AtroposQueue(queue, PrometheusObserver(), lambda: START))
    assert (new not in {None, sent.text}, none) == (True, None)


async def test_a_batch_that_could_not_be_given_back_comes_again(store: Store) -> None:
    atropos_queue, lost = await take_first(Stumbling(store._database), "ab")
    with pytest.raises(StoreUnavailable):
        await lost.settle(False)
    assert await take_texts(atropos_queue) == [lost.text, None]
