"""Runs and what they pin; streams of tasks and the leases on them."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from app.domain.judging import Mode
from app.domain.values import Frozen, Name, Split, Unit, WholeNumber

Purpose = Literal["train", "eval"]


Votes = Annotated[WholeNumber, Field(ge=1, le=9)]


class ScoringOptions(Frozen):
    """How a run wants its completions scored; frozen at the run's first use. What is null or empty is as the settings
    file has it for the environment."""

    mode: Mode | None = None
    """How judges read a group: all at once in mirrored orders, in pairs, or one by one."""
    votes: Votes | None = None
    """How often a judge is asked the same, in each order (`pairwise`) or of each completion (`pointwise`)."""
    judges: tuple[Name, ...] = ()
    """Names from the settings file."""
    relative_weight: Unit | None = None
    """Share of the standing within the group in a judged reward."""
    on_truncated: Literal["zero", "score"] = "zero"
    """What a completion with `finish_reason: length` earns: nothing, or what its text deserves."""


class PanelOptions(Frozen):
    """What is left of scoring options when an environment's settings have filled them in."""

    mode: Mode
    votes: Votes
    judges: tuple[Name, ...]
    relative_weight: Unit


class Pin(Frozen):
    """What an environment was when the run first met it."""

    environment: str
    version: str
    scoring_digest: str
    parts: dict[str, str]
    """The digests that went into `scoring_digest`, by name."""


class Run(Frozen):
    """One trainer's named job."""

    name: Name
    seed: Annotated[WholeNumber, Field(ge=0, lt=2**53)]
    strict: bool = False
    """Refuse (409) instead of flagging `scoring_changed`."""
    options: ScoringOptions = ScoringOptions()
    pins: tuple[Pin, ...] = ()
    created_at: datetime


class Policy(Frozen):
    """The model being trained and its training step."""

    model: Annotated[str, Field(max_length=200)]
    step: Annotated[WholeNumber, Field(ge=0)] | None = None


class Stream(Frozen):
    """One endless or one-epoch sequence of tasks of a run. Runs never share a stream."""

    run: str
    environment: str
    split: Split
    params: dict[str, JsonValue]
    select: dict[str, tuple[JsonValue, ...]]
    digest: str
    """Of (environment, split, params, select)."""


class Slot(Frozen):
    """A place in a stream: `position` counts hand-outs, `index` is the environment's task."""

    position: int
    epoch: int
    index: int


class Lease(Frozen):
    lease_id: str
    slot: Slot
    expires_at: datetime


class HeldLease(Frozen):
    """What a lease was given for."""

    lease_id: str
    run: str
    environment: str
    split: Split
    params: dict[str, JsonValue]
    index: int
