"""Groups whose completions do not come together: what they share, and where each has its place."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from pydantic import Field

from app.domain.groups import Group, Rollout
from app.domain.runs import Policy, Purpose
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.domain.values import Frozen, WholeNumber

MOST_TOGETHER = 256
"""Completions of one group."""
MOST_IN_KEY = 200
"""Characters."""


class Part(Frozen):
    """Which piece this is of a group that comes in pieces."""

    key: Annotated[str, Field(min_length=1, max_length=MOST_IN_KEY)]
    """Your name for the group: pieces of the same task, lease or run, policy and purpose under the same key are one
    group."""
    index: Annotated[WholeNumber, Field(ge=0, lt=MOST_TOGETHER)]
    """The place of this piece's first completion in the group. The same place again is a repeat."""
    size: Annotated[WholeNumber, Field(ge=1, le=MOST_TOGETHER)]
    """Completions of the whole group; when so many have come they are judged."""


class Member(Frozen):
    place: int
    completion: Completion


class Cohort(Frozen):
    """What completions share that are to be scored together. Equal in `scope` are those that may be one group."""

    scope: str
    task_id: str
    environment: str
    run: str | None
    lease_id: str | None
    policy: Policy | None
    purpose: Purpose
    key: str
    size: int

    def group(self, group_id: str, members: tuple[Member, ...], flags: tuple[str, ...], created_at: datetime) -> Group:
        """Of these members, before any is scored."""
        return Group(
            group_id=group_id,
            task_id=self.task_id,
            environment=self.environment,
            run=self.run,
            lease_id=self.lease_id,
            policy=self.policy,
            purpose=self.purpose,
            outcome="pending",
            flags=flags,
            rollouts=tuple(
                Rollout(
                    rollout_id=rollout_id(group_id, member.place), completion=member.completion, score=Score.pending()
                )
                for member in members
            ),
            created_at=created_at,
        )


def rollout_id(group_id: str, place: int) -> str:
    return f"{group_id}-{place}"


@dataclass(frozen=True)
class Windows:
    """Seconds for which samples that name no place are known again."""

    late: float = 120.0
    """After a group was closed before all had come, so long others count as the missing ones."""
    retry: float = 600.0
    """After its holder has left, so long an equal sample takes a member's place."""


@dataclass(frozen=True)
class PartRules:
    """For how long what belongs together is waited for."""

    deadline_seconds: float = 60.0
    windows: Windows = field(default_factory=Windows)


@dataclass(frozen=True)
class Seat:
    """Where completions have their places, and what was closed when they took them."""

    cohort_id: str
    group_id: str
    """In which they are scored: the cohort's own, or one for them alone where they came late."""
    places: tuple[int, ...]
    open: bool
    holder: str = ""
    """Who holds the place, where places are held."""
    begun: tuple[Group, ...] = field(default=(), compare=False)
    """Groups that this has closed: they are stored as pending, and whoever closed them scores them."""


@dataclass(frozen=True)
class Misfit:
    """Why a piece is none of the group that it names."""

    field: str
    detail: str


@dataclass(frozen=True)
class Look:
    """What has become of groups that somebody waits for."""

    ended: frozenset[str]
    """Those that are not pending any more."""
    due: bool
    """Some group's deadline is over, or whoever was scoring it has not been heard of."""
