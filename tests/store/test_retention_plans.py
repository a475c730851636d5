"""Groups are pruned through indexes, however many there are, and what refers to them is found by one."""

from collections.abc import Mapping

from app.domain.retention import PruneRule
from app.main.store import Store
from app.store.database import open_writer
from tests.store.test_plans import GROUPS, Statement, fill, indexes_of, statements_made
from tests.support.store_cases import cycle, group, record, stream, using

EXPECTED: Mapping[str, set[str]] = {
    "prune": {
        *("pk_groups", "ix_labels_group", "ix_label_leases_group", "pk_run_anchors", "pk_parts"),
        *("pk_rollouts", "pk_scores", "pk_tasks", "pk_prompts", "pk_rescores", "ix_scorings_group_sequence"),
        *("ix_judgements_group_sequence", "ix_judgements_prompt", "ix_tasks_prompt", "ix_judgements_scoring"),
        *("SCAN pk_run_anchors", "SCAN pk_anon_1"),  # a few for each run, and what was read of these groups
        *("pk_sealed_rollups", "pk_sealed_task_rollups", "pk_group_texts"),
    },
    "sweep": {"pk_leases", "pk_pruned_groups"},
    "recall": {"uq_groups_group_id", "pk_rollouts", "pk_pruned_groups"},
}


async def statements_of(store: Store, url: str) -> dict[str, list[Statement]]:
    await store.tasks.put([record(n) for n in range(400)])
    await store.groups.add([group("fresh")])
    await store.tasks.lease(stream(), 2, 60, cycle(100))
    engine = open_writer(url)
    with engine.begin() as connection:
        fill(connection)
    engine.dispose()
    plan = await store.retention.plan(PruneRule())
    return await statements_made(
        {
            "prune": store.retention.prune_groups(plan, GROUPS // 2, 8),
            "sweep": store.retention.sweep(PruneRule(), "leases", "", 10),
            "recall": store.groups.recall(["g1", "none"]),
        }
    )


def test_pruning_uses_indexes(sqlite_url: str) -> None:
    """PostgreSQL reads tables whole that are as empty as some of these."""
    found = indexes_of(sqlite_url, using(sqlite_url, lambda store: statements_of(store, sqlite_url)))
    assert {name: found[name] - EXPECTED[name] for name in EXPECTED} == {name: set[str]() for name in EXPECTED}
