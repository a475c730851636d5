"""The queue of groups between external environments and trainers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict


class TrainerRegistration(BaseModel):
    """A trainer's registration. `batch_size` counts sequences."""

    model_config = ConfigDict(frozen=True)

    wandb_group: str
    wandb_project: str
    batch_size: int
    max_token_len: int
    checkpoint_dir: str
    save_checkpoint_interval: int
    starting_step: int
    num_steps: int


class EnvRegistration(BaseModel):
    """An environment's registration. `min_batch_allocation` is its minimum share of every batch."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    max_token_length: int
    desired_name: str
    weight: float
    group_size: int
    min_batch_allocation: float | None = None


@dataclass(frozen=True)
class EnvClient:
    """A registered environment of a run. `env_id` counts from 0; `name` is the desired name plus a number."""

    env_id: int
    name: str
    registration: EnvRegistration
    connected: bool
    seen_at: datetime


@dataclass(frozen=True)
class PackedGroup:
    """A validated group. `body` is the compressed data for readers; `digest` identifies the group."""

    env_id: int | None
    size: int
    digest: str
    body: bytes


@dataclass(frozen=True)
class QueuedGroup:
    """The remaining `size` sequences of a queued group. `passed` counts the batches that skipped it although it was
    first."""

    sequence: int
    env_id: int | None
    size: int
    passed: int = 0
    whole: bool = True


@dataclass(frozen=True)
class TrajectoryBacklog:
    """The input for forming a batch. `waiting` lists queued groups, oldest first, per environment and size only as many
    as could fit into one batch plus one; `sequences` counts all queued sequences. `turns` is the fair-share progress
    of each environment."""

    batch_size: int
    waiting: tuple[QueuedGroup, ...]
    sequences: int
    env_clients: tuple[EnvClient, ...]
    turns: Mapping[int | None, float]
    now: datetime


@dataclass(frozen=True)
class GroupSlice:
    """The first `size` sequences of a waiting group."""

    sequence: int
    size: int


@dataclass(frozen=True)
class BatchPlan:
    """The plan of exactly one batch, in order. `passed_over` was first in the queue and did not fit."""

    shares: tuple[GroupSlice, ...]
    turns: Mapping[int | None, float]
    passed_over: int | None = None


@dataclass(frozen=True)
class BatchNotReady:
    """Why no batch can be formed, in words."""

    reason: str


BatchFormer = Callable[[TrajectoryBacklog], BatchPlan | BatchNotReady]
"""Pure."""


@dataclass(frozen=True)
class BatchPart:
    """Sequences `first` to `first + size` of the group in `body`."""

    body: bytes
    first: int
    size: int
    whole: bool


@dataclass(frozen=True)
class TrajectoryBatch:
    """A batch that was handed out. `again` marks one that is sent again because delivery was not confirmed."""

    number: int
    parts: tuple[BatchPart, ...]
    again: bool


@dataclass(frozen=True)
class QueueCount:
    """How many groups of `size` sequences an environment has in the queue or in undelivered batches."""

    env_id: int | None
    size: int
    groups: int


@dataclass(frozen=True)
class TrajectoryRun:
    """State of a run. `step` counts the batches delivered to the trainer, from the registered starting step."""

    run: str
    registration: TrainerRegistration | None = None
    started: bool = False
    step: int = 0
    env_clients: tuple[EnvClient, ...] = ()
    queue_counts: tuple[QueueCount, ...] = ()
    undelivered: int = 0
    """Batches that were handed out and will be handed out again."""

    @property
    def groups(self) -> int:
        return sum(queued.groups for queued in self.queue_counts)

    @property
    def sequences(self) -> int:
        return sum(queued.groups * queued.size for queued in self.queue_counts)


@dataclass(frozen=True)
class QueueLag:
    """How many of the trainer's steps the groups in the queue have waited. Groups that were posted before a trainer had
    registered have no lag."""

    groups: int = 0
    """Groups with a lag of 0 or more."""
    mean: float | None = None
    """Of these; None without any."""
    largest: int | None = None
    older_policy: int = 0
    """Groups that were posted at a later step than the present one: the trainer went back to an older checkpoint."""


@dataclass(frozen=True)
class TrajectoryRunStatus:
    """A run with the reason why its next batch is not ready; `ready` if it is."""

    state: TrajectoryRun
    lag: QueueLag
    ready: bool
    reason: str
    notes: tuple[str, ...] = ()
