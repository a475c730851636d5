"""What a leased mixture asks of the store."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.groups import TaskRecord
from app.domain.runs import HeldLease, Stream
from app.domain.tasks import Context, TaskKey
from app.main.gateway import build_gateway
from app.main.store import Store
from app.ports.environment import NoWorkers
from app.ports.store import LeaseResult, SlotLocator, StreamPlace, StreamState, TaskNaming, TaskStore
from app.service.requests import MixMember, NextMixedBatch
from app.telemetry.metrics import NullObserver
from tests.support.databases import MIGRATIONS
from tests.support.playground import World, environments, panels


class CountedTasks(TaskStore):
    """The store's tasks, and how many of which environment were asked for at a time."""

    def __init__(self, inner: TaskStore) -> None:
        self._inner = inner
        self.asked: list[tuple[str, int]] = []

    async def put(self, records: Sequence[TaskRecord]) -> None:
        await self._inner.put(records)

    async def get(self, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
        return await self._inner.get(task_ids)

    async def find_missing(self, task_ids: Sequence[str]) -> set[str]:
        return await self._inner.find_missing(task_ids)

    async def freeze_contexts(
        self, stream: Stream, contexts: Mapping[StreamPlace, Context]
    ) -> dict[StreamPlace, Context]:
        return await self._inner.freeze_contexts(stream, contexts)

    async def get_frozen_contexts(self, stream: Stream, places: Sequence[StreamPlace]) -> dict[StreamPlace, Context]:
        return await self._inner.get_frozen_contexts(stream, places)

    async def lease(
        self,
        stream: Stream,
        count: int,
        seconds: float,
        locate: SlotLocator,
        step: int | None = None,
        name_tasks: TaskNaming | None = None,
    ) -> LeaseResult:
        self.asked.append((stream.environment, count))
        return await self._inner.lease(stream, count, seconds, locate, step, name_tasks)

    async def get_oldest_step(self, run: str) -> int | None:
        return await self._inner.get_oldest_step(run)

    async def expire_leases(self, stream: Stream, lease_ids: Sequence[str]) -> None:
        await self._inner.expire_leases(stream, lease_ids)

    async def reserve(self, stream: Stream, count: int) -> int:
        return await self._inner.reserve(stream, count)

    async def get_leases(self, lease_ids: Sequence[str]) -> dict[str, HeldLease]:
        return await self._inner.get_leases(lease_ids)

    async def find_leasing_runs(self, keys: Sequence[TaskKey]) -> list[frozenset[str]]:
        return await self._inner.find_leasing_runs(keys)

    async def get_stream_state(self, stream: Stream) -> StreamState:
        return await self._inner.get_stream_state(stream)


def test_only_members_that_were_drawn_are_asked_for_tasks(tmp_path: Path, migrated_file: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())
    mix = (MixMember(env="toy", split="test"), MixMember(env="drill"), MixMember(env="flaky", split="test"))

    async def play() -> tuple[list[list[tuple[str, int]]], list[int]]:
        world = World()
        store = Store.open(f"sqlite:///{path}", MIGRATIONS, clock=world.now)
        store.tasks = tasks = CountedTasks(store.tasks)
        gateway = build_gateway(
            environments(world), store, panels(world.judge), NoWorkers(), world, NullObserver(), world.now
        )
        gateway.catalogue.open(ConfiguredDatasets({}))
        asked, given = [], []
        for _ in range(12):
            batch = await gateway.dispatcher.deal_mixed_batch(NextMixedBatch(batch_size=1, run="a", mix=mix))
            asked.append(list(tasks.asked))
            given.append(len(batch.tasks))
            tasks.asked.clear()
        await store.close()
        return asked, given

    asked, given = asyncio.run(play())
    assert given == [1] * 12
    assert {count for each in asked for _, count in each} == {1}
    assert {len(each) for each in asked[:2]} == {1}
