"""Pruned groups are gone with all that only they needed; what they added up to stays, and is right after a rebuild."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

import pytest
from sqlalchemy import func, select

from app.domain.errors import Gone
from app.domain.groups import GroupFilter
from app.domain.judging import Judgement
from app.domain.retention import KeptFor, PrunePlan, PruneRule
from app.domain.rollups import Rollup, RollupFilter, Series
from app.domain.runs import Policy
from app.domain.scores import Criterion, Score
from app.ports.store import GroupToStore, IdempotencyKey
from app.store.database import open_for_inspection
from app.store.judge_tables import judge_cache, judgements
from app.store.store import Store
from app.store.tables import groups, prompts, rollouts, scores, tasks
from tests.store.test_labels import label, lease
from tests.support.store_cases import START, MovableClock, group, record, using

ALL = GroupFilter(limit=100)
OLD = PruneRule(before=START + timedelta(days=1))


def judged(name: str, place: int, value: float, prompt: str, **others: Any) -> GroupToStore:
    """Old: everything that the suite stores was created at START."""
    score = Score(
        outcome="scored",
        reward=value,
        absolute=value,
        criteria=(Criterion(name="voice", value=value, weight=1.0),),
        judges=("ann",),
    )
    made = Judgement(judge="ann", model="m", order=("a",), prompt=prompt, reading=f"of {prompt}", calls=1, cost_usd=0.5)
    policy = Policy(model="p", step=place % 3)
    return group(name, [score, score], task_id=f"task_{place % 4}", policy=policy, judgements=(made,), **others)


def young(one: GroupToStore) -> GroupToStore:
    return replace(one, group=one.group.model_copy(update={"created_at": START + timedelta(days=2)}))


async def fill(store: Store) -> None:
    await store.tasks.put([record(index) for index in range(4)])
    for place in range(12):
        stored = judged(f"old-{place}", place, place / 12, f"prompt {place // 2}")
        await store.judge_cache.put(stored.judgements[0])
        await store.groups.add([stored])
    await store.groups.add([young(judged("young", 12, 0.5, "prompt 0")), judged("eval", 13, 0.5, "e", purpose="eval")])
    await store.groups.add([group("waits", [Score.pending()])])


async def read_statistics(store: Store) -> list[list[Rollup]]:
    return [await store.views.list_rollups(RollupFilter(series=name)) for name in get_args(Series)]


async def prune_all(store: Store, rule: PruneRule, limit: int = 5) -> int:
    removed, after = 0, 0
    while True:
        batch = await store.retention.prune(rule, after, limit)
        removed += batch.groups
        if batch.after is None:
            return removed
        after = batch.after


def count_rows(url: str) -> dict[str, int]:
    engine = open_for_inspection(url)
    with engine.connect() as connection:
        found = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (groups, rollouts, scores, judgements, judge_cache, tasks)
        }
        bodies = connection.execute(select(prompts.c.body)).scalars()
        found["prompts of judges"] = sum("prompt " in body for body in bodies)
    engine.dispose()
    return found


def test_what_groups_added_up_to_stays_also_after_a_rebuild(store_url: str) -> None:
    async def act(store: Store) -> tuple[PrunePlan, int, list[bool]]:
        await fill(store)
        plan = await store.retention.plan(OLD)
        statistics, ledger = await read_statistics(store), await store.runs.get_ledger("run")
        removed = await prune_all(store, OLD)
        seen = [await read_statistics(store)]
        await store.statistics.forget_all()
        while await store.statistics.count_groups(3):
            pass
        seen.append(await read_statistics(store))
        same = [one == statistics and all(one[:2]) for one in seen]
        return plan, removed, [*same, (await store.runs.get_ledger("run")).total == ledger.total]

    plan = PrunePlan(groups=12, rollouts=24, kept={"pending": 1})
    assert using(store_url, act) == (plan, 12, [True, True, True])
    assert count_rows(store_url) == {
        "groups": 3,
        "rollouts": 5,
        "scores": 4,
        "judgements": 2,
        "judge_cache": 1,
        "tasks": 4,
        "prompts of judges": 1,
    }


def test_groups_go_on_adding_up_after_others_of_their_task_were_pruned(store_url: str) -> None:
    """Two stores get the same groups; one is pruned and counted again in between."""

    async def act(store: Store) -> list[bool]:
        await fill(store)
        await prune_all(store, OLD, limit=3)
        await store.statistics.forget_all()
        more = [young(judged(f"more-{place}", place, 0.25, "more")) for place in range(8)]
        await store.groups.add(more)
        while await store.statistics.count_groups(3):
            pass
        pruned = await read_statistics(store)
        rule = PruneRule(before=START + timedelta(days=9))
        await prune_all(store, rule)
        return [pruned == await read_statistics(store), len(await store.views.list_groups(ALL)) == 2]

    assert using(store_url, act) == [True, True]


def test_a_retry_of_a_pruned_group_is_refused_and_its_task_is_scored_anew(store_url: str) -> None:
    async def act(store: Store) -> list[str]:
        await fill(store)
        await prune_all(store, OLD)
        told = []
        for look in (store.groups.find(["old-3", "young"]), store.views.get_group("old-3")):
            with pytest.raises(Gone) as refused:
                await look
            told.append(refused.value.detail.partition(" and ")[0])
        (again,) = await store.groups.add([young(judged("again", 3, 1.0, "anew"))])
        return [*told, again.outcome]

    said = "group old-3 was scored,"
    assert using(store_url, act) == [said, said, "scored"]


def test_labelled_groups_and_anchors_are_kept(store_url: str) -> None:
    async def act(store: Store) -> tuple[dict[KeptFor, int], int, list[str]]:
        await fill(store)
        await store.label_queue.claim(lease("l", "ada", "old-1"), 60)
        await store.labels.put(label("x", "ada", "old-1"), "l", merge=False, show_judge=False)
        await store.label_queue.claim(lease("m", "bob", "old-2"), 60)
        plan = await store.retention.plan(OLD)
        removed = await prune_all(store, OLD)
        return plan.kept, removed, sorted(await store.groups.find(["old-1", "old-2", "young"]))

    assert using(store_url, act) == ({"pending": 1, "labelled": 2}, 10, ["old-1", "old-2", "young"])


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        ({"before": START}, 15),
        ({"runs": ("ru*",)}, 3),
        ({"runs": ("r", "other*")}, 15),
        ({"environment": "math"}, 15),
        ({"purposes": ("train", "eval")}, 2),
        ({"purposes": ("eval",), "runs": ("run",)}, 14),
    ],
)
def test_a_rule_prunes_what_it_names(store_url: str, rule: dict[str, Any], left: int) -> None:
    async def act(store: Store) -> int:
        await fill(store)
        await prune_all(store, OLD.model_copy(update=rule))
        return len(await store.views.list_groups(ALL))

    assert using(store_url, act) == left


def test_old_idempotency_keys_are_forgotten(store_url: str) -> None:
    clock = MovableClock()

    async def act(store: Store) -> list[int]:
        for name in ("one", "two"):
            await store.groups.add([], IdempotencyKey(key=name, body_digest="x"))
            clock.forward(86_400)
        return [await store.retention.forget_idempotency_keys(OLD) for _ in range(2)]

    assert using(store_url, act, clock) == [1, 0]
