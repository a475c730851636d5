"""Scoring over a store that fails or is slow: nothing is lost, nothing is scored twice, nothing hangs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import StoreUnavailable
from app.domain.groups import Group, Rollout
from app.domain.runs import Pin, Run
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.main.store import Store
from app.service import scoring
from app.service.requests import GroupProblem, GroupReply, GroupToScore, NextBatch, ScoreRequest, ScoreResponse
from app.service.scoring import GroupScoring, ScoringService, build_reply
from app.store.group_rows import GroupToStore
from app.store.groups import GroupStore, IdempotencyKey
from app.store.runs import RunStore
from tests.support.databases import MIGRATIONS
from tests.support.playground import World, services, until


class FaultyGroups:
    """The store's groups, until it is told to fail or to dawdle."""

    def __init__(self, inner: GroupStore) -> None:
        self.inner = inner
        self.failures: list[Exception] = []
        """Raised one by one by `add` and `finish`."""
        self.has_read = asyncio.Event()
        self.may_tell: asyncio.Event | None = None
        """`recall` has read, and keeps what it read to itself until this is set."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def recall(self, group_ids: Sequence[str]) -> dict[str, Group | None]:
        known = await self.inner.recall(group_ids)
        self.has_read.set()
        if self.may_tell is not None:
            await self.may_tell.wait()
        return known

    async def add(self, groups: Sequence[GroupToStore], key: IdempotencyKey | None = None) -> list[Group]:
        if self.failures:
            raise self.failures.pop(0)
        return await self.inner.add(groups, key)

    async def finish(self, groups: Sequence[GroupToStore]) -> list[Group]:
        if self.failures:
            raise self.failures.pop(0)
        return await self.inner.finish(groups)


class FaultyRuns:
    """The store's runs, but nothing can be pinned."""

    def __init__(self, inner: RunStore) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def pin(self, name: str, pin: Pin) -> Run:
        raise StoreUnavailable("the disk is full")


@dataclass
class Office:
    """The service with a task, and everything around it."""

    world: World
    scoring_service: ScoringService
    scoring: GroupScoring
    groups: FaultyGroups
    task_id: str

    async def scored(self, *, wait: float | None = None, run: str | None = None) -> GroupReply:
        asked = GroupToScore(task_id=self.task_id, completions=(Completion(text="1"), Completion(text="0")))
        (reply,) = (await self.scoring_service.score(ScoreRequest(groups=(asked,), wait_seconds=wait, run=run))).groups
        assert isinstance(reply, GroupReply)
        return reply

    async def stored(self, group: GroupReply) -> Group:
        return (await self.scoring_service.collect([group.group_id], wait_seconds=10))[group.group_id]


@pytest.fixture
async def office(sqlite_url: str) -> AsyncIterator[Office]:
    world = World()
    store = Store.open(sqlite_url, MIGRATIONS, clock=world.now)
    groups = FaultyGroups(store.groups)
    store.groups, store.runs = cast("GroupStore", groups), cast("RunStore", FaultyRuns(store.runs))
    gateway = services(world, store)
    gateway.catalogue.open(ConfiguredDatasets({}))
    (task,) = (await gateway.dispatcher.next_batch("slow", NextBatch(batch_size=1))).tasks
    yield Office(world, gateway.scoring, gateway.group_scoring, groups, task.task_id)
    await gateway.group_scoring.close()
    await store.close()


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "STORE_RETRY_SECONDS", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("wait", [None, 0.0])
async def test_what_could_not_be_stored_is_not_answered_and_not_scored_on(office: Office, wait: float | None) -> None:
    office.groups.failures = [StoreUnavailable("the disk is full")]
    if wait is None:
        office.world.going_on.set()
    with pytest.raises(StoreUnavailable):
        await office.scored(wait=wait)
    await asyncio.sleep(0)
    office.world.going_on.set()
    assert (await office.scored()).rewards == (1.0, 0.0)
    assert office.world.scorings["slow"] == 2
    assert office.world.scorings["cancelled"] == (wait is not None)


