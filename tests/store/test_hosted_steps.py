"""Answers of others' servers: the first one stays, and they go when no group and no lease of their task is left."""

import asyncio
from datetime import timedelta

import pytest

from app.domain.hosting import HostedStep
from app.domain.retention import PruneRule
from app.main.store import Store
from app.service.background import Pruner
from tests.support.store_cases import MovableClock, cycle, group, opened, record, stream

ONE, OTHER = HostedStep(reward=0.5), HostedStep(reward=-2.0, done=True)


@pytest.mark.dialects
async def test_of_two_replicas_the_first_answer_stays(store: Store, store_url: str, clock: MovableClock) -> None:
    async with opened(store_url, clock) as other:
        put = await asyncio.gather(
            store.hosted_steps.put("key", "task_0", ONE), other.hosted_steps.put("key", "task_0", OTHER)
        )
        found = await other.hosted_steps.find_steps(["key", "none"])
    assert put[0] in (ONE, OTHER)
    assert [put[1], dict(found)] == [put[0], {"key": put[0]}]


@pytest.mark.dialects
async def test_answers_go_by_age_once_nobody_can_need_them(store: Store, clock: MovableClock) -> None:
    task_of = {"leased": 0, "kept": 1, "abandoned": 2}
    await store.tasks.put([record(number) for number in range(3)])
    for key, number in task_of.items():
        await store.hosted_steps.put(key, f"task_{number}", ONE)
    await store.groups.add([group("a", task_id="task_1", purpose="eval")])
    await store.tasks.lease(stream(), 1, 60.0, cycle(3))
    clock.forward(90 * 86_400)
    await store.hosted_steps.put("young", "task_2", ONE)
    pruner = Pruner(store.retention, store.claims, pauses=0.0)
    rule = PruneRule(before=clock.moment - timedelta(days=30))
    pruned = await pruner.prune(await pruner.plan(rule), lambda _: None)
    left = await store.hosted_steps.find_steps([*task_of, "young"])
    assert (pruned.hosted_steps, {*left}) == (1, {"leased", "kept", "young"})
