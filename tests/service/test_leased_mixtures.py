"""What a leased mixture asks of the store."""

import asyncio
from pathlib import Path
from typing import Any, cast

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.runs import Stream
from app.main.gateway import build_gateway
from app.main.store import Store
from app.ports.environment import NoWorkers
from app.ports.store import LeaseResult, TaskStore
from app.service.requests import MixMember, NextMixedBatch
from app.telemetry.metrics import NullObserver
from tests.support.databases import MIGRATIONS
from tests.support.playground import World, environments, panels


class CountedTasks:
    """The store's tasks, and how many of which environment were asked for at a time."""

    def __init__(self, inner: TaskStore) -> None:
        self._inner = inner
        self.asked: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def lease(self, stream: Stream, count: int, *more: Any) -> LeaseResult:
        self.asked.append((stream.environment, count))
        return await self._inner.lease(stream, count, *more)


def test_only_members_that_were_drawn_are_asked_for_tasks(tmp_path: Path, migrated_file: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())
    mix = (MixMember(env="toy", split="test"), MixMember(env="drill"), MixMember(env="flaky", split="test"))

    async def play() -> tuple[list[list[tuple[str, int]]], list[int]]:
        world = World()
        store = Store.open(f"sqlite:///{path}", MIGRATIONS, clock=world.now)
        tasks = CountedTasks(store.tasks)
        store.tasks = cast("TaskStore", tasks)
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