@pytest.mark.parametrize("failures", [1, 2])
async def test_what_was_promised_is_written_when_the_store_is_back(
    office: Office, no_pause: None, failures: int
) -> None:
    pending = await office.scored(wait=0.0)
    office.groups.failures = [StoreUnavailable("restarting") for _ in range(failures)]
    office.world.going_on.set()
    stored = await office.stored(pending)
    assert [rollout.score.reward for rollout in stored.rollouts] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("failures", "says"),
    [
        ([StoreUnavailable("gone")] * 3, "could not be written and stays pending"),
        ([RuntimeError("a fault of the store")], "groups could not be stored"),
    ],
)
async def test_what_cannot_be_written_stays_pending_for_the_next_to_ask(
    office: Office, no_pause: None, caplog: pytest.LogCaptureFixture, failures: list[Exception], says: str
) -> None:
    pending = await office.scored(wait=0.0)
    office.groups.failures = list(failures)
    office.world.going_on.set()
    await until(lambda: says in caplog.text)
    assert (await office.groups.find([pending.group_id]))[pending.group_id].outcome == "pending"
    assert (await office.scored()).rewards == (1.0, 0.0)


async def test_a_repeat_that_reads_before_the_first_lands_still_joins_it(office: Office) -> None:
    first = asyncio.ensure_future(office.scored())
    await until(lambda: office.world.scorings["slow"] == 1)
    may_tell = office.groups.may_tell = asyncio.Event()
    office.groups.has_read.clear()
    repeat = asyncio.ensure_future(office.scored())
    await office.groups.has_read.wait()  # it has read that there is nothing
    office.world.going_on.set()
    landed = await first
    may_tell.set()
    assert await repeat == landed
    assert office.world.scorings["slow"] == 1


async def test_a_repeat_that_reads_before_the_first_takes_off_joins_it_too(office: Office) -> None:
    may_tell = office.groups.may_tell = asyncio.Event()
    repeat = asyncio.ensure_future(office.scored())
    await office.groups.has_read.wait()
    office.groups.may_tell = None
    first = asyncio.ensure_future(office.scored())
    await until(lambda: office.world.scorings["slow"] == 1)
    may_tell.set()
    await asyncio.sleep(0)
    office.world.going_on.set()
    assert await repeat == await first
    assert office.world.scorings["slow"] == 1


async def test_a_store_that_fails_is_no_problem_of_the_group(office: Office) -> None:
    """It is a 503 to be tried again, where a problem would tell the trainer to give the group up."""
    with pytest.raises(StoreUnavailable):
        await office.scored(run="a")


async def test_collecting_gives_up_when_its_time_is_over(office: Office) -> None:
    pending = await office.scored(wait=0.0)
    found = await office.scoring_service.collect([pending.group_id, "group_" + "0" * 32], wait_seconds=0.05)
    assert {name: group.outcome for name, group in found.items()} == {pending.group_id: "pending"}


async def test_collecting_sees_what_another_replica_finishes(office: Office) -> None:
    pending = await office.scored(wait=0.0)
    await office.scoring.close()  # as if the work went on elsewhere
    waiting = asyncio.ensure_future(office.stored(pending))
    await asyncio.sleep(0.05)
    group = (await office.groups.find([pending.group_id]))[pending.group_id]
    done = [rollout.model_copy(update={"score": Score.exact(True)}) for rollout in group.rollouts]
    await office.groups.finish([GroupToStore(group.model_copy(update={"rollouts": tuple(done)}))])
    assert (await waiting).outcome == "scored"


def test_what_is_built_without_validation_is_what_validation_makes_of_it_and_is_written_as_it_would_be() -> None:
    right = Score.exact(True, rationale='read 3, "mean":')
    wrong = Score.exact(False).model_copy(update={"scoring_digest": "d" * 32})
    completions = [Completion(text="3"), Completion(text="4", finish_reason="stop"), Completion(text="")]
    given = Group(
        group_id="group_1",
        task_id="task_1",
        environment="gsm8k",
        run=None,
        lease_id=None,
        policy=None,
        purpose="train",
        outcome="pending",
        rollouts=tuple(Rollout.begin("group_1", place, one) for place, one in enumerate(completions)),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    groups = [given.merge_scores(scores) for scores in ([right, wrong, right], [right, Score.pending(), wrong])]
    problem = GroupProblem(task_id="task_2", code="not_found", detail='no task ,"mean":')
    response = ScoreResponse(groups=(*map(build_reply, groups), problem))
    validated = ScoreResponse.model_validate(response.model_dump())
    stored = [Group.model_validate(group.model_dump()) for group in groups]
    assert (response, groups) == (validated, stored)
    assert response.to_json() == validated.model_dump_json().encode()
