"""The queue of groups between external environments and trainers."""

from collections.abc import Collection, Sequence
from typing import Protocol

from app.domain.trajectories import (
    BatchFormer,
    BatchNotReady,
    EnvClient,
    EnvRegistration,
    PackedGroup,
    QueueLag,
    TrainerRegistration,
    TrajectoryBacklog,
    TrajectoryBatch,
    TrajectoryRun,
)


class TrajectoryQueue(Protocol):
    """Queues of groups from external environments to trainers, one per run. Writes are durable on return."""

    async def register(self, run: str, registration: TrainerRegistration) -> None:
        """Registers a trainer. A different registration replaces the old one and resets the step; the queue stays."""

    async def join(self, run: str, joining: EnvRegistration) -> EnvClient | None:
        """Registers an environment; None before a trainer has requested a batch."""

    async def leave(self, run: str, env_id: int) -> bool:
        """Marks an environment as disconnected. Returns whether it exists."""

    async def record_heartbeat(self, run: str, env_id: int) -> None:
        """Records a heartbeat of an environment."""

    async def add(self, run: str, groups: Sequence[PackedGroup]) -> int:
        """Adds groups and returns how many are new. Digests seen within the last minutes are duplicates."""

    async def take_batch(
        self, run: str, life: str, sent: Collection[int], form: BatchFormer
    ) -> TrajectoryBatch | BatchNotReady | None:
        """The next batch, or one that was not delivered; None without a trainer. `life` identifies this process: an
        unconfirmed batch of another process counts as not delivered. `sent` are batches that now count as delivered;
        so do those that any process has recorded."""

    async def record_sent(self, run: str, numbers: Collection[int]) -> None:
        """Records that these batches went out in full. They are delivered when any process is asked for the next."""

    async def return_batch(self, run: str, number: int) -> None:
        """Marks a batch that could not be sent, so that it is handed out again."""

    async def get_run(self, run: str, life: str) -> TrajectoryRun: ...

    async def get_backlog(self, run: str) -> TrajectoryBacklog | None:
        """The input for forming the next batch; None without a trainer."""

    async def get_lag(self, run: str) -> QueueLag:
        """How long the groups in the queue have waited, in the trainer's steps."""

    async def get_newest_group_body(self, run: str) -> bytes | None:
        """The body of the newest group; None when the run had none."""

    async def reset(self, run: str) -> None:
        """Deletes everything about the run."""

    async def list_runs(self, limit: int) -> list[str]:
        """By name."""
