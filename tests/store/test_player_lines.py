"""Lines of players: the first one stays, a passing failure gives way, each is paid for once, and then has its time."""

import asyncio
from datetime import timedelta

import pytest

from app.domain.judging import Judgement
from app.domain.players import PlayedLine, PlayerLine
from app.domain.retention import PruneRule
from app.domain.scores import Score
from app.main.store import Store
from app.service.background import Pruner
from tests.support.store_cases import MovableClock, cycle, group, opened, record, stream


def answer(key: str) -> Judgement:
    return Judgement(judge="player:carter", model="m", order=(), calls=1, cost_usd=0.5, purpose="player", reading=key)


def line(say: str, key: str = "key") -> PlayedLine:
    return PlayedLine(line=PlayerLine(say=say), made=(answer(key),))


@pytest.mark.dialects
async def test_of_two_replicas_the_first_line_stays(store: Store, store_url: str, clock: MovableClock) -> None:
    failed = PlayedLine(fault="no answer", passing=True)
    async with opened(store_url, clock) as other:
        put = [await store.player_lines.put("key", "task_0", failed)]
        put += await asyncio.gather(
            store.player_lines.put("key", "task_0", line("a")), other.player_lines.put("key", "task_0", line("b"))
        )
        put += [await other.player_lines.put("key", "task_0", failed)]
        found = await other.player_lines.find_lines(["key", "none"])
    assert put[0] == failed
    assert put[1] in (line("a"), line("b"))
    assert [*put[2:], dict(found)] == [put[1], put[1], {"key": put[1]}]


@pytest.mark.dialects
async def test_answers_cost_nothing_once_a_group_has_them(store: Store) -> None:
    await store.tasks.put([record(0)])
    await store.player_lines.put("key", "task_0", line("a"))
    before = await store.player_lines.find_lines(["key"])
    await store.groups.add([group(run=None, judgements=before["key"].made)])
    after = await store.player_lines.find_lines(["key"])
    assert [found["key"].made for found in (before, after)] == [(answer("key"),), (answer("key").without_cost,)]


@pytest.mark.dialects
async def test_lines_go_with_the_last_group_that_used_them_and_unused_ones_by_age(
    store: Store, clock: MovableClock
) -> None:
    """`leased` and `pending` may still be asked for, by who holds the lease and by who scores the group."""
    task_of = {"leased": 0, "pruned": 1, "kept": 1, "pending": 2, "abandoned": 3}
    await store.tasks.put([record(number) for number in range(4)])
    for key, number in task_of.items():
        await store.player_lines.put(key, f"task_{number}", line("a", key))
    groups = [
        group("a", task_id="task_1", judgements=(answer("pruned"), answer("kept"))),
        group("b", task_id="task_1", purpose="eval", judgements=(answer("kept"),)),
        group("c", [Score(outcome="pending")], task_id="task_2"),
    ]
    await store.groups.add(groups)
    await store.tasks.lease(stream(), 1, 60.0, cycle(4))
    clock.forward(90 * 86_400)
    await store.player_lines.put("young", "task_3", line("a", "young"))
    pruner, told = Pruner(store.retention, store.claims, pauses=0.0), []
    for rule in (PruneRule(runs=("run",)), PruneRule(before=clock.moment - timedelta(days=30))):
        pruned = await pruner.prune(await pruner.plan(rule), lambda _: None)
        told.append((pruned.player_lines, {*await store.player_lines.find_lines([*task_of, "young"])}))
    left = {"kept", "leased", "pending", "young"}
    assert told == [(1, {*left, "abandoned"}), (1, left)]
