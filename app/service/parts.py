"""Samples that come one by one, from trainers that know no groups: gathered, and judged together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import ValidationError

from app.domain.runs import Policy
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.errors import InvalidRequest, NotFound
from app.service.requests import GroupProblem, GroupToScore, ScoreRequest
from app.service.scoring import ScoreDesk


@dataclass(frozen=True)
class Sample:
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


@dataclass(frozen=True)
class SampleReply:
    score: Score
    """`pending` when the wait was over before there was one."""
    group_id: str
    flags: tuple[str, ...]
    """Of the group."""
    advantage: float | None


class PartDesk:
    def __init__(self, desk: ScoreDesk) -> None:
        self._desk = desk

    @asynccontextmanager
    async def held(self, sample: Sample, *, gather_seconds: float, wait_seconds: float) -> AsyncIterator[SampleReply]:
        """The reply to a sample, within `wait_seconds`; its siblings are waited for until `gather_seconds` after the
        first of them. The answer is sent inside: leaving normally with a score means that it was, leaving otherwise
        that whoever asked will ask again. NotFound or InvalidRequest before anything is stored."""
        (group,) = (await self._desk.score(_request(sample, wait_seconds), sample.environment)).groups
        if isinstance(group, GroupProblem):
            raise (NotFound if group.code == NotFound.code else InvalidRequest)(group.detail, field=group.field)
        yield SampleReply(group.scores[0], group.group_id, group.flags, group.advantages[0])


def _request(sample: Sample, wait_seconds: float) -> ScoreRequest:
    try:
        asked = GroupToScore(task_id=sample.task_id, completions=(sample.completion,))
        return ScoreRequest(groups=(asked,), run=sample.run, policy=sample.policy, wait_seconds=wait_seconds)
    except ValidationError as error:
        raise InvalidRequest("no such task or run", field=str(error.errors()[0]["loc"][-1])) from error
