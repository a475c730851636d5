"""Samples of one request are held until it is answered, and left at once when it will not be."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from starlette.types import Message

from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.http.compat.one_sample import ClientLeft, HeldSamples
from app.service.pending_groups import SampleToScore
from app.service.requests import GroupReply


@dataclass
class Parts:
    """Groups that are whole when `size` samples are there. Notes who was left with an answer and who without."""

    size: int
    here: int = 0
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    left: list[tuple[str, bool]] = field(default_factory=list)

    @asynccontextmanager
    async def score_sample(
        self, sample: SampleToScore, *, gather_seconds: float, wait_seconds: float
    ) -> AsyncIterator[GroupReply]:
        if sample.task_id == "unknown":
            raise NotFound("never handed out", field="task_id")
        answered = False
        try:
            self.here += 1
            if self.here == self.size:
                self.whole.set()
            await self.whole.wait()
            yield GroupReply(
                group_id=sample.task_id,
                task_id=sample.task_id,
                outcome="scored",
                rewards=(1.0,),
                scores=(Score.exact(True),),
                mean=1.0,
                std=None,
                advantages=(None,),
                low_signal=False,
                lag=None,
                flags=(),
            )
            answered = True
        finally:
            self.left.append((sample.task_id, answered))


def asked(*tasks: str) -> list[SampleToScore]:
    return [
        SampleToScore("any", task, Completion(text=""), label=f"labels[{place}]") for place, task in enumerate(tasks)
    ]


async def stays() -> Message:
    await asyncio.Event().wait()
    return {}


async def leaves() -> Message:
    await asyncio.sleep(0.01)
    return {"type": "http.disconnect"}


async def told(
    parts: Parts, tasks: tuple[str, ...], receive: Callable[[], Awaitable[Message]], taken: bool = True
) -> list[str]:
    held = HeldSamples(parts, asked(*tasks), 1.0, 1.0)
    replies = await held.await_replies(receive)
    assert parts.left == []
    await held.settle(taken)
    return [reply.group_id for reply in replies]


@pytest.mark.parametrize("taken", [True, False])
def test_samples_of_one_group_are_held_at_once_and_left_together(taken: bool) -> None:
    parts = Parts(2)
    assert asyncio.run(told(parts, ("a", "b"), stays, taken)) == ["a", "b"]
    assert sorted(parts.left) == [("a", taken), ("b", taken)]


def test_whoever_leaves_has_no_answer() -> None:
    parts = Parts(3)
    with pytest.raises(ClientLeft):
        asyncio.run(told(parts, ("a", "b"), leaves))
    assert sorted(parts.left) == [("a", False), ("b", False)]


def test_one_that_is_refused_holds_up_no_other() -> None:
    parts = Parts(2)
    with pytest.raises(NotFound) as refused:
        asyncio.run(told(parts, ("a", "unknown"), stays))
    assert (refused.value.field, parts.left) == ("labels[1]", [("a", False)])


def test_what_is_wrong_with_something_else_keeps_its_place() -> None:
    class Refusing(Parts):
        @asynccontextmanager
        async def score_sample(self, sample: SampleToScore, **_: float) -> AsyncIterator[GroupReply]:
            raise InvalidRequest("no such run", field="run")
            yield

    with pytest.raises(GatewayError) as refused:
        asyncio.run(told(Refusing(1), ("a",), stays))
    assert refused.value.field == "run"
