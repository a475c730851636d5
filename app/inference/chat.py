"""A policy behind an OpenAI-compatible URL that answers tasks of an in-process environment, episodes included."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from app.domain.errors import RequestRefused, Unavailable
from app.domain.tasks import Completion, Message, Task, ToolSpec, Turn
from app.inference.chat_episodes import play_episode
from app.inference.server import DEFAULT_SAMPLING, InferenceServer, SamplingParameters, open_policy_connection
from app.inference.wire import SampledMessage
from app.ports.environment import Environment


@dataclass(frozen=True)
class ChatPolicy:
    """`base_url` excludes `/chat/completions`."""

    base_url: str
    model: str
    api_key: SecretStr | None = None
    sampling: SamplingParameters = DEFAULT_SAMPLING
    timeout_seconds: float = 120.0

    async def complete(self, messages: Sequence[Message]) -> str:
        """The text of one reply. Unavailable or RequestRefused, with the server's message."""
        async with open_policy_connection(self.base_url, self.api_key) as connection:
            server = InferenceServer(connection, self.model, self.sampling, timeout_seconds=self.timeout_seconds)
            return (await server.ask(messages)).said[0].message.content or ""

    async def answer(self, environment: Environment, task: Task, count: int) -> list[Completion]:
        """Samples `count` completions concurrently. Unavailable, with the server's message, when it does not answer."""

        async def step(messages: tuple[Message, ...]) -> Turn:
            return environment.step(task, messages)

        async with open_policy_connection(self.base_url, self.api_key) as connection:
            server = InferenceServer(connection, self.model, self.sampling, timeout_seconds=self.timeout_seconds)

            async def ask(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> SampledMessage:
                try:
                    return (await server.ask(messages, tools)).said[0]
                except RequestRefused as error:
                    raise Unavailable(error.detail) from error

            episodes = (play_episode(task.messages, task.tools, task.max_turns, ask, step) for _ in range(count))
            return [episode.completion for episode in await asyncio.gather(*episodes)]
