"""Values that the store's contract suites are about, and a store to try them on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from app.domain.groups import Group, Rollout, TaskPrompt, TaskRecord
from app.domain.judging import Judgement
from app.domain.runs import Alarm, Policy, Purpose, Slot, Stream
from app.domain.scores import Outcome, Score
from app.domain.tasks import Completion, Message, TaskKey
from app.main.store import Store
from app.ports.environment import Clock
from app.store.group_rows import GroupToStore
from app.store.leases import SlotLocator
from tests.support.databases import MIGRATIONS

T = TypeVar("T")

START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class MovableClock:
    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> datetime:
        return self.moment

    def forward(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@asynccontextmanager
async def opened(url: str, clock: Clock | None = None) -> AsyncIterator[Store]:
    store = Store.open(url, MIGRATIONS, clock=clock)
    try:
        yield store
    finally:
        await store.close()


def using(url: str, scenario: Callable[[Store], Awaitable[T]], clock: Clock | None = None) -> T:
    """What `scenario` returns, given a store that is open meanwhile."""

    async def scene() -> T:
        async with opened(url, clock) as store:
            return await scenario(store)

    return asyncio.run(scene())


def stream(run: str = "run", digest: str = "stream", split: str = "train") -> Stream:
    return Stream.model_validate(
        {
            "run": run,
            "environment": "gsm8k",
            "split": split,
            "params": {"level": 1},
            "select": {"kind": ("a",)},
            "digest": digest,
        }
    )


def cycle(size: int, epochs: int | None = None) -> SlotLocator:
    """Epoch after epoch of `size` tasks in their own order; endless unless `epochs` are given."""

    def locate(position: int) -> Slot | None:
        if epochs is not None and position >= size * epochs:
            return None
        return Slot(position=position, epoch=position // size, index=position % size)

    return locate


def record(index: int = 0, said: str = "How many?", task_id: str | None = None) -> TaskRecord:
    return TaskRecord(
        task_id=task_id or f"task_{index}",
        key=TaskKey(environment="gsm8k", version="1", data_digest="d", split="train", index=index, params={"level": 1}),
        prompt=TaskPrompt(messages=(Message(role="system", content="Count."), Message(role="user", content=said))),
    )


def scored(reward: float) -> Score:
    return Score.exact(reward == 1.0) if reward in {0.0, 1.0} else Score(outcome="scored", reward=reward)


def group(
    group_id: str = "group",
    scores: Sequence[Score] = (Score.exact(True), Score.exact(False)),
    *,
    task_id: str = "task_0",
    environment: str = "gsm8k",
    run: str | None = "run",
    lease_id: str | None = None,
    policy: Policy | None = None,
    purpose: Purpose = "train",
    judgements: tuple[Judgement, ...] = (),
    flags: tuple[str, ...] = (),
    sender: str | None = None,
) -> GroupToStore:
    outcomes = {score.outcome for score in scores}
    outcome: Outcome = "pending" if "pending" in outcomes else "unscored" if "unscored" in outcomes else "scored"
    return GroupToStore(
        Group(
            group_id=group_id,
            task_id=task_id,
            environment=environment,
            run=run,
            lease_id=lease_id,
            policy=policy,
            purpose=purpose,
            outcome=outcome,
            flags=flags,
            rollouts=tuple(
                Rollout(rollout_id=f"{group_id}-{place}", completion=Completion(text=f"answer {place}"), score=score)
                for place, score in enumerate(scores)
            ),
            created_at=START,
            sender=sender,
        ),
        judgements,
    )


def alarm(number: int = 1) -> Alarm:
    return Alarm(
        alarm_id=f"alarm_{number}",
        series="length",
        since_group=900,
        noticed_group=940,
        effect=0.1,
        statistic=6.0,
        limit=4.8,
        evidence="replies are longer",
        raised_at=START,
    )
