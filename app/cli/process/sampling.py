"""Sampling of a group of completions with tokens from an inference server."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.cli.episode_tokens import add_token_ids, build_exchanges, check_episode
from app.cli.process.atropos_groups import SampledCompletion
from app.cli.rollout import RolloutPlayer, TaskSkipped, gather_or_cancel
from app.inference.chat_episodes import ChatEpisode
from app.inference.token_check import CheckedTurn, TokenCheckTally
from app.inference.token_sequences import build_sequence, build_turns
from app.inference.tokenizer import LocalTokenizer
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
        return [turn for episode in episodes for turn in check_episode(task, episode, self.tokenizer)]

    def _build_sample(self, task: HandedOutTask, episode: ChatEpisode) -> SampledCompletion:
        if not self.needs_tokens and self.tokenizer is None and not all(said.has_tokens for said in episode.said):
            return SampledCompletion(completion=episode.completion, sequence=None)
        exchanges = build_exchanges(task, episode, self.tokenizer)
        return SampledCompletion(
            completion=add_token_ids(episode) if self.stores_tokens else episode.completion,
            sequence=build_sequence(exchanges),
            turns=build_turns(exchanges),
        )
