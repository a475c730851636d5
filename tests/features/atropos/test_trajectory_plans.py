"""Every question about trajectories finds its rows through an index, however long the line is."""

from collections.abc import Awaitable

import pytest

from app.features.atropos.model import EnvRegistration
from app.features.atropos.service import form_batch
from app.features.atropos.store import TrajectoryQueue
from app.main.store import Store
from tests.features.atropos.test_store import TRAINER, packed
from tests.store.test_plans import Statement, fill_and_analyze, indexes_of, statements_made
from tests.support.store_cases import using
from tests.support.tables import read_table

pytestmark = pytest.mark.dialects


EXPECTED = read_table(__file__, "trajectory_plans.yaml", dict[str, set[str]])


async def statements_of(store: Store, url: str) -> dict[str, list[Statement]]:
    queue = store.part(TrajectoryQueue)
    for run in range(20):
        await queue.register(f"r{run}", TRAINER)
        await queue.add(f"r{run}", [packed(f"g{n}", env_id=n % 3) for n in range(100)])
        await queue.take_batch(f"r{run}", "life", [], form_batch)
        joining = EnvRegistration(max_token_length=1, desired_name="n", weight=1, group_size=8)
        for _ in range(20):
            await queue.join(f"r{run}", joining)
    fill_and_analyze(url, lambda _: None)
    calls: dict[str, Awaitable[object]] = {
        "add": queue.add("r1", [packed("new")]),
        "take": queue.take_batch("r1", "life", [1], form_batch),
        "look": queue.get_run("r1", "life"),
        "lag": queue.get_lag("r1"),
        "latest": queue.get_newest_group_body("r1"),
        "seen": queue.record_heartbeat("r1", 0),
    }
    return await statements_made(calls)


def test_hot_queries_use_their_indexes(store_url: str) -> None:
    made = using(store_url, lambda store: statements_of(store, store_url))
    ranked = {"SCAN pk_ranked"}  # what was already read through the index of the line
    found = {name: indexes - ranked for name, indexes in indexes_of(store_url, made).items()}
    scans = {name: sorted(index for index in indexes if index.startswith("SCAN")) for name, indexes in found.items()}
    told = scans, {name: indexes - EXPECTED[name] for name, indexes in found.items()}
    assert told == ({name: [] for name in EXPECTED}, {name: set() for name in EXPECTED})
