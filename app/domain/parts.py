"""Groups that arrive in pieces: what their completions share, and the place of each."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from app.domain.groups import Group, Rollout
from app.domain.runs import Policy, Purpose
from app.domain.tasks import Completion
from app.domain.values import FiniteNumber, Frozen, WholeNumber, is_absent

MAX_GROUP_SIZE = 256
"""Maximum number of completions in a group."""
MAX_KEY_LENGTH = 200
"""Maximum length of a key, in characters."""


class GroupPart(Frozen):
    """One piece of a group that is sent in several requests."""

    key: Annotated[str, Field(min_length=1, max_length=MAX_KEY_LENGTH)]
    """Your name for the group. Pieces with the same key, task, lease or run, policy and purpose form one group."""
    index: Annotated[WholeNumber, Field(ge=0, lt=MAX_GROUP_SIZE)]
    """Position of this piece's first completion in the group. Sending the same position again is a retry."""
    size: Annotated[WholeNumber, Field(ge=1, le=MAX_GROUP_SIZE)]
    """Number of completions in the whole group. It is scored when all have arrived."""
    deadline_seconds: Annotated[Annotated[FiniteNumber, Field(ge=0, le=86_400)] | None, Field(exclude_if=is_absent)] = (
        None
    )
    """How long a group that this piece begins waits for the others; left out, as long as the service is set to. With 0
    no other piece is waited for: the group is scored with what has come."""

    @property
    def closes(self) -> bool:
        return self.deadline_seconds == 0


class Member(Frozen):
    place: int
    completion: Completion
    fingerprint: str = ""
    """Stands for the completion's own digest: from the trainer, or because the completion is reduced."""

    @property
    def digest(self) -> str:
        return self.fingerprint or self.completion.identity_digest


class PendingGroup(Frozen):
    """A group that is still collecting completions. Completions with the same `scope` may join the same group."""

    scope: str
    task_id: str
    environment: str
    run: str | None
    lease_id: str | None
    policy: Policy | None
    purpose: Purpose
    key: str
    size: int
    hand_out_step: int | None = None
    sender: str | None = None
    """The key that sent the first of them."""

    def build_group(
        self, group_id: str, members: tuple[Member, ...], flags: tuple[str, ...], created_at: datetime
    ) -> Group:
        """The group of these members, before scoring."""
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
            rollouts=tuple(Rollout.begin(group_id, member.place, member.completion) for member in members),
            created_at=created_at,
            hand_out_step=self.hand_out_step,
            sender=self.sender,
        )


@dataclass(frozen=True)
class RetryWindows:
    """How long, in seconds, retried and late samples without a position are matched to earlier ones."""

    late: float = 120.0
    """How long after an incomplete group was closed further samples still count as its missing ones."""
    retry: float = 600.0
    """How long after a sender disconnected an equal sample takes over its place."""


@dataclass(frozen=True)
class SampleName:
    """How a trainer tells one sample from others, beside what it says."""

    place: int | None = None
    """Its place in the group. If another sample has that place, the next group begins."""
    fingerprint: str = ""
    """Equal for a sample that is sent again, and for nothing else. Without one, samples are told apart by who has
    left."""


UNNAMED: Final = SampleName()


@dataclass(frozen=True)
class PartRules:
    """How long an incomplete group waits for its completions."""

    deadline_seconds: float = 60.0
    windows: RetryWindows = field(default_factory=RetryWindows)


@dataclass(frozen=True)
class GroupSlot:
    """The places assigned to completions, and the groups that this assignment closed."""

    pending_id: str
    group_id: str
    """The group that scores them: the collecting group, or a separate one if they came late."""
    places: tuple[int, ...]
    open: bool
    holder: str = ""
    """Id of the sender that holds the place; empty if places are not held."""
    begun: tuple[Group, ...] = field(default=(), compare=False)
    """Groups closed by this assignment. Whoever closed them scores those that are pending."""


@dataclass(frozen=True)
class Mismatch:
    """Why a piece does not fit the group that it names."""

    field: str
    detail: str


@dataclass(frozen=True)
class PendingGroupStatus:
    """State of groups that callers wait for."""

    ended: frozenset[str]
    """Groups that are no longer pending."""
    due: bool
    """Whether any group is past its deadline, or its scorer has stopped sending heartbeats."""
