"""Rollouts of a task on an inference server, for `process` and `evaluate`."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from app.cli.asking import AskedGateway
from app.cli.patience import Patience
from app.domain.errors import GatewayError, InvalidRequest, RequestRefused, Unavailable
from app.domain.tasks import Message, ToolSpec, Turn
from app.inference.episodes import Episode, played, single
from app.inference.server import InferenceServer
from app.inference.wire import Answer, Said, Usage
from app.service.requests import HandedOut

POLICY: Final = "the policy's server"
GATEWAY: Final = "the gateway"

T = TypeVar("T")

Seeds = Callable[[int], int | None]
"""Sampling seed by turn; None for the server's default."""


def unseeded(turn: int) -> None:
    return None


class LeftOut(GatewayError):
    """The task yields no group. `reason` is the key for counts; `answered`: its lease is settled."""

    def __init__(self, reason: str, detail: str, *, answered: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.answered = answered


@dataclass(frozen=True)
class Player:
    """`note` receives usage and seconds of every answer. Raises LeftOut when a server refuses the task or the policy
    server stays unavailable, and RequestRefused when every request would be refused."""

    server: InferenceServer
    gateway: AskedGateway
    patience: Patience
    note: Callable[[Usage, float], None]

    async def single(self, task: HandedOut, count: int) -> list[Episode]:
        """Episodes of a single-turn task."""
        return [single(said) for said in await self._said(task.messages, task.tools, count)]

    async def episode(self, task: HandedOut, seeds: Seeds = unseeded) -> Episode:
        turns = 0

        async def ask(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Said:
            nonlocal turns
            turns += 1
            return (await self._said(messages, tools, 1, seeds(turns - 1)))[0]

        async def step(messages: tuple[Message, ...]) -> Turn:
            try:
                return await self.patience.until_answered(
                    GATEWAY, lambda: self.gateway.step(task.environment, task.task_id, messages)
                )
            except RequestRefused as error:
                raise LeftOut("step_refused", error.detail) from error

        return await played(task.messages, task.tools, task.max_turns, ask, step)

    async def _said(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], count: int, seed: int | None = None
    ) -> list[Said]:
        """Repeats the request for servers without support for `n`."""
        said: list[Said] = []
        while len(said) < count:
            said += (await self._answer(messages, tools, count - len(said), seed)).said
        return said[:count]

    async def _answer(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], count: int, seed: int | None
    ) -> Answer:
        async def ask() -> Answer:
            began = time.monotonic()
            answer = await self.server.ask(messages, tools, count, seed)
            self.note(answer.usage, time.monotonic() - began)
            return answer

        try:
            return await self.patience.until_answered(POLICY, ask)
        except InvalidRequest as error:
            raise LeftOut("policy_refused", error.detail) from error
        except Unavailable as error:
            raise LeftOut("policy_failed", error.detail) from error


async def together(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order; when one fails, the others are cancelled."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def require_model(server: InferenceServer) -> None:
    """Unavailable when the server does not answer; InvalidRequest when it does not list the model."""
    models = await server.models()
    if models is not None and server.model not in models:
        known = ", ".join(sorted(models)[:20]) or "none"
        raise InvalidRequest(f"{server.base} has no model {server.model!r}; available: {known}", field="--model")
