"""The main loop: sample missing attempts, score them, and journal each step."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.cli.episode_tokens import add_token_ids, build_exchanges, check_episode
from app.cli.evaluate.files import AttemptTokens, append_tokens
from app.cli.evaluate.ledger import (
    AttemptAnswered,
    AttemptsFailed,
    AttemptsGrouped,
    AttemptsScored,
    EvaluationEvent,
    EvaluationJournalSetup,
    EvaluationLedger,
    TaskProgress,
)
from app.cli.evaluate.progress import EvaluationTally
from app.cli.gateway_client import AnsweredTask as Sent
from app.cli.gateway_client import GatewayClient
from app.cli.journal import Journal as AnyJournal
from app.cli.retry import Retrier
from app.cli.rollout import GATEWAY, RolloutPlayer, TaskSkipped, gather_or_cancel
from app.domain.errors import InvalidRequest, RequestRefused, Unavailable
from app.domain.judging import Judgement
from app.domain.tasks import Completion
from app.inference.chat_episodes import ChatEpisode
from app.inference.server import InferenceServer
from app.inference.token_check import TokenCheckTally
from app.inference.token_sequences import build_turns
from app.inference.tokenizer import LocalTokenizer
from app.inference.wire import Usage
from app.service.request_models import GroupReply, HandedOutTask

ATTEMPTS: Final = 3
"""Scoring attempts per unscored group."""
MOST_IN_A_ROW: Final = 32
"""Consecutive tasks without a reward after which the evaluation is aborted."""

Journal = AnyJournal[EvaluationEvent, EvaluationLedger]


@dataclass(frozen=True)
class TokenRecorder:
    """What is done with the ids that the policy server tells."""

    out: Path | None = None
    """The folder that keeps them."""
    stores: bool = False
    """Whether the gateway gets those of single messages."""
    tokenizer: LocalTokenizer | None = None
    tally: TokenCheckTally | None = None
    """Counts where tokenising the text again gives other ids; needs `tokenizer`."""

    async def record(self, task: HandedOutTask, place: int, sample: int, episode: ChatEpisode) -> Completion:
        """The completion to be scored. TaskSkipped when ids are to be kept and the server told none."""
        if self.tally is not None and self.tokenizer is not None:
            for turn in await asyncio.to_thread(check_episode, task, episode, self.tokenizer):
                self.tally.add_turn(task.task_id, turn)
        if self.out is not None:
            if not all(said.has_tokens for said in episode.said):
                raise TaskSkipped("no_tokens", "the policy's server returned no token ids")
            turns = build_turns(build_exchanges(task, episode, None))
            tokens = AttemptTokens(task_id=task.task_id, place=place, sample=sample, turns=turns)
            await asyncio.to_thread(append_tokens, self.out, tokens)
        return add_token_ids(episode) if self.stores else episode.completion


@dataclass(frozen=True)
class EvaluationWork:
    setup: EvaluationJournalSetup
    tasks: Sequence[HandedOutTask]
    """In order of their index."""
    concurrency: int
    """Concurrent attempts."""
    seeded: bool
    """Whether the policy server accepts seeds."""
    judges_cost: bool
    """Whether judging costs are fetched after scoring."""
    retry_seconds: float = 1.0
    tokens: TokenRecorder = TokenRecorder()


class EvaluationRunner:
    def __init__(
        self,
        work: EvaluationWork,
        gateway: GatewayClient,
        server: InferenceServer,
        journal: Journal,
        patience: Retrier,
        tally: EvaluationTally,
    ) -> None:
        self._work = work
        self._setup = work.setup
        self._gateway = gateway
        self._server = server
        self._journal = journal
        self._patience = patience
        self._tally = tally
        self._places = iter(journal.ledger.list_open())
        self._line = asyncio.Semaphore(work.concurrency)
        self._stopped = False
        self._in_a_row = 0
        self.in_hand = 0

    def stop(self) -> None:
        """Starts no more tasks, and ends when the running ones are finished."""
        self._stopped = True

    async def run(self) -> None:
        """Returns when there is nothing left to do. RequestRefused when no task can be evaluated, Unavailable when the
        gateway stays unreachable."""
        hands = 2 * -(-self._work.concurrency // self._setup.samples)
        await gather_or_cancel([self._run_worker() for _ in range(hands)])

    async def _run_worker(self) -> None:
        for place in self._places:
            if self._stopped:
                return
            self.in_hand += 1
            await self._evaluate_task(place)
            self.in_hand -= 1

    async def _evaluate_task(self, place: int) -> None:
        item, task = self._journal.ledger.get_item(place), self._work.tasks[place]
        missing = [sample for sample in item.list_owed(self._setup.samples) if sample not in item.answered]
        await gather_or_cancel([self._make_attempt(task, place, sample) for sample in missing])
        if fresh := item.list_ungrouped():
            await self._journal.add(AttemptsGrouped(place=place, samples=fresh))
        for samples in item.groups:
            if any(item.find_reward(sample) is None for sample in samples):
                await self._score(task, item, samples)
        self._tally.add_item(item)
        self._require_rewards(item)

    async def _make_attempt(self, task: HandedOutTask, place: int, sample: int) -> None:
        usage, took, counted = Usage(), 0.0, True

        def note(more: Usage, seconds: float) -> None:
            nonlocal usage, took, counted
            usage, took, counted = usage + more, took + seconds, counted and more.prompt_tokens > 0
            self._tally.add_usage(more)

        def choose_seed(turn: int) -> int | None:
            return derive_seed(self._setup.seed, place, sample, turn) if self._work.seeded else None

        player = RolloutPlayer(self._server, self._gateway, self._patience, note)
        try:
            async with self._line:
                episode = await player.play_episode(task, choose_seed)
            completion = await self._work.tokens.record(task, place, sample, episode)
        except TaskSkipped as left_out:
            await self._record_failure(place, (sample,), left_out.reason, left_out.detail)
            return
        await self._journal.add(
            AttemptAnswered(
                place=place,
                sample=sample,
                completion=completion,
                turns=len(episode.said),
                input_tokens=usage.prompt_tokens if counted else None,
                output_tokens=usage.completion_tokens if counted else None,
                seconds=took,
            )
        )

    async def _score(self, task: HandedOutTask, item: TaskProgress, samples: tuple[int, ...]) -> None:
        """Retries unscored groups a few times. Resending a group is safe: it gets the same scores."""
        sent = Sent(task.task_id, None, [item.answered[sample].completion for sample in samples])
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._work.retry_seconds * 2**attempt)
            try:
                reply = await self._request_scores(sent)
            except TaskSkipped as left_out:
                await self._record_failure(item.place, samples, left_out.reason, left_out.detail)
                return
            if None not in reply.rewards:
                break
        cost = await self._fetch_judging_usd(reply.group_id) if self._work.judges_cost else None
        await self._journal.add(
            AttemptsScored(
                place=item.place, samples=samples, group_id=reply.group_id, scores=reply.scores, judging_usd=cost
            )
        )

    async def _request_scores(self, sent: Sent) -> GroupReply:
        setup = self._setup
        policy = {"model": setup.model, "step": setup.step}
        try:
            replies = await self._patience.retry_until_answered(
                GATEWAY, lambda: self._gateway.score([sent], setup.run, policy, "eval")
            )
        except InvalidRequest as error:
            raise TaskSkipped("gateway_refused", error.detail) from error
        if not isinstance(replies[0], GroupReply):
            raise TaskSkipped(replies[0].code, replies[0].detail)
        return replies[0]

    async def _fetch_judging_usd(self, group_id: str) -> float | None:
        try:
            return sum_judgement_usd((await self._gateway.fetch_group(group_id)).judgements)
        except (Unavailable, RequestRefused):
            return None

    async def _record_failure(self, place: int, samples: tuple[int, ...], reason: str, detail: str) -> None:
        await self._journal.add(AttemptsFailed(place=place, samples=samples, reason=reason, detail=detail[:500]))

    def _require_rewards(self, item: TaskProgress) -> None:
        if any(item.find_reward(sample) is not None for sample in range(self._setup.samples)):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise InvalidRequest(
                f"{MOST_IN_A_ROW} tasks in a row got no score; last reason: {_explain_missing_reward(item)}"
            )


def _explain_missing_reward(item: TaskProgress) -> str:
    for failed in item.failed.values():
        return f"{failed.reason}: {failed.detail}"
    reasons = {score.reason for one in item.scored.values() for score in one.scores if score.reason is not None}
    return ", ".join(sorted(reasons)) or "unknown"


def sum_judgement_usd(judgements: Sequence[Judgement]) -> float | None:
    """Cost of these judgements; None where a judge that was called has no price."""
    paid = [one for one in judgements if one.calls and not one.cached]
    if any(one.cost_usd is None for one in paid):
        return None
    return sum((one.cost_usd or 0.0) + one.unanswered_usd for one in paid)


def derive_seed(seed: int, place: int, sample: int, turn: int) -> int:
    """Seed of one answer, the same in every start. 31 bits, since some servers accept no more."""
    return random.Random(f"{seed}:{place}:{sample}:{turn}").getrandbits(31)  # noqa: S311  # repeatable, not secret
