"""Sampling of a group of completions with tokens from an inference server."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.cli.process.atropos_groups import SampledCompletion
from app.cli.rollout import RolloutPlayer, TaskSkipped, gather_or_cancel, require_model
from app.domain.errors import InvalidRequest, RequestRefused, Unavailable
from app.domain.tasks import Message
from app.inference.chat_episodes import ChatEpisode
from app.inference.server import InferenceServer
from app.inference.token_sequences import Exchange, build_sequence
from app.inference.tokenizer import LocalTokenizer
from app.inference.wire import EXTENSIONS, Extension, SampledMessage
from app.service.request_models import HandedOutTask


@dataclass(frozen=True)
class Sampler:
    player: RolloutPlayer
    tokenizer: LocalTokenizer | None
    group_size: int
    needs_tokens: bool = True
    """False where texts alone will do: a file."""

    async def sample(self, task: HandedOutTask) -> tuple[SampledCompletion, ...]:
        """`group_size` samples, without a time limit. LeftOut when a server refuses the task or its tokens are unknown;
        RequestRefused when every request would be refused."""
        if task.max_turns == 1:
            episodes = await self.player.sample_single(task, self.group_size)
        else:
            episodes = await gather_or_cancel([self.player.play_episode(task) for _ in range(self.group_size)])
        try:
            return await asyncio.to_thread(lambda: tuple(self._build_sample(task, episode) for episode in episodes))
        except ValueError as error:
            raise TaskSkipped("no_tokens", str(error)) from error

    def _build_sample(self, task: HandedOutTask, episode: ChatEpisode) -> SampledCompletion:
        if not self.needs_tokens and self.tokenizer is None and not all(said.has_tokens for said in episode.said):
            return SampledCompletion(completion=episode.completion, sequence=None)
        spoken = zip(episode.said, episode.places, strict=True)
        exchanges = [
            self._build_exchange((*task.messages, *episode.messages[:place]), task, said) for said, place in spoken
        ]
        return SampledCompletion(completion=episode.completion, sequence=build_sequence(exchanges))

    def _build_exchange(self, before: Sequence[Message], task: HandedOutTask, said: SampledMessage) -> Exchange:
        """Token ids that the server did not return come from the tokenizer. The server's log probabilities are used
        with its own tokens only."""
        if self.tokenizer is None and not said.has_tokens:
            raise ValueError(f"{self.player.server.base} returned no token ids: set --tokenizer")
        prompt, ids = said.prompt_ids, said.ids
        if self.tokenizer is not None:
            prompt = self.tokenizer.encode_prompt(before, task.tools) if prompt is None else prompt
            ids = self.tokenizer.encode_reply(before, task.tools, said) if ids is None else ids
        return Exchange(prompt or (), ids or (), said.logprobs)


async def probe_server(server: InferenceServer) -> tuple[tuple[Extension, ...], SampledMessage]:
    """The server's supported extensions, and its reply to a request for one token. Unavailable when it does not answer;
    RequestRefused when it refuses even a plain request, NotFound for an unknown model."""
    await require_model(server)
    hello = (Message(role="user", content="Hello."),)
    refused: RequestRefused | Unavailable | None = None
    for extensions in EXTENSIONS:
        asked = InferenceServer(server.connection, server.model, server.sampling.shortest, extensions)
        try:
            return extensions, (await asked.ask(hello)).said[0]
        except InvalidRequest as error:
            refused = error
    raise refused or Unavailable(f"{server.base} was not asked")
