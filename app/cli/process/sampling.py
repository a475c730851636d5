"""A task's group of completions from an inference server, with their tokens."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from app.cli.asking import AskedGateway
from app.cli.process.groups import Sample
from app.cli.process.meter import Meter
from app.cli.process.patience import Patience
from app.domain.tasks import Message, ToolSpec, Turn
from app.errors import GatewayError, InvalidRequest, RequestRefused, Unavailable
from app.policies.episodes import Episode, played, single
from app.policies.sequences import Exchange, sequence_of
from app.policies.server import InferenceServer
from app.policies.tokenizer import LocalTokenizer
from app.policies.wire import EXTENSIONS, Answer, Extension, Said
from app.service.requests import HandedOut

POLICY = "the policy's server"
GATEWAY = "the gateway"

T = TypeVar("T")


class LeftOut(GatewayError):
    """The task gives no group. `reason` is a word for the counts; `answered` says that its lease is done with."""

    def __init__(self, reason: str, detail: str, *, answered: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.answered = answered


@dataclass(frozen=True)
class Sampler:
    server: InferenceServer
    gateway: AskedGateway
    tokenizer: LocalTokenizer | None
    group_size: int
    patience: Patience
    meter: Meter

    async def sample(self, task: HandedOut) -> tuple[Sample, ...]:
        """`group_size` of them, for which it waits as long as it takes. LeftOut when a server refuses the task, or its
        tokens cannot be told; RequestRefused when everything would be refused."""
        if task.max_turns == 1:
            episodes = [single(said) for said in await self._said(task.messages, task.tools, self.group_size)]
        else:
            episodes = await together([self._played(task) for _ in range(self.group_size)])
        try:
            return await asyncio.to_thread(lambda: tuple(self._sample(task, episode) for episode in episodes))
        except ValueError as error:
            raise LeftOut("no_tokens", str(error)) from error

    async def _said(self, messages: Sequence[Message], tools: Sequence[ToolSpec], count: int) -> list[Said]:
        """Servers that know no `n` are asked again."""
        said: list[Said] = []
        while len(said) < count:
            said += (await self._answer(messages, tools, count - len(said))).said
        return said[:count]

    async def _answer(self, messages: Sequence[Message], tools: Sequence[ToolSpec], count: int) -> Answer:
        try:
            answer = await self.patience.until_answered(POLICY, lambda: self.server.ask(messages, tools, count))
        except InvalidRequest as error:
            raise LeftOut("policy_refused", error.detail) from error
        self.meter.asked(answer.usage)
        return answer

    async def _played(self, task: HandedOut) -> Episode:
        async def ask(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Said:
            return (await self._said(messages, tools, 1))[0]

        async def step(messages: tuple[Message, ...]) -> Turn:
            try:
                return await self.patience.until_answered(
                    GATEWAY, lambda: self.gateway.step(task.environment, task.task_id, messages)
                )
            except RequestRefused as error:
                raise LeftOut("step_refused", error.detail) from error

        return await played(task.messages, task.tools, task.max_turns, ask, step)

    def _sample(self, task: HandedOut, episode: Episode) -> Sample:
        spoken = zip(episode.said, episode.places, strict=True)
        exchanges = [self._exchange((*task.messages, *episode.messages[:place]), task, said) for said, place in spoken]
        return Sample(completion=episode.completion, sequence=sequence_of(exchanges))

    def _exchange(self, before: Sequence[Message], task: HandedOut, said: Said) -> Exchange:
        """What the server did not tell is made from the tokenizer; the server's log probabilities go with its own
        tokens only."""
        if self.tokenizer is None and not said.has_tokens:
            raise ValueError(f"{self.server.base} sent no token ids, and there is no --tokenizer")
        prompt, ids = said.prompt_ids, said.ids
        if self.tokenizer is not None:
            prompt = self.tokenizer.prompt(before, task.tools) if prompt is None else prompt
            ids = self.tokenizer.said(before, task.tools, said) if ids is None else ids
        return Exchange(prompt or (), ids or (), said.logprobs)


async def together(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results in order; when one fails the others are cancelled."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def able(server: InferenceServer) -> tuple[tuple[Extension, ...], Said]:
    """What the server takes beyond the standard, and what it said when asked for one token. Unavailable when it does
    not answer; RequestRefused when it refuses the plainest request, NotFound for a model that it does not have."""
    models = await server.models()
    if models is not None and server.model not in models:
        known = ", ".join(sorted(models)[:20]) or "none"
        raise InvalidRequest(f"{server.base} has no model {server.model!r}; it has: {known}", field="--model")
    hello = (Message(role="user", content="Hello."),)
    refused: RequestRefused | Unavailable | None = None
    for extensions in EXTENSIONS:
        asked = InferenceServer(server.client, server.base_url, server.model, server.sampling.shortest, extensions)
        try:
            return extensions, (await asked.ask(hello)).said[0]
        except InvalidRequest as error:
            refused = error
    raise refused or Unavailable(f"{server.base} was not asked")
