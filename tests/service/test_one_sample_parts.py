"""Samples that come one by one and name no place: siblings, retries and the next epoch, told apart by who has left."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.access import Caller, work_for
from app.domain.budgets import Amount, KeyQuotas
from app.domain.errors import Conflict, GatewayError
from app.domain.groups import GroupFilter
from app.domain.parts import Arrival, GroupSlot, RetryWindows
from app.domain.tasks import Completion
from app.main.store import Store
from app.service.gateway import Gateway
from app.service.pending_groups import SampleToScore
from app.service.requests import GroupReply, GroupToScore, NextBatch, ScoreRequest
from app.service.runs import RunSettings
from app.store.budgets import JudgingRequest
from app.store.pending_groups import PendingGroupStore
from tests.support.databases import MIGRATIONS
from tests.support.playground import World, services, until


class CountedParts:
    """The store's parts, how many samples asked for a place and got one. They wait while nothing is written."""

    def __init__(self, parts: PendingGroupStore) -> None:
        self._parts = parts
        self.asked = 0
        self.placed = 0
        self.writing = asyncio.Event()
        self.writing.set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._parts, name)

    async def assign_slot(self, arrival: Arrival, windows: RetryWindows, asked: JudgingRequest | None) -> GroupSlot:
        self.asked += 1
        await self.writing.wait()
        slot = await self._parts.assign_slot(arrival, windows, asked)
        self.placed += 1
        return slot


@dataclass
class Trainer:
    """Sends samples, waits for answers, hangs up."""

    gateway: Gateway
    world: World
    tasks: dict[str, str]
    """By environment."""
    parts: "CountedParts"
    gather_seconds: float = 60.0
    waiting: "set[asyncio.Task[GroupReply]]" = field(default_factory=set)

    def sample(
        self, text: str, size: int = 2, environment: str = "toy", key: str = "", run: str = "a"
    ) -> SampleToScore:
        completion = Completion(text=text)
        return SampleToScore(environment, self.tasks[environment], completion, run=run, key=key, size=size)

    async def ask(self, sample: SampleToScore, wait: float = 10.0) -> GroupReply:
        """The answer, which has arrived."""
        held = self.gateway.samples.score_sample(sample, gather_seconds=self.gather_seconds, wait_seconds=wait)
        async with held as reply:
            return reply

    async def asks(self, *samples: SampleToScore) -> "list[asyncio.Task[GroupReply]]":
        """All of them at once; in their places when this returns."""
        tasks: list[asyncio.Task[GroupReply]] = []
        for one in samples:
            placed = self.parts.placed
            task = asyncio.ensure_future(self.ask(one))
            await until(lambda: self.parts.placed > placed or task.done())  # noqa: B023  # called at once
            await asyncio.sleep(0.02)
            tasks.append(task)
        return tasks

    async def groups(self) -> list[tuple[tuple[float | None, ...], tuple[str, ...]]]:
        """Rewards and flags, newest first."""
        return [(one.rewards, one.flags) for one in (await self.gateway.views.find_groups(GroupFilter())).groups]


@pytest.fixture
async def trainer(sqlite_url: str) -> AsyncIterator[Trainer]:
    async with training(sqlite_url, World()) as trainer:
        yield trainer


@contextlib.asynccontextmanager
async def training(url: str, world: World) -> AsyncIterator[Trainer]:
    """At a service that starts and stops around it."""
    store = Store.open(url, MIGRATIONS, clock=world.now)
    parts = CountedParts(store.parts)
    store.parts = cast("PendingGroupStore", parts)
    gateway = services(world, store)
    gateway.catalogue.open(ConfiguredDatasets({}))
    gathering = gateway.assembler
    await gathering.open()
    tasks = {}
    for name in ("toy", "flaky", "slow", "arena"):
        batch = await gateway.dispatcher.next_batch(name, NextBatch(batch_size=1, cursor=0))
        tasks[name] = batch.tasks[0].task_id
    keeping = asyncio.ensure_future(gathering.run())
    try:
        yield Trainer(gateway, world, tasks, parts)
    finally:
        keeping.cancel()
        await gathering.close()
        await gateway.group_scoring.close()
        await store.close()


async def hung_up(*asking: "asyncio.Task[GroupReply]") -> None:
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await asyncio.sleep(0.05)


