"""Judging of duels: two stored replies go to the gateway as one group, which its judge reads in both orders."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from app.cli.evaluate.runner import sum_judgement_usd
from app.cli.gateway_client import AnsweredTask, GatewayClient
from app.cli.journal import Journal
from app.cli.retry import Retrier
from app.cli.rollout import GATEWAY, gather_or_cancel
from app.cli.tournament.duel_ledger import DuelJudged, PlannedDuel, StoredReply, TournamentEvent, TournamentLedger
from app.domain.errors import InvalidRequest, NotFound, RequestRefused
from app.domain.groups import Group
from app.domain.judging import Judgement
from app.domain.tasks import Completion
from app.evaluation.tournament import Duel, DuelReading, Side
from app.http.api.models import GroupView
from app.service.request_models import GroupProblem, GroupReply

ATTEMPTS: Final = 3
"""Times that an unscored pair is sent."""
MOST_IN_A_ROW: Final = 24
"""Duels without an outcome after which the tournament stops."""
_SIDES: Final[tuple[Side, Side]] = ("one", "other")


class ReplyMissing(Exception):
    """A stored reply cannot be read any more."""


@dataclass
class ReplyCache:
    """Reads stored groups, each once while duels of its task are judged."""

    gateway: GatewayClient
    patience: Retrier
    _asked: dict[str, "asyncio.Task[GroupView]"] = field(default_factory=dict)

    async def load(self, reply: StoredReply) -> Completion:
        """Without token ids and what the trainer attached. ReplyMissing where the text is not kept."""
        if reply.group_id not in self._asked:
            ask = self.patience.retry_until_answered(GATEWAY, lambda: self.gateway.fetch_group(reply.group_id))
            self._asked[reply.group_id] = asyncio.ensure_future(ask)
        try:
            group = (await self._asked[reply.group_id]).group
        except RequestRefused as error:
            raise ReplyMissing(error.detail) from error
        if reply.place >= len(group.rollouts):
            raise ReplyMissing("the group has fewer completions than when the tournament began")
        rollout = group.rollouts[reply.place]
        if rollout.reduced is not None and rollout.reduced.text is not None:
            raise ReplyMissing("what it said is not kept")
        return rollout.completion.model_copy(update={"token_ids": None, "logprobs": None, "extra": {}})

    def forget(self, keep: Sequence[str]) -> None:
        for group_id in self._asked.keys() - set(keep):
            if self._asked[group_id].done():
                del self._asked[group_id]


@dataclass
class DuelRunner:
    gateway: GatewayClient
    journal: Journal[TournamentEvent, TournamentLedger]
    plan: Sequence[PlannedDuel]
    run: str
    """The run that is pinned to the judge."""
    concurrency: int
    patience: Retrier
    on_judged: Callable[[Duel], None]
    retry_seconds: float = 1.0
    stopped: bool = False
    _in_a_row: int = 0

    async def judge_all(self) -> None:
        """Returns when there is nothing left to do, or after a stop. InvalidRequest when no duel gets an outcome,
        Unavailable when the gateway stays unreachable."""
        places = iter(self.journal.ledger.list_open())
        replies = ReplyCache(self.gateway, self.patience)

        async def work() -> None:
            for place in places:
                if self.stopped:
                    return
                duel = await self._judge(self.plan[place], replies)
                await self.journal.add(DuelJudged(place=place, duel=duel))
                self.on_judged(duel)
                self._require_outcomes(duel)
                near = self.plan[place : place + 4 * self.concurrency]
                replies.forget([reply.group_id for planned in near for reply in planned.replies])

        await gather_or_cancel([work() for _ in range(self.concurrency)])

    async def _judge(self, planned: PlannedDuel, replies: ReplyCache) -> Duel:
        try:
            completions = [await replies.load(reply) for reply in planned.replies]
        except ReplyMissing as missing:
            return planned.build_duel(reason=f"not kept: {missing}"[:300])
        if completions[0].identity_digest == completions[1].identity_digest:
            return planned.build_duel(decided_by="same", readings=_mirror("tie"))
        reply = await self._score(AnsweredTask(planned.task_id, None, completions))
        if isinstance(reply, GroupProblem):
            return planned.build_duel(reason=f"{reply.code}: {reply.detail}"[:300])
        view = await self.patience.retry_until_answered(GATEWAY, lambda: self.gateway.fetch_group(reply.group_id))
        return planned.build_duel(group_id=reply.group_id, **read_outcome(view.group, view.judgements))

    async def _score(self, sent: AnsweredTask) -> GroupReply | GroupProblem:
        """The pair is sent again while it has no score: that is safe, and asks no judge twice."""
        reply = await self._send(sent)
        for attempt in range(1, ATTEMPTS):
            if isinstance(reply, GroupProblem) or reply.outcome == "scored":
                break
            await asyncio.sleep(self.retry_seconds * 2**attempt)
            reply = await self._send(sent)
        return reply

    async def _send(self, sent: AnsweredTask) -> GroupReply | GroupProblem:
        try:
            replies = await self.patience.retry_until_answered(
                GATEWAY, lambda: self.gateway.score([sent], self.run, None, "eval")
            )
        except NotFound as error:
            return GroupProblem(task_id=sent.task_id, code="not_found", detail=error.detail)
        return replies[0]

    def _require_outcomes(self, duel: Duel) -> None:
        self._in_a_row = 0 if duel.readings else self._in_a_row + 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise InvalidRequest(f"{MOST_IN_A_ROW} duels in a row got no outcome; last reason: {duel.reason}")


def read_outcome(group: Group, judgements: Sequence[Judgement]) -> dict[str, object]:
    """Who won in which order. A gate goes before the judge, and equal replies tie."""
    spent = {
        "calls": sum(judgement.calls for judgement in judgements if not judgement.cached),
        "usd": sum_judgement_usd(judgements),
    }
    reasons = [score.reason for score in group.scores if score.reason is not None]
    if reasons:
        return {"reason": reasons[0], **spent}
    passed = [score.gate != 0 for score in group.scores]
    if not all(passed):
        better = "tie" if not any(passed) else "one" if passed[0] else "other"
        return {"decided_by": "gate", "readings": _mirror(better), **spent}
    one, other = (score.candidate for score in group.scores)
    if one == other:
        return {"decided_by": "same", "readings": _mirror("tie"), **spent}
    sides: dict[str, Side] = {one: "one", other: "other"}
    readings = {
        reading.shown_first: reading
        for judgement in judgements
        if judgement.purpose == "score" and judgement.error is None and set(judgement.order) == sides.keys()
        for reading in (_read_judgement(judgement, sides),)
    }  # of a pair that was sent again the last
    if len(readings) < len(_SIDES):
        return {"reason": "only one order was read", **spent}
    return {"decided_by": "judge", "readings": [readings[side] for side in _SIDES], **spent}


def _mirror(better: str) -> list[DuelReading]:
    return [DuelReading.model_validate({"shown_first": side, "better": better}) for side in _SIDES]


def _read_judgement(judgement: Judgement, sides: dict[str, Side]) -> DuelReading:
    best = judgement.ranking[0] if judgement.ranking else judgement.order
    return DuelReading(shown_first=sides[judgement.order[0]], better="tie" if len(best) > 1 else sides[best[0]])


@asynccontextmanager
async def running(runner: DuelRunner) -> AsyncIterator["asyncio.Task[None]"]:
    """The work as a task that ends with the block."""
    doing = asyncio.create_task(runner.judge_all())
    try:
        yield doing
    finally:
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
