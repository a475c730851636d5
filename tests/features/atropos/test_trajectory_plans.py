"""Every question about trajectories finds its rows through an index, however long the line is."""

from collections.abc import Awaitable, Mapping

import pytest
from sqlalchemy import text

from app.features.atropos.model import EnvRegistration
from app.features.atropos.service import form_batch
from app.features.atropos.store import TrajectoryQueue
from app.main.store import Store
from app.store.database import is_postgres, open_writer
from tests.features.atropos.test_store import TRAINER, packed
from tests.store.test_plans import Statement, indexes_of, statements_made
from tests.support.store_cases import using

pytestmark = pytest.mark.dialects

LINE = "ix_trajectory_groups_line"

EXPECTED: Mapping[str, set[str]] = {
    "add": {"ix_trajectory_bodies_digest", "pk_trajectory_runs"},
    "take": {
        "pk_trajectory_runs",
        "pk_trajectory_feeders",
        "pk_trajectory_batches",
        "pk_trajectory_groups",
        "pk_trajectory_bodies",
        "ix_trajectory_groups_batch",
        "ix_trajectory_groups_body",
        "ix_trajectory_bodies_kept",
        "ix_trajectory_bodies_spent",
        LINE,
    },
    "look": {"pk_trajectory_runs", "pk_trajectory_feeders", "pk_trajectory_batches", LINE},
    "lag": {"pk_trajectory_runs", LINE},
    "latest": {"ix_trajectory_bodies_kept"},
    "seen": {"pk_trajectory_feeders"},
}


async def statements_of(store: Store, url: str) -> dict[str, list[Statement]]:
    queue = store.part(TrajectoryQueue)
    for run in range(20):
        await queue.register(f"r{run}", TRAINER)
        await queue.add(f"r{run}", [packed(f"g{n}", env_id=n % 3) for n in range(100)])
        await queue.take_batch(f"r{run}", "life", [], form_batch)
        joining = EnvRegistration(max_token_length=1, desired_name="n", weight=1, group_size=8)
        for _ in range(20):
            await queue.join(f"r{run}", joining)
    engine = open_writer(url)
    if is_postgres(engine):
        with engine.begin() as connection:
            connection.execute(text("ANALYZE"))
    engine.dispose()
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
