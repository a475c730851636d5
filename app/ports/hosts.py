"""Episodes that run on another's server. A kind of environment says how a session is opened and stepped; the service
keeps sessions, stores every answer before anybody sees it, and plays a lost session again."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from app.domain.hosting import HostedStep, StoredSteps
from app.domain.tasks import Message, Opening


class HostedSession(Protocol):
    """One episode on the server. It is never used by two at once. Every method raises HostFailed where the server gives
    no answer, or one that cannot be read, and SessionLost where it closed the session; that is then not used again."""

    @property
    def opening(self) -> Opening: ...

    async def step(self, message: Message) -> HostedStep:
        """`message` is the model's, of role `assistant`. What the model did wrong (an unknown tool, bad arguments,
        words that are no action) is answered in `messages`, or ends the episode with what it has. An exception of the
        environment is a `failure`."""

    async def finish(self) -> HostedStep:
        """The episode ends here, before it was done. `reward` is what the end adds, and None where it adds nothing."""

    async def close(self) -> None:
        """Never raises."""


@dataclass(frozen=True)
class HostLimits:
    sessions: int
    """Open at once, at most."""
    deadline_seconds: float
    """For opening a session, and for each step."""
    idle_seconds: float
    """After so long without a step a session is closed."""


@dataclass(frozen=True)
class RewardRange:
    """Rewards pass as they are. Where one lies in here it has a place between 0 and 1 too, for what compares
    environments."""

    least: float
    most: float


class EpisodeHost(Protocol):
    """Where the episodes of one task run."""

    @property
    def server(self) -> str:
        """The name of the environment."""

    @property
    def start(self) -> str:
        """Digest of what a session is opened with. Sessions of one start are alike until their first step."""

    @property
    def opening(self) -> Opening | None:
        """What the task was handed out with, to compare a session with; None before it is handed out."""

    @property
    def replayable(self) -> bool:
        """Whether the same messages bring the same answers in another session."""

    @property
    def finishes(self) -> bool:
        """Whether an episode that ends before it is done has `finish` called: its rewards so far are all there is
        otherwise."""

    @property
    def max_turns(self) -> int: ...

    @property
    def limits(self) -> HostLimits: ...

    @property
    def reward_range(self) -> RewardRange: ...

    async def open(self) -> HostedSession:
        """HostFull where the server has no place; HostFailed."""


class WatchedServer(Protocol):
    name: str
    """Of the environment that runs on it."""

    async def look(self) -> str:
        """What it says of itself, in brief: another text means that it was replaced. HostFailed where it is down."""


class HostedStepStore(Protocol):
    """Answers by the digest of the task and of all that the model said up to there."""

    async def find_steps(self, keys: Collection[str]) -> StoredSteps: ...

    async def put(self, key: str, task_id: str, step: HostedStep) -> HostedStep:
        """The answer that is stored there now: the first one. Durable on return."""
