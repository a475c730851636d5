"""Statistics are read, written and counted again through indexes, however many groups there are."""

from collections.abc import Awaitable, Mapping

import pytest
from sqlalchemy import Connection, insert, text, update

from app.domain.rollups import RollupFilter, RollupKey
from app.domain.scores import Score
from app.main.store import Store
from app.store.database import is_postgres, open_writer
from app.store.group_rows import build_group_row
from app.store.tables import groups, rollups, task_rollups
from tests.store.test_plans import Statement, filler, indexes_of, statements_made
from tests.support.store_cases import group, record, using

pytestmark = pytest.mark.dialects

ROLLUPS = 4000
WRITTEN = {"pk_tasks", "pk_rollups", "pk_task_rollups"}

EXPECTED: Mapping[str, set[str]] = {
    "statistics": {"ix_rollups_environment", "SCAN ix_groups_uncounted"},
    "of environment": {"ix_rollups_environment"},
    "of run": {"ix_rollups_run"},
    "by label": {"ix_rollups_run"},
    "of judge": {"ix_rollups_run"},
    "last buckets": {"ix_rollups_run"},
    "activity": {"ix_rollups_run", "pk_streams", "ix_leases_live_task"},
    "add": WRITTEN | {"pk_pruned_groups"},
    "finish": WRITTEN | {"pk_groups", "uq_groups_group_id", "pk_rollouts", "ix_judgements_group_sequence"},
    "count": {
        *("SCAN ix_groups_uncounted", "pk_groups", "pk_rollouts", "ix_judgements_group_sequence"),
        *("pk_tasks", "pk_rollups"),
    },
}


def fill(connection: Connection) -> None:
    """Enough rows that a plan is chosen for a reason."""
    series = ("step", "label", "judge", "dataset", "bucket", "run")
    keys = [
        RollupKey(series[n % 6], f"e{n % 40}", f"r{n % 80}", "train", n, f'"l{n % 7}"', n)  # type: ignore[arg-type]
        for n in range(ROLLUPS)
    ]
    connection.execute(insert(rollups), [key._asdict() | {"digest": key.digest, "measures": "{}"} for key in keys])
    tried = [
        {"run": f"r{n % 80}", "environment": "gsm8k", "task_id": f"task_{n}", "sums": "[0,0,0]"} for n in range(ROLLUPS)
    ]
    connection.execute(insert(task_rollups), tried)
    connection.execute(insert(groups), [build_group_row(filler(n)) | {"task_id": "task_0"} for n in range(ROLLUPS)])
    connection.execute(update(groups).where(groups.c.sequence % 1000 == 7).values(counted=0))


async def count_twice(store: Store) -> None:
    await store.views.count_uncounted()
    await store.views.get_statistics(None, None)


async def statements_of(store: Store, url: str) -> dict[str, list[Statement]]:
    await store.tasks.put([record(0)])
    await store.groups.add([group("fresh", [Score.pending()])])
    engine = open_writer(url)
    with engine.begin() as connection:
        fill(connection)
        if is_postgres(engine):
            connection.execute(text("ANALYZE"))
    engine.dispose()
    views = store.views
    calls: dict[str, Awaitable[object]] = {
        "statistics": count_twice(store),
        "of environment": views.get_statistics("e1", None),
        "of run": views.get_statistics(None, "r1"),
        "by label": views.get_statistics("e1", "r1", by="label"),
        "of judge": views.get_statistics(None, "r1", judge="l1"),
        "last buckets": views.list_rollups(RollupFilter("bucket", "e1", "r1", first_bucket=ROLLUPS - 100)),
        "activity": store.runs.get_activity("r1"),
        "add": store.groups.add([group("new")]),
        "finish": store.groups.finish([group("fresh", [Score.exact(True)])]),
        "count": store.statistics.count_groups(3),
    }
    return await statements_made(calls)


def test_statistics_use_their_indexes(store_url: str) -> None:
    made = using(store_url, lambda store: statements_of(store, store_url))
    assert indexes_of(store_url, made) == EXPECTED
