"""The shared part of all reward endpoints: hold samples in their groups, answer with their scores or an error."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from fastapi import Request, Response
from pydantic import JsonValue

from app.domain.errors import InvalidRequest, NotFound
from app.domain.scores import Score
from app.http.compat.delivery import Delivery
from app.http.compat.one_sample.held_samples import ClientLeft, HeldSamples, LabelledSample, SampleHolder
from app.http.compat.one_sample.options import SampleOptions
from app.http.compat.one_sample.refusals import RewardRefusal, build_refusal
from app.http.web.api_keys import get_bounds
from app.service.catalogue import Catalogue
from app.service.key_bounds import BoundsCheck
from app.service.sample_intake import SampleReply
from app.service.stepping import EpisodeStepper

log = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST: Final = 499
"""nginx's status for a client that closed the connection; nobody reads it."""
RETRY_SECONDS: Final = 5


@dataclass(frozen=True)
class SampleReward:
    """The answer for one sample."""

    number: float
    """The reward, or what stands for it if there is none."""
    reply: SampleReply

    @property
    def score(self) -> Score:
        """The score as stored."""
        return self.reply.score

    @property
    def is_unscored(self) -> bool:
        """Whether `number` only stands for a reward."""
        return self.score.reward is None or self.reply.is_masked

    @property
    def gated_absolute(self) -> float:
        """Comparable across groups, in [0, 1]."""
        score = self.score
        if score.reward is None or self.is_unscored:
            return self.number
        return score.reward if score.absolute is None else score.absolute * (1.0 if score.gate is None else score.gate)


class ReplyFormat(Protocol):
    """How a trainer's contract formats its responses."""

    def format_rewards(self, rewards: Sequence[SampleReward]) -> bytes: ...

    def format_refusal(self, count: int) -> dict[str, JsonValue]: ...


@dataclass(frozen=True)
class RewardService:
    parts: SampleHolder
    catalogue: Catalogue
    stepper: EpisodeStepper
    bounds: BoundsCheck
    unscored_reward: float | None
    """The reward for samples without a score; None answers 503, so that the trainer retries."""
    masks_groups: bool
    """Instead, every member of a group in which one has no score gets the same number."""
    list_criteria: Callable[[str, str | None], Awaitable[tuple[str, ...]]]
    """The names of the criteria that every task of an environment has in a run."""
    unscored: Callable[[str, str, str, str], None]
    """Called for each sample without a score: contract, environment, reason, `error`, `number` or `masked`."""

    def __post_init__(self) -> None:
        if self.masks_groups:
            log.warning(
                "groups without a score get the reward %s for every member, because compat.unscored is neutral_group",
                self.placeholder,
            )
        elif self.unscored_reward is not None:
            log.warning(
                "samples without a score get the reward %s, because compat.unscored_reward is set",
                self.unscored_reward,
            )

    @property
    def placeholder(self) -> float:
        """What every member of a masked group gets."""
        return self.unscored_reward or 0.0

    def require_environment(self, environment: str) -> None:
        """Raises NotFound or EnvironmentUnavailable."""
        self.catalogue.get_environment_or_current(environment)

    async def answer(
        self, request: Request, asked: Sequence[LabelledSample], options: SampleOptions, wording: ReplyFormat
    ) -> Response:
        """Sends the response while its samples are held. Raises GatewayError if one of them is invalid."""
        await self.check_bounds(request, asked, options)
        for one in asked:
            await self._require_one_reply(one)
        return await self.hold(request, asked, options, wording, masks_groups=self.masks_groups)

    async def hold(
        self,
        request: Request,
        asked: Sequence[LabelledSample],
        options: SampleOptions,
        wording: ReplyFormat,
        *,
        masks_groups: bool,
    ) -> Response:
        """The same for samples that were checked already."""
        if masks_groups:
            asked = [LabelledSample(replace(one.sample, masks_group=True), one.label) for one in asked]
        held = HeldSamples(self.parts, asked, min(options.gather_seconds, options.wait_seconds), options.wait_seconds)
        try:
            replies = await held.await_replies(request.receive)
        except ClientLeft:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        missing = [pair for pair in zip(asked, replies, strict=True) if _lacks_reward(pair[1], masks_groups)]
        told = "masked" if masks_groups else "number"
        pending = any("pending" in (reply.score.outcome, reply.outcome) for _, reply in missing)
        if pending or (missing and told == "number" and self.unscored_reward is None):
            await held.settle(False)
            self._count_unscored(missing, options.contract, "error")
            return _refuse_unscored(missing[0][1], wording.format_refusal(len(asked)))
        self._count_unscored(missing, options.contract, told)
        return Delivery(wording.format_rewards([self._build_reward(one) for one in replies]), {}, held.settle)

    async def check_bounds(self, request: Request, asked: Sequence[LabelledSample], options: SampleOptions) -> None:
        """Forbidden or NotFound."""
        bounds = await get_bounds(request)
        bounds.require_run(options.run)
        for one in asked:
            await self.bounds.require_tasks(bounds, [one.sample.task_id], one.label)

    async def _require_one_reply(self, asked: LabelledSample) -> None:
        """Raises InvalidRequest for a task with several turns."""
        environment = asked.sample.environment
        try:
            whole = await self.stepper.is_single_reply(environment, asked.sample.task_id)
        except NotFound as error:
            raise NotFound(error.detail, field=asked.label) from error
        if not whole:
            raise InvalidRequest(
                f"this task of {environment} has several turns; this endpoint accepts only tasks with one reply",
                field=asked.label,
            )

    def _build_reward(self, reply: SampleReply) -> SampleReward:
        scored = None if reply.is_masked else reply.score.reward
        return SampleReward(self.placeholder if scored is None else scored, reply)

    def _count_unscored(self, missing: Sequence[tuple[LabelledSample, SampleReply]], contract: str, told: str) -> None:
        for asked, one in missing:
            reason = one.score.reason or ("masked" if one.is_masked else "pending")
            self.unscored(contract, asked.sample.environment, reason, told)


def _lacks_reward(reply: SampleReply, masks_groups: bool) -> bool:
    return reply.score.reward is None or reply.is_masked or (masks_groups and reply.outcome != "scored")


def _refuse_unscored(reply: SampleReply, beside: dict[str, JsonValue]) -> Response:
    score = reply.score
    if "pending" in (score.outcome, reply.outcome):
        return build_refusal(503, RewardRefusal(error="not scored yet; retry", code="pending", field=None), 1, beside)
    said = f": {score.rationale}" if score.rationale else ""
    refusal = RewardRefusal(error=f"no score ({score.reason}){said}", code="unscored", field=None)
    return build_refusal(503, refusal, RETRY_SECONDS, {**beside, "reason": score.reason})
