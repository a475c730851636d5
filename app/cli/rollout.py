"""Rollouts of a task on an inference server, for `process` and `evaluate`."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from app.cli.gateway_client import GatewayClient
from app.cli.retry import Retrier
from app.domain.errors import GatewayError, InvalidRequest, RequestRefused, Unavailable
from app.domain.tasks import Message, ToolSpec, Turn
from app.inference.chat_episodes import ChatEpisode, build_single_turn, play_episode
from app.inference.server import InferenceServer
from app.inference.wire import ChatCompletion, SampledMessage, Usage
from app.service.request_models import HandedOutTask

POLICY: Final = "the policy's server"
GATEWAY: Final = "the gateway"

T = TypeVar("T")

Seeds = Callable[[int], int | None]
"""Sampling seed by turn; None for the server's default."""


def use_no_seed(turn: int) -> None:
    return None


class TaskSkipped(GatewayError):
    """The task yields no group. `reason` is the key for counts; `answered`: its lease is settled."""

    def __init__(self, reason: str, detail: str, *, answered: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.answered = answered


@dataclass(frozen=True)
class RolloutPlayer:
    """`note` receives usage and seconds of every answer. Raises LeftOut when a server refuses the task or the policy
    server stays unavailable, and RequestRefused when every request would be refused."""

    server: InferenceServer
    gateway: GatewayClient
    patience: Retrier
    note: Callable[[Usage, float], None]

    async def sample_single(self, task: HandedOutTask, count: int) -> list[ChatEpisode]:
        """Episodes of a single-turn task."""
        return [build_single_turn(said) for said in await self._sample_messages(task.messages, task.tools, count)]

    async def play_episode(self, task: HandedOutTask, seeds: Seeds = use_no_seed) -> ChatEpisode:
        turns = 0

        async def ask(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> SampledMessage:
            nonlocal turns
            turns += 1
            return (await self._sample_messages(messages, tools, 1, seeds(turns - 1)))[0]

        async def step(messages: tuple[Message, ...]) -> Turn:
            try:
                return await self.patience.retry_until_answered(
                    GATEWAY, lambda: self.gateway.step(task.environment, task.task_id, messages)
                )
            except RequestRefused as error:
                raise TaskSkipped("step_refused", error.detail) from error

        return await play_episode(task.messages, task.tools, task.max_turns, ask, step)

    async def _sample_messages(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], count: int, seed: int | None = None
    ) -> list[SampledMessage]:
        """Repeats the request for servers without support for `n`."""
        said: list[SampledMessage] = []
        while len(said) < count:
            said += (await self._request_answer(messages, tools, count - len(said), seed)).said
        return said[:count]

    async def _request_answer(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], count: int, seed: int | None
    ) -> ChatCompletion:
        async def ask() -> ChatCompletion:
            began = time.monotonic()
            answer = await self.server.ask(messages, tools, count, seed)
            self.note(answer.usage, time.monotonic() - began)
            return answer

        try:
            return await self.patience.retry_until_answered(POLICY, ask)
        except InvalidRequest as error:
            raise TaskSkipped("policy_refused", error.detail) from error
        except Unavailable as error:
            raise TaskSkipped("policy_failed", error.detail) from error


async def gather_or_cancel(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order; when one fails, the others are cancelled."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def require_model(server: InferenceServer) -> None:
    """Unavailable when the server does not answer; InvalidRequest when it does not list the model."""
    models = await server.list_models()
    if models is not None and server.model not in models:
        known = ", ".join(sorted(models)[:20]) or "none"
        raise InvalidRequest(f"{server.base} has no model {server.model!r}; available: {known}", field="--model")
