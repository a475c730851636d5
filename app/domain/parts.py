"""Groups that arrive in pieces: what their completions share, and the place of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from app.domain.groups import Group
from app.domain.tasks import Completion
from app.domain.values import FiniteNumber, Frozen, WholeNumber, digest, is_absent

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


def name_late_group(group_id: str, said: Mapping[int, Completion]) -> str:
    """The group of its own that completions in these places become when theirs is closed: by their content, so that a
    repeat which comes when its entry was deleted and restored gets the same."""
    return "group_" + digest([group_id, "late", [[place, one.identity] for place, one in said.items()]])


@dataclass(frozen=True)
class Arrival:
    """Completions that come together, for a group that others may complete: a piece, or a sample of a trainer that
    sends one at a time. A piece names its group and its places. Of samples, those of one scope fill one group after
    the other."""

    group: Group
    """What they share with the others, without rollouts. Its id is that of the group if they name it."""
    completions: tuple[Completion, ...]
    scope: str
    """Of which group they are: its id if they name it. Samples with the same scope may join the same group."""
    key: str
    """What the trainer names the group; empty where it names none."""
    size: int
    seconds: float
    """How long a group that they begin waits for the others."""
    place: int | None = None
    """Of the first of them; None for the next one that is free. Where another sample has it, the next group begins."""
    fingerprint: str = ""
    """Equal for a sample that is sent again, and for nothing else. Without one, samples are told apart by who has
    left."""
    closes: bool = False
    """They are the last ones of the group that they name."""
    scored: Group | None = None
    """The group of a sample that is judged alone, with its score: it is stored so where the sample is a new one."""

    @property
    def names_group(self) -> bool:
        return self.scope == self.group.group_id

    @property
    def places(self) -> range:
        """Those that they name."""
        first = self.place or 0
        return range(first, first + len(self.completions))

    @property
    def retry_key(self) -> tuple[str, str]:
        """Scope and digest by which a sample that comes again is recognised."""
        return self.scope, self.fingerprint or self.completions[0].identity_digest


@dataclass(frozen=True)
class RetryWindows:
    """How long, in seconds, retried and late samples without a position are matched to earlier ones."""

    late: float = 120.0
    """How long after an incomplete group was closed further samples still count as its missing ones."""
    retry: float = 600.0
    """How long after a sender disconnected an equal sample takes over its place."""


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
class PendingGroupStatus:
    """State of groups that callers wait for."""

    ended: frozenset[str]
    """Groups that are no longer pending."""
    due: bool
    """Whether any group is past its deadline, or its scorer has stopped sending heartbeats."""
