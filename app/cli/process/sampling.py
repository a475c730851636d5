"""Sampling of a group of completions with tokens from an inference server."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.cli.process.atropos_groups import SampledCompletion
from app.cli.rollout import RolloutPlayer, TaskSkipped, gather_or_cancel, require_model
from app.domain.errors import InvalidRequest, RequestRefused, Unavailable
from app.domain.tasks import Completion, Message
from app.inference.chat_episodes import ChatEpisode
from app.inference.server import InferenceServer
from app.inference.token_check import CheckedTurn, TokenCheckTally, check_turn
from app.inference.token_sequences import Exchange, build_sequence, build_turns
from app.inference.tokenizer import LocalTokenizer
from app.inference.wire import EXTENSIONS, Extension, SampledMessage
from app.service.request_models import HandedOutTask


@dataclass
class JoinTally:
    """Messages, and those whose prompt rewrites what was sampled before."""

    turns: int = 0
    rewritten: int = 0

    def add_samples(self, samples: Sequence[SampledCompletion]) -> None:
        turns = [turn for sample in samples for turn in sample.turns]
        self.turns += len(turns)
        self.rewritten += sum(not turn.joined for turn in turns)

    @property
    def words(self) -> str:
        """Empty when every prompt went on from what was sampled."""
        if not self.rewritten:
            return ""
        return (
            f"prompts that rewrite what was sampled before: {self.rewritten} of {self.turns} turns; that is not trained"
        )


@dataclass(frozen=True)
class Sampler:
    player: RolloutPlayer
    tokenizer: LocalTokenizer | None
    group_size: int
    needs_tokens: bool = True
    """False where texts alone will do: a file."""
    stores_tokens: bool = False
    """Whether the gateway gets the ids of single messages too."""
    check: TokenCheckTally | None = None
    """Counts where tokenising the text again gives other ids; needs `tokenizer`."""
    joins: JoinTally = field(default_factory=JoinTally)

    async def sample(self, task: HandedOutTask) -> tuple[SampledCompletion, ...]:
        """`group_size` samples, without a time limit. LeftOut when a server refuses the task or its tokens are unknown;
        RequestRefused when every request would be refused."""
        if task.max_turns == 1:
            episodes = await self.player.sample_single(task, self.group_size)
        else:
            episodes = await gather_or_cancel([self.player.play_episode(task) for _ in range(self.group_size)])
        try:
            samples = await asyncio.to_thread(lambda: tuple(self._build_sample(task, episode) for episode in episodes))
        except ValueError as error:
            raise TaskSkipped("no_tokens", str(error)) from error
        self.joins.add_samples(samples)
        if self.check is not None:
            for turn in await asyncio.to_thread(lambda: self._check_turns(task, episodes)):
                self.check.add_turn(task.task_id, turn)
        return samples

    def _check_turns(self, task: HandedOutTask, episodes: Sequence[ChatEpisode]) -> list[CheckedTurn | None]:
        if self.tokenizer is None:
            return []
        return [
            check_turn(self.tokenizer, (*task.messages, *episode.messages[:place]), task.tools, said)
            for episode in episodes
            for said, place in zip(episode.said, episode.places, strict=True)
        ]

    def _build_sample(self, task: HandedOutTask, episode: ChatEpisode) -> SampledCompletion:
        if not self.needs_tokens and self.tokenizer is None and not all(said.has_tokens for said in episode.said):
            return SampledCompletion(completion=episode.completion, sequence=None)
        spoken = zip(episode.said, episode.places, strict=True)
        exchanges = [
            self._build_exchange((*task.messages, *episode.messages[:place]), task, said) for said, place in spoken
        ]
        return SampledCompletion(
            completion=_add_tokens(episode) if self.stores_tokens else episode.completion,
            sequence=build_sequence(exchanges),
            turns=build_turns(exchanges),
        )

    def _build_exchange(self, before: Sequence[Message], task: HandedOutTask, said: SampledMessage) -> Exchange:
        """Token ids that the server did not return come from the tokenizer. The server's log probabilities are used
        with its own tokens only."""
        if self.tokenizer is None and not said.has_tokens:
            raise ValueError(f"{self.player.server.base} returned no token ids: set --tokenizer")
        prompt, ids = said.prompt_ids, said.ids
        if self.tokenizer is not None:
            prompt = self.tokenizer.encode_prompt(before, task.tools) if prompt is None else prompt
            ids = self.tokenizer.encode_reply(before, task.tools, said) if ids is None else ids
        return Exchange(prompt or (), ids or (), said.logprobs, from_server=said.has_tokens)


def _add_tokens(episode: ChatEpisode) -> Completion:
    """With the server's own ids, for one message: those of several are no single text of the model."""
    said = episode.said[-1]
    if len(episode.said) != 1 or said.ids is None:
        return episode.completion
    return episode.completion.model_copy(update={"token_ids": said.ids, "logprobs": said.logprobs})


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
