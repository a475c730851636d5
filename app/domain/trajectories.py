"""Groups of token sequences on their way from environments elsewhere to a trainer, as Atropos passes them on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict


class Registration(BaseModel):
    """What a trainer says of itself. `batch_size` counts sequences."""

    model_config = ConfigDict(frozen=True)

    wandb_group: str
    wandb_project: str
    batch_size: int
    max_token_len: int
    checkpoint_dir: str
    save_checkpoint_interval: int
    starting_step: int
    num_steps: int


class Joining(BaseModel):
    """What an environment says of itself. `min_batch_allocation` is the share of every batch that it must have."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    max_token_length: int
    desired_name: str
    weight: float
    group_size: int
    min_batch_allocation: float | None = None


@dataclass(frozen=True)
class Feeder:
    """An environment that joined a run. `env_id` counts from 0; `name` is the wanted one with a number."""

    env_id: int
    name: str
    said: Joining
    connected: bool
    seen_at: datetime


@dataclass(frozen=True)
class Packed:
    """A group that was checked: `body` is what its readers get, compressed, and `digest` tells it from others."""

    env_id: int | None
    size: int
    digest: str
    body: bytes


@dataclass(frozen=True)
class Waiting:
    """What is left of a group in line: `size` sequences. `passed` counts the batches that went before it although it
    stood first."""

    sequence: int
    env_id: int | None
    size: int
    passed: int = 0
    whole: bool = True


@dataclass(frozen=True)
class Line:
    """All that a batch is formed from. `waiting`, oldest first, has of every environment and size no more than could go
    into one batch and one more; `sequences` counts everything that waits. `turns` says by environment how far its turn
    has moved."""

    batch_size: int
    waiting: tuple[Waiting, ...]
    sequences: int
    feeders: tuple[Feeder, ...]
    turns: Mapping[int | None, float]
    now: datetime


@dataclass(frozen=True)
class Share:
    """The first `size` sequences of a waiting group."""

    sequence: int
    size: int


@dataclass(frozen=True)
class Formed:
    """Exactly one batch, in its order. `passed_over` stood first and did not fit."""

    shares: tuple[Share, ...]
    turns: Mapping[int | None, float]
    passed_over: int | None = None


@dataclass(frozen=True)
class NotYet:
    """Why there is no batch, in words."""

    reason: str


Form = Callable[[Line], Formed | NotYet]
"""Pure."""


@dataclass(frozen=True)
class Part:
    """Sequences `first` to `first + size` of the group in `body`."""

    body: bytes
    first: int
    size: int
    whole: bool


@dataclass(frozen=True)
class Handed:
    """A batch that was handed out; `again` when it was before, to somebody whom it may not have reached."""

    number: int
    parts: tuple[Part, ...]
    again: bool


@dataclass(frozen=True)
class Heap:
    """`groups` groups of `size` sequences that an environment has in line, or in batches that did not arrive."""

    env_id: int | None
    size: int
    groups: int


@dataclass(frozen=True)
class TrajectoryRun:
    """Where a run stands. `step` counts the batches that its trainer has; it begins with the registered one."""

    run: str
    registration: Registration | None = None
    started: bool = False
    step: int = 0
    feeders: tuple[Feeder, ...] = ()
    heaps: tuple[Heap, ...] = ()
    undelivered: int = 0
    """Batches that were handed out and are to be handed out again."""

    @property
    def groups(self) -> int:
        return sum(heap.groups for heap in self.heaps)

    @property
    def sequences(self) -> int:
        return sum(heap.groups * heap.size for heap in self.heaps)


@dataclass(frozen=True)
class Explained:
    """A run with what holds up its next batch, in words; `ready` when nothing does."""

    standing: TrajectoryRun
    ready: bool
    reason: str
    notes: tuple[str, ...] = ()
