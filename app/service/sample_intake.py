"""Samples that come one by one, from trainers that know no groups: gathered, and judged together."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from app.domain.errors import Conflict, InvalidRequest, NotFound, RequestRefused
from app.domain.groups import Group, TaskRecord
from app.domain.parts import MAX_GROUP_SIZE, MAX_KEY_LENGTH, UNNAMED, GroupSlot, Member, PendingGroup, SampleName
from app.domain.rewards import compute_statistics
from app.domain.runs import Policy, Purpose
from app.domain.scores import Outcome, Score
from app.domain.tasks import Completion
from app.domain.values import is_encodable, utc_now
from app.ports.tracing import note_work
from app.service.group_assembly import GroupAssembler, build_pending_group, find_positions
from app.service.group_scoring import GroupScoring, ScoredAhead
from app.service.identity import compute_scope
from app.service.request_models import GroupProblem, GroupToScore, ScoreRequest
from app.service.run_registry import RunRegistry
from app.service.score_validation import ScoreValidator

_REFUSALS: Final[dict[str, type[RequestRefused]]] = {kind.code: kind for kind in (NotFound, Conflict)}


MAY_COME_BACK: Final = frozenset({"judge_failed", "environment_unavailable"})
"""Reasons that may be gone within the time that a request waits."""
FIRST_RETRY_SECONDS: Final = 1.0
"""Each pause is twice the one before, so that answers that a judge is paid for are few."""


@dataclass(frozen=True)
class SampleToScore:
    """One completion, and which others it belongs to."""

    environment: str
    task_id: str
    completion: Completion
    run: str | None = None
    key: str = ""
    """What the trainer names its group; empty where it names none."""
    size: int = 1
    """Completions that belong together; 1: judged alone, at once."""
    policy: Policy | None = None
    purpose: Purpose = "train"
    needs_reward: bool = False
    """The trainer takes a number and nothing else."""
    masks_group: bool = False
    """Without a reward for one member there is none for any: all are told so, and the group is never scored again."""
    name: SampleName = UNNAMED


@dataclass(frozen=True)
class SampleReply:
    score: Score
    """`pending` when the wait was over before there was one."""
    group_id: str
    flags: tuple[str, ...]
    """Of the group."""
    advantage: float | None
    outcome: Outcome
    """Of the group."""

    @property
    def is_masked(self) -> bool:
        return "masked" in self.flags


class SampleService:
    def __init__(
        self, validator: ScoreValidator, assembler: GroupAssembler, scoring: GroupScoring, runs: RunRegistry
    ) -> None:
        self._scoring = scoring
        self._runs = runs
        self._validator = validator
        self._assembler = assembler

    @asynccontextmanager
    async def score_sample(
        self, sample: SampleToScore, *, gather_seconds: float, wait_seconds: float
    ) -> AsyncIterator[SampleReply]:
        """The reply to a sample, within `wait_seconds`; its siblings are waited for until `gather_seconds` after the
        first of them. The answer is sent inside: leaving normally with a score means that it was, leaving otherwise
        that whoever asked will ask again. A judge that is away is asked again until then, since these trainers give up
        after a few tries. NotFound, Conflict or InvalidRequest before anything is stored."""
        due = asyncio.get_running_loop().time() + wait_seconds
        note_work(sample.environment, sample.run)
        pending, record = await self._validate_sample(sample)
        ahead = await self._score_ahead(sample, pending, record)
        wanted = (pending, sample.completion, gather_seconds, sample.name)
        slot = await self._assembler.assign_slot(*wanted, ahead)
        answered = False
        try:
            group = await self._assembler.wait_for_scores(slot, due)
            pause = FIRST_RETRY_SECONDS
            while _may_come_back(group, slot, sample) and asyncio.get_running_loop().time() + pause < due:
                await self._assembler.release_slot(slot, answered=False)
                await asyncio.sleep(pause)
                pause *= 2
                slot = await self._assembler.assign_slot(*wanted, None)  # what was scored ahead has been stored
                group = await self._assembler.wait_for_scores(slot, due)
            if sample.masks_group and group.outcome == "unscored":
                group = await self._assembler.mask(slot)
            reply = _reply(group, slot)
            if not _is_answered(reply, sample):  # by now, since who is told so may be back at once
                await self._assembler.release_slot(slot, answered=False)
            yield reply
            answered = True
        finally:
            await self._assembler.release_slot(slot, answered=answered)

    async def _score_ahead(
        self, sample: SampleToScore, pending: PendingGroup, record: TaskRecord
    ) -> ScoredAhead | None:
        """A completion that is judged alone and at once is stored with its score, not before it."""
        if sample.size > 1:
            return None
        member = Member(place=sample.name.place or 0, completion=sample.completion)
        group = pending.build_group(f"group_{secrets.token_hex(16)}", (member,), (), utc_now())
        return await self._scoring.score_ahead(group, record)

    async def _validate_sample(self, sample: SampleToScore) -> tuple[PendingGroup, TaskRecord]:
        if not 1 <= sample.size <= MAX_GROUP_SIZE:
            raise InvalidRequest(f"a group has from 1 to {MAX_GROUP_SIZE} completions", field="size")
        if len(sample.key) > MAX_KEY_LENGTH or not is_encodable(sample.key):
            raise InvalidRequest(f"a key is a text of at most {MAX_KEY_LENGTH} characters", field="key")
        request = _request(sample)
        (accepted,) = await self._validator.validate(request, sample.environment)
        if isinstance(accepted, GroupProblem):
            kind = _REFUSALS.get(accepted.code, InvalidRequest)
            raise kind(accepted.detail, field=(accepted.field or "").removeprefix("groups[0].") or None)
        group = accepted.group
        if sample.needs_reward and group.run is not None and (await self._runs.ensure(group.run)).drops_stale:
            raise InvalidRequest(
                f"run {group.run!r} has `lag_policy: drop`, which leaves groups without a reward, and this trainer "
                "takes nothing but numbers; set `flag` or `pace`",
                field="run",
            )
        scope = compute_scope(group, sample.key, sample.size)
        return build_pending_group(group, scope=scope, key=sample.key, size=sample.size), accepted.record


def _reply(group: Group, slot: GroupSlot) -> SampleReply:
    (position,) = find_positions(group, slot)
    advantages = compute_statistics(group.scores).advantages
    score = group.rollouts[position].score
    return SampleReply(score, group.group_id, group.flags, advantages[position], group.outcome)


def _is_answered(reply: SampleReply, sample: SampleToScore) -> bool:
    return reply.is_masked or (reply.outcome if sample.masks_group else reply.score.outcome) == "scored"


def _may_come_back(group: Group, slot: GroupSlot, sample: SampleToScore) -> bool:
    if group.outcome == "scored" or group.is_masked:
        return False
    scores = group.scores if sample.masks_group else [group.scores[place] for place in find_positions(group, slot)]
    return any(score.reason in MAY_COME_BACK for score in scores)


def _request(sample: SampleToScore) -> ScoreRequest:
    try:
        asked = GroupToScore(task_id=sample.task_id, completions=(sample.completion,))
        return ScoreRequest(groups=(asked,), run=sample.run, policy=sample.policy, purpose=sample.purpose)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][-1])
        raise InvalidRequest(f"this is no {field} of ours", field=field) from error