def rewards(*replies: GroupReply) -> list[float | None]:
    return [reply.score.reward for reply in replies]


async def test_siblings_are_judged_together_and_told_their_standing(trainer: Trainer) -> None:
    first, second = await asyncio.gather(*await trainer.asks(*(trainer.sample(text) for text in ("1", "0"))))
    assert rewards(first, second) == [1, 0]
    assert (first.group_id, first.flags) == (second.group_id, ())
    assert [round(reply.advantages[0] or 0, 3) for reply in (first, second)] == [0.707, -0.707]
    assert await trainer.groups() == [((1, 0), ())]


async def test_who_hangs_up_and_asks_again_is_counted_once(trainer: Trainer) -> None:
    """Also when all of them do, and more than once."""
    samples = [trainer.sample(text, 3) for text in ("1", "1")]
    for _ in range(2):
        await hung_up(*await trainer.asks(*samples))
    replies = await asyncio.gather(*await trainer.asks(*samples, trainer.sample("0", 3)))
    assert rewards(*replies) == [1, 1, 0]
    assert await trainer.groups() == [((1, 1, 0), ())]


@pytest.mark.parametrize("turns", [0, 1, 3, 7])
async def test_who_asks_again_before_its_hanging_up_is_noticed_is_counted_once(trainer: Trainer, turns: int) -> None:
    (gone,) = await trainer.asks(trainer.sample("1"))
    again = asyncio.gather(*(trainer.ask(trainer.sample(text)) for text in ("1", "0")))
    for _ in range(turns):
        await asyncio.sleep(0)
    gone.cancel()
    assert rewards(*await again) == [1, 0]
    assert await trainer.groups() == [((1, 0), ())]


async def test_who_hangs_up_before_its_place_is_written_is_counted_once(trainer: Trainer) -> None:
    trainer.parts.writing.clear()
    gone = asyncio.ensure_future(trainer.ask(trainer.sample("1")))
    await until(lambda: trainer.parts.asked == 1)
    gone.cancel()
    again = asyncio.gather(*(trainer.ask(trainer.sample(text)) for text in ("1", "0")))
    await until(lambda: trainer.parts.asked >= 2)
    trainer.parts.writing.set()
    assert rewards(*await again) == [1, 0]
    assert [(set(told), flags) for told, flags in await trainer.groups()] == [({0, 1}, ())]


async def test_an_answer_that_nobody_took_is_given_again(trainer: Trainer) -> None:
    """Whoever asked had gone while its group was judged."""
    samples = [trainer.sample(text, environment="slow") for text in ("1", "0")]
    await hung_up(*await trainer.asks(*samples))
    trainer.world.going_on.set()
    replies = await asyncio.gather(*await trainer.asks(*samples))
    assert rewards(*replies) == [1, 0]
    assert (await trainer.groups(), trainer.world.scorings["slow"]) == ([((1, 0), ())], 1)


async def test_an_answer_that_broke_off_is_given_again(trainer: Trainer) -> None:
    sample = trainer.sample("1", size=1)
    with pytest.raises(ConnectionError):
        async with trainer.gateway.samples.score_sample(sample, gather_seconds=60, wait_seconds=10) as told:
            raise ConnectionError
    again, another = [await trainer.ask(sample) for _ in range(2)]
    assert (again, another.group_id == again.group_id) == (told, False)


async def test_who_waited_in_vain_asks_again(trainer: Trainer) -> None:
    sample = trainer.sample("1")
    early = [await trainer.ask(sample, wait=0.05) for _ in range(3)]
    replies = await asyncio.gather(*await trainer.asks(sample, trainer.sample("0")))
    assert [reply.score.outcome for reply in early] == ["pending"] * 3
    assert {reply.group_id for reply in early} == {replies[0].group_id}
    assert await trainer.groups() == [((1, 0), ())]


async def test_what_could_not_be_scored_is_tried_again_when_it_is_asked_for_again(trainer: Trainer) -> None:
    samples = [trainer.sample(text, environment="flaky") for text in ("once", "0.5")]
    first = await asyncio.gather(*await trainer.asks(*samples))
    again = await trainer.ask(samples[0])
    assert [reply.score.outcome for reply in first] == ["unscored", "scored"]
    assert (rewards(again), again.group_id) == ([1], first[0].group_id)
    assert await trainer.groups() == [((1, 0.5), ())]


