"""Every question about groups that come in pieces finds its rows through an index, however many there were before."""

import asyncio
from collections.abc import Awaitable, Mapping

import pytest
from sqlalchemy import Connection, insert

from app.main.store import Store
from app.store.pending_groups import CLEAR_BATCH_SIZE
from app.store.tables import part_members, parts
from tests.store.test_parts import WINDOWS, answered, arrive, piece, take
from tests.store.test_plans import Statement, fill_and_analyze, indexes_of, statements_made
from tests.support.store_cases import MovableClock, record, using

pytestmark = pytest.mark.dialects

COHORTS = 3000
CLOSING = {
    *("pk_parts", "pk_part_members", "pk_tasks", "pk_leases", "uq_groups_group_id", "pk_groups", "pk_rollouts"),
    *("pk_rollups", "pk_pruned_groups"),
}

EXPECTED: Mapping[str, set[str]] = {
    "arrive": {
        *("pk_pruned_groups", "pk_parts", "pk_part_members", "uq_parts_scope_generation"),
        *("uq_groups_group_id", "pk_rollouts"),
    },
    "arrive, closing": CLOSING | {"uq_parts_scope_generation"},
    "take": CLOSING | {"uq_parts_scope_generation", "ix_part_members_unanswered"},
    "settle": {"pk_part_members"},
    "keep": {"pk_part_members", "pk_parts"},
    "opened": {"pk_parts", "pk_part_members"},
    "look": {"uq_groups_group_id", "pk_groups", "ix_parts_due"},
    "take due": CLOSING | {"ix_parts_due", "ix_groups_open"},
    "unfinished": {"ix_groups_open", "pk_groups", "pk_rollouts", "pk_parts", "SCAN ix_parts_due"},  # of few rows
    "hand over": {"uq_groups_group_id", "ix_groups_open", "pk_rollouts", "pk_parts"},
    "clear": {"ix_parts_created_at", "pk_parts", "pk_part_members"},
}


def fill(connection: Connection) -> None:
    """Cohorts that are done with, in a few scopes, each with a member who has left."""
    rows = [
        {
            "group_id": f"c{n}",
            "scope": f"s{n % 10}",
            "generation": n,
            "key": '""',
            "size": 1,
            "task_id": "task_0",
            "environment": "gsm8k",
            "run": "run",
            "purpose": "train",
            "deadline": 0,
            "state": "closed",
            "missing": 0,
            "closed_at": 0,
            "due": None if n % 100 else n,
            "created_at": n,
        }
        for n in range(COHORTS)
    ]
    members = [
        {
            "group_id": f"c{n}",
            "place": 0,
            "scope": f"s{n % 10}",
            "digest": f"d{n}",
            "completion": None,
            "own_group": None,
            "state": "answered" if n % 5 else "left",
            "holder": "",
            "held_until": 0,
        }
        for n in range(COHORTS)
    ]
    connection.execute(insert(parts), rows)
    connection.execute(insert(part_members), members)


async def statements_of(store: Store, url: str) -> dict[str, list[Statement]]:
    await store.tasks.put([record(0)])
    fill_and_analyze(url, fill)
    held = await take(store, "held", size=3)
    await store.parts.assign_slot(piece("due", 0, "a", size=2, seconds=0), WINDOWS)
    calls: dict[str, Awaitable[object]] = {
        "arrive": arrive(store, 0, "a"),
        "arrive, closing": arrive(store, 1, "b"),
        "take": take(store, "a", 1, "s1"),
        "settle": store.parts.release_slot(held, answered=True),
        "keep": store.parts.renew_holds([held], ["c1"]),
        "opened": store.parts.load_open_groups([held.group_id]),
        "look": store.parts.get_status(["group_a", "none"]),
        "take due": store.parts.claim_due(5),
        "unfinished": store.groups.list_unfinished(5),
        "hand over": store.parts.hand_over([held.group_id, "none"]),
        "clear": store.parts.delete_old(0),
    }
    return await statements_made(calls)


def test_hot_queries_use_their_indexes(store_url: str) -> None:
    made = using(store_url, lambda store: statements_of(store, store_url))
    found = indexes_of(store_url, made)
    assert {name: indexes - EXPECTED[name] for name, indexes in found.items()} == {name: set() for name in EXPECTED}


async def test_old_cohorts_go_a_few_at_a_time(store: Store, clock: MovableClock) -> None:
    await store.tasks.put([record(0)])
    names = [f"group_{n}" for n in range(CLEAR_BATCH_SIZE + 1)]
    await asyncio.gather(*(arrive(store, 0, "a", "b", group_id=name) for name in names))
    await store.groups.finish([answered(one) for one in (await store.groups.find(names)).values()])
    clock.forward(61)
    await store.parts.claim_due(len(names))
    clock.forward(86_400)
    assert [await store.parts.delete_old(86_400) for _ in range(3)] == [CLEAR_BATCH_SIZE, 1, 0]
