"""What callers ask of the service and what it answers, the same over every door."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

from pydantic import ConfigDict, Field, JsonValue

from app.domain.parts import MOST_TOGETHER, Part
from app.domain.runs import Policy, Purpose
from app.domain.scores import Outcome, Score
from app.domain.tasks import Completion, Message, ToolSpec
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name, Split, Unit, WholeNumber

BatchSize = Annotated[WholeNumber, Field(ge=1, le=1024, description="How many tasks to hand out.")]
Cursor = Annotated[
    WholeNumber,
    Field(ge=0, le=2**40, description="Start here instead of leasing: the same request gives the same tasks."),
]
LeaseSeconds = Annotated[
    FiniteNumber,
    Field(ge=1, le=86_400, description="How long a task is held for you before it is handed to another holder."),
]
TaskId = Annotated[str, Field(pattern=r"^task_[0-9a-f]{32}$")]
LeaseId = Annotated[str, Field(pattern=r"^lease_[0-9a-f]{32}$")]
GroupId = Annotated[str, Field(pattern=r"^group_[0-9a-f]{32}$")]
Rate = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
TARGET: Final = "target_pass_rate"
Weights = dict[
    Annotated[str, Field(max_length=100)],
    Annotated[dict[str, Annotated[FiniteNumber, Field(ge=0, le=1e6)]], Field(min_length=1, max_length=500)],
]


class BatchOptions(Frozen):
    """What every hand-out may ask for."""

    batch_size: BatchSize = 8
    run: Annotated[Name | None, Field(description="Your job's name. Without it this is a look: nothing is leased.")] = (
        None
    )
    lease_seconds: LeaseSeconds = 600.0
    purpose: Annotated[
        Purpose, Field(description="`eval` is cursor-only, scored on `absolute`, and kept out of training figures.")
    ] = "train"
    cursor: Cursor | None = None


class Select(Frozen):
    """Only tasks whose public metadata has one of these values, by key."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, tuple[FiniteJson, ...]]

    target_pass_rate: Rate | None = None
    """No metadata key: of a few tasks at a time the one is leased whose pass rate, by this run's own groups, is
    expected nearest to it. Needs a `run`, and is for training tasks."""

    @property
    def chosen(self) -> Mapping[str, tuple[FiniteJson, ...]]:
        """The selection by metadata."""
        return self.model_extra or {}


class NextBatch(BatchOptions):
    split: Split = "train"
    params: dict[str, FiniteJson] = {}
    """Of the environment; see its entry in the catalogue."""
    select: Select = Field(default_factory=Select, examples=[{"target_pass_rate": 0.5}])
    weights: Annotated[
        Weights,
        Field(
            max_length=4,
            description="How often each value of a metadata key is drawn, by key and value; values that are not named "
            "weigh 1, 0 leaves them out. Mixes training tasks without end.",
        ),
    ] = {}


class MixMember(Frozen):
    env: Name
    weight: Annotated[FiniteNumber, Field(gt=0, le=1e6)] = 1.0
    split: Split = "train"
    params: dict[str, FiniteJson] = {}


class NextMixedBatch(BatchOptions):
    mix: Annotated[tuple[MixMember, ...], Field(min_length=1, max_length=64)]


class HandedOut(Frozen):
    """One task in a trainer's hands. Never holds the answer."""

    task_id: str
    lease_id: str | None
    environment: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_turns: int
    metadata: dict[str, JsonValue]
    lease_expires_at: datetime | None


class Batch(Frozen):
    tasks: tuple[HandedOut, ...]
    next_cursor: int | None
    """Where to go on; null when tasks were leased."""
    exhausted: bool
    """Nothing is left and nothing is outstanding. Fewer tasks than asked for, or none, with `exhausted: false` means
    that the rest is leased to others: ask again later."""


class GroupToScore(Frozen):
    task_id: TaskId
    lease_id: LeaseId | None = None
    completions: Annotated[tuple[Completion, ...], Field(min_length=1, max_length=MOST_TOGETHER)]
    part: Annotated[
        Part | None,
        Field(
            description="Where a group comes in pieces: which piece these completions are. The reply has their rewards "
            "and the statistics of the whole group, once all of it has come or its time is up.",
            examples=[{"key": "step-12/prompt-3", "index": 0, "size": 8}],
        ),
    ] = None


class ScoreRequest(Frozen):
    groups: Annotated[tuple[GroupToScore, ...], Field(min_length=1, max_length=256)]
    run: Name | None = None
    policy: Policy | None = None
    purpose: Purpose = "train"
    wait_seconds: Annotated[
        Annotated[FiniteNumber, Field(ge=0, le=600)] | None,
        Field(description="Answer after this time at the latest; what is not finished comes back `pending`."),
    ] = None


class GroupReply(Frozen):
    """One scored group. `rewards`, `scores` and `advantages` are in the order of its completions."""

    group_id: str
    task_id: str
    outcome: Outcome
    rewards: tuple[Unit | None, ...]
    scores: tuple[Score, ...]
    mean: FiniteNumber | None
    std: FiniteNumber | None
    """Sample standard deviation (n - 1)."""
    advantages: tuple[FiniteNumber | None, ...]
    """(reward - mean) / (std + 1e-4)."""
    low_signal: bool
    flags: tuple[str, ...]


class GroupProblem(Frozen):
    """What is wrong with one group; the others of its request are not affected."""

    task_id: str
    code: str
    detail: str
    field: str | None = None


class Scored(Frozen):
    groups: tuple[GroupReply | GroupProblem, ...]


class StepRequest(Frozen):
    task_id: TaskId
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=1000)]
    """Everything after the prompt so far, observations included; the last one is the model's."""