async def test_the_next_epoch_is_another_group_and_so_is_another_key_run_or_size(trainer: Trainer) -> None:
    for _ in range(3):
        await asyncio.gather(*await trainer.asks(trainer.sample("1"), trainer.sample("0")))
    apart = [trainer.sample("1", key="one"), trainer.sample("1", run="b"), trainer.sample("1", 3)]
    waiting = await trainer.asks(trainer.sample("1"), *apart)
    assert await trainer.groups() == [((1, 0), ())] * 3
    await hung_up(*waiting)


async def test_what_is_wrong_is_said_before_anything_is_stored(trainer: Trainer) -> None:
    good = trainer.sample("1")
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"task_id": "task_" + "0" * 32}, 404, "task_id"),
        ({"task_id": "nonsense\x00"}, 422, "task_id"),
        ({"environment": "arena"}, 422, "task_id"),
        ({"size": 0}, 422, "size"),
        ({"size": 257}, 422, "size"),
        ({"run": "No Run"}, 422, "run"),
        ({"key": "k" * 201}, 422, "key"),
        ({"key": "\ud83d"}, 422, "key"),
    ]
    said = []
    for changed, _, _ in wrong:
        with pytest.raises(GatewayError) as caught:
            await trainer.ask(replace(good, **changed))
        said.append((changed, caught.value.status, caught.value.field))
    assert said == wrong


async def test_samples_that_wait_outlive_a_restart(sqlite_url: str) -> None:
    """Whoever waited has left, and asks again."""
    world = World()
    async with training(sqlite_url, world) as trainer:
        waiting = await trainer.asks(*(trainer.sample(text, 3) for text in ("1", "1")))
        waiting += await trainer.asks(*(trainer.sample(text, environment="slow") for text in ("1", "0")))
        for one in waiting:
            one.add_done_callback(lambda done: done.cancelled() or done.exception())
        trainer.waiting.update(waiting)
    async with training(sqlite_url, world) as trainer:
        world.going_on.set()
        await trainer.gateway.group_scoring.resume()
        samples = [trainer.sample(text, 3) for text in ("1", "0", "1")]
        samples += [trainer.sample(text, environment="slow") for text in ("0", "1")]
        replies = await asyncio.gather(*await trainer.asks(*samples))
        assert rewards(*replies) == [1, 0, 1, 0, 1]
        assert sorted(await trainer.groups()) == [((1, 0), ()), ((1, 1, 0), ())]


async def test_a_request_that_a_strict_run_refuses_is_not_admitted(sqlite_url: str) -> None:
    """What it may take would be reserved with its count."""
    quotas = KeyQuotas(requests_per_day=9, judge_usd_per_day=5.0, hard=True)
    ada = Caller("ada", frozenset(), quotas=quotas)

    async def score(trainer: Trainer, text: str) -> int:
        """Its requests so far."""
        group = GroupToScore(task_id=trainer.tasks["arena"], completions=(Completion(text=text),))
        with work_for(ada), contextlib.suppress(Conflict):
            await trainer.gateway.scoring.score(ScoreRequest(groups=(group,), run="strict"))
        return (await trainer.gateway.quotas.load_usage(ada)).requests

    async with training(sqlite_url, World()) as trainer:
        await trainer.gateway.runs.put("strict", RunSettings(strict=True))
        counted = [await score(trainer, "1")]
    async with training(sqlite_url, World(judge="other")) as trainer:
        counted += [await score(trainer, "0"), await score(trainer, "1")]
    assert counted == [1, 1, 2]


async def test_who_leaves_while_room_is_reserved_keeps_none(trainer: Trainer) -> None:
    quotas = trainer.gateway.quotas
    ada = Caller("ada", frozenset(), quotas=KeyQuotas(requests_per_day=9, judge_usd_per_day=5.0))

    async def work() -> None:
        with work_for(ada):
            async with quotas.hold_judging(Amount(1, 1.0)):
                await asyncio.Event().wait()

    asking = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    asking.cancel()
    async with asyncio.timeout(20):
        while (usage := await quotas.load_usage(ada)).requests == 0 or usage.held_usd:  # noqa: ASYNC110  # it wakes nobody
            await asyncio.sleep(0.01)
    assert (asking.cancelled(), usage.requests, usage.held_usd) == (True, 1, 0.0)
