"""Sampling of a group of completions with tokens from an inference server."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.cli.playing import LeftOut, Player, require_model, together
from app.cli.process.groups import Sample
from app.domain.errors import InvalidRequest, RequestRefused, Unavailable
from app.domain.tasks import Message
from app.inference.episodes import Episode
from app.inference.sequences import Exchange, sequence_of
from app.inference.server import InferenceServer
from app.inference.tokenizer import LocalTokenizer
from app.inference.wire import EXTENSIONS, Extension, Said
from app.service.requests import HandedOut


@dataclass(frozen=True)
class Sampler:
    player: Player
    tokenizer: LocalTokenizer | None
    group_size: int

    async def sample(self, task: HandedOut) -> tuple[Sample, ...]:
        """`group_size` samples, without a time limit. LeftOut when a server refuses the task or its tokens are unknown;
        RequestRefused when every request would be refused."""
        if task.max_turns == 1:
            episodes = await self.player.single(task, self.group_size)
        else:
            episodes = await together([self.player.episode(task) for _ in range(self.group_size)])
        try:
            return await asyncio.to_thread(lambda: tuple(self._sample(task, episode) for episode in episodes))
        except ValueError as error:
            raise LeftOut("no_tokens", str(error)) from error

    def _sample(self, task: HandedOut, episode: Episode) -> Sample:
        spoken = zip(episode.said, episode.places, strict=True)
        exchanges = [self._exchange((*task.messages, *episode.messages[:place]), task, said) for said, place in spoken]
        return Sample(completion=episode.completion, sequence=sequence_of(exchanges))

    def _exchange(self, before: Sequence[Message], task: HandedOut, said: Said) -> Exchange:
        """Token ids that the server did not return come from the tokenizer. The server's log probabilities are used
        with its own tokens only."""
        if self.tokenizer is None and not said.has_tokens:
            raise ValueError(f"{self.player.server.base} returned no token ids: set --tokenizer")
        prompt, ids = said.prompt_ids, said.ids
        if self.tokenizer is not None:
            prompt = self.tokenizer.prompt(before, task.tools) if prompt is None else prompt
            ids = self.tokenizer.said(before, task.tools, said) if ids is None else ids
        return Exchange(prompt or (), ids or (), said.logprobs)


async def able(server: InferenceServer) -> tuple[tuple[Extension, ...], Said]:
    """The server's supported extensions, and its reply to a request for one token. Unavailable when it does not answer;
    RequestRefused when it refuses even a plain request, NotFound for an unknown model."""
    await require_model(server)
    hello = (Message(role="user", content="Hello."),)
    refused: RequestRefused | Unavailable | None = None
    for extensions in EXTENSIONS:
        asked = InferenceServer(server.client, server.base_url, server.model, server.sampling.shortest, extensions)
        try:
            return extensions, (await asked.ask(hello)).said[0]
        except InvalidRequest as error:
            refused = error
    raise refused or Unavailable(f"{server.base} was not asked")
