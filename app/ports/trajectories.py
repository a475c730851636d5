"""Groups on their way from environments elsewhere to trainers."""

from collections.abc import Collection, Sequence
from typing import Protocol

from app.domain.trajectories import Feeder, Form, Handed, Joining, Line, NotYet, Packed, Registration, TrajectoryRun


class TrajectoryQueue(Protocol):
    """Groups on their way from environments elsewhere to trainers, run by run. Whatever writes is durable on return."""

    async def register(self, run: str, registration: Registration) -> None:
        """A trainer. Another registration replaces the run's, and its step begins anew; what waits goes on waiting."""

    async def join(self, run: str, joining: Joining) -> Feeder | None:
        """An environment; None before a trainer has asked for a batch."""

    async def leave(self, run: str, env_id: int) -> bool:
        """Whether there was such an environment."""

    async def seen(self, run: str, env_id: int) -> None:
        """A sign of life."""

    async def add(self, run: str, groups: Sequence[Packed]) -> int:
        """How many are new: what came within the last minutes with the same digest is the same group, sent again."""

    async def take(self, run: str, life: str, sent: Collection[int], form: Form) -> Handed | NotYet | None:
        """The next batch, or one that did not arrive; None without a trainer. `life` names this process: a batch handed
        out in another one, and never confirmed, did not arrive. `sent` are batches that now count as delivered."""

    async def give_back(self, run: str, number: int) -> None:
        """A batch that could not be sent is handed out again."""

    async def look(self, run: str, life: str) -> TrajectoryRun: ...

    async def line(self, run: str) -> Line | None:
        """What a batch would be formed from; None without a trainer."""

    async def latest(self, run: str) -> bytes | None:
        """The body of the newest group; None when the run had none."""

    async def reset(self, run: str) -> None:
        """Forgets everything about the run."""

    async def runs(self, limit: int) -> list[str]:
        """By name."""
