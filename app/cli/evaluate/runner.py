"""The main loop: sample missing attempts, score them, and journal each step."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.cli.asking import Answered as Sent
from app.cli.asking import AskedGateway
from app.cli.evaluate.ledger import Answered, Failed, Grouped, Happened, Item, Ledger, Scored, Setup
from app.cli.evaluate.progress import Tally
from app.cli.journal import Journal as AnyJournal
from app.cli.patience import Patience
from app.cli.playing import GATEWAY, LeftOut, Player, together
from app.domain.errors import InvalidRequest, RequestRefused, Unavailable
from app.domain.judging import Judgement
from app.inference.server import InferenceServer
from app.inference.wire import Usage
from app.service.requests import GroupReply, HandedOut

ATTEMPTS: Final = 3
"""Scoring attempts per unscored group."""
MOST_IN_A_ROW: Final = 32
"""Consecutive tasks without a reward after which the evaluation is aborted."""

Journal = AnyJournal[Happened, Ledger]


@dataclass(frozen=True)
class Work:
    setup: Setup
    tasks: Sequence[HandedOut]
    """In order of their index."""
    concurrency: int
    """Concurrent attempts."""
    seeded: bool
    """Whether the policy server accepts seeds."""
    judges_cost: bool
    """Whether judging costs are fetched after scoring."""
    retry_seconds: float = 1.0


class Evaluating:
    def __init__(
        self,
        work: Work,
        gateway: AskedGateway,
        server: InferenceServer,
        journal: Journal,
        patience: Patience,
        tally: Tally,
    ) -> None:
        self._work = work
        self._setup = work.setup
        self._gateway = gateway
        self._server = server
        self._journal = journal
        self._patience = patience
        self._tally = tally
        self._places = iter(journal.ledger.open())
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
        await together([self._hand() for _ in range(hands)])

    async def _hand(self) -> None:
        for place in self._places:
            if self._stopped:
                return
            self.in_hand += 1
            await self._carry(place)
            self.in_hand -= 1

    async def _carry(self, place: int) -> None:
        item, task = self._journal.ledger.item(place), self._work.tasks[place]
        missing = [sample for sample in item.owed(self._setup.samples) if sample not in item.answered]
        await together([self._attempt(task, place, sample) for sample in missing])
        if fresh := item.ungrouped():
            await self._journal.add(Grouped(place=place, samples=fresh))
        for samples in item.groups:
            if any(item.reward(sample) is None for sample in samples):
                await self._score(task, item, samples)
        self._tally.settled(item)
        self._require_some(item)

    async def _attempt(self, task: HandedOut, place: int, sample: int) -> None:
        usage, took, counted = Usage(), 0.0, True

        def note(more: Usage, seconds: float) -> None:
            nonlocal usage, took, counted
            usage, took, counted = usage + more, took + seconds, counted and more.prompt_tokens > 0
            self._tally.asked(more)

        def seed(turn: int) -> int | None:
            return seed_of(self._setup.seed, place, sample, turn) if self._work.seeded else None

        player = Player(self._server, self._gateway, self._patience, note)
        try:
            async with self._line:
                episode = await player.episode(task, seed)
        except LeftOut as left_out:
            await self._fail(place, (sample,), left_out.reason, left_out.detail)
            return
        await self._journal.add(
            Answered(
                place=place,
                sample=sample,
                completion=episode.completion,
                turns=len(episode.said),
                input_tokens=usage.prompt_tokens if counted else None,
                output_tokens=usage.completion_tokens if counted else None,
                seconds=took,
            )
        )

    async def _score(self, task: HandedOut, item: Item, samples: tuple[int, ...]) -> None:
        """Retries unscored groups a few times. Resending a group is safe: it gets the same scores."""
        sent = Sent(task.task_id, None, [item.answered[sample].completion for sample in samples])
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._work.retry_seconds * 2**attempt)
            try:
                reply = await self._reply(sent)
            except LeftOut as left_out:
                await self._fail(item.place, samples, left_out.reason, left_out.detail)
                return
            if None not in reply.rewards:
                break
        cost = await self._judging(reply.group_id) if self._work.judges_cost else None
        await self._journal.add(
            Scored(place=item.place, samples=samples, group_id=reply.group_id, scores=reply.scores, judging_usd=cost)
        )

    async def _reply(self, sent: Sent) -> GroupReply:
        setup = self._setup
        policy = {"model": setup.model, "step": setup.step}
        try:
            replies = await self._patience.until_answered(
                GATEWAY, lambda: self._gateway.score([sent], setup.run, policy, "eval")
            )
        except InvalidRequest as error:
            raise LeftOut("gateway_refused", error.detail) from error
        if not isinstance(replies[0], GroupReply):
            raise LeftOut(replies[0].code, replies[0].detail)
        return replies[0]

    async def _judging(self, group_id: str) -> float | None:
        try:
            return judging_usd((await self._gateway.group(group_id)).judgements)
        except (Unavailable, RequestRefused):
            return None

    async def _fail(self, place: int, samples: tuple[int, ...], reason: str, detail: str) -> None:
        await self._journal.add(Failed(place=place, samples=samples, reason=reason, detail=detail[:500]))

    def _require_some(self, item: Item) -> None:
        if any(item.reward(sample) is not None for sample in range(self._setup.samples)):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise InvalidRequest(f"{MOST_IN_A_ROW} tasks in a row got no score; last reason: {_why(item)}")


def _why(item: Item) -> str:
    for failed in item.failed.values():
        return f"{failed.reason}: {failed.detail}"
    reasons = {score.reason for one in item.scored.values() for score in one.scores if score.reason is not None}
    return ", ".join(sorted(reasons)) or "unknown"


def judging_usd(judgements: Sequence[Judgement]) -> float | None:
    """Cost of these judgements; None where a judge that was called has no price."""
    paid = [one for one in judgements if one.calls and not one.cached]
    if any(one.cost_usd is None for one in paid):
        return None
    return sum((one.cost_usd or 0.0) + one.unanswered_usd for one in paid)


def seed_of(seed: int, place: int, sample: int, turn: int) -> int:
    """Seed of one answer, the same in every start. 31 bits, since some servers accept no more."""
    return random.Random(f"{seed}:{place}:{sample}:{turn}").getrandbits(31)  # noqa: S311  # repeatable, not secret
