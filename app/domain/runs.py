"""Runs and their pins; streams of tasks and leases on them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from operator import not_
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, JsonValue

from app.domain.budgets import BudgetUsd
from app.domain.errors import InvalidRequest, UserError
from app.domain.judging import Mode, OwnRubric, Rubric
from app.domain.keeping import KeepLevel
from app.domain.values import FiniteNumber, Frozen, Name, Split, Unit, WholeNumber

TrendName = Literal[
    "length",
    "absolute",
    "flagged",
    "gated",
    "capped",
    "duplicates",
    "escalated",
    "low_signal",
    "saturated",
    "calibration",
    "shadow_distance",
]


SeriesName = Literal[TrendName, "leniency", "beginning", "players"]


class HealthOptions(Frozen):
    """How a run's health is followed. It may change at any time and affects no reward."""

    on_alarm: Literal["flag", "hold"] = "flag"
    """`hold` hands out no further tasks from an alarm until the run is released. Scoring goes on."""
    share: Annotated[Unit, Field(le=0.5)] = 0.03
    """Most judge tokens for anchors and the shadow judge, as a share of what the run's own groups took; 0 for none."""
    shadow_judge: Name | None = None
    """A judge of another model that reads some groups for comparison alone. Null as in the environment's settings."""
    finished: Annotated[bool, Field(exclude_if=not_)] = False
    """The trainer says that the run is over: while no task is out, it is finished and not stalled."""


class Alarm(Frozen):
    alarm_id: str
    series: SeriesName
    subject: str = ""
    """The judge of `leniency`; empty for the run's own trends."""
    since_group: int
    """Where the change probably began, counted in the run's groups."""
    noticed_group: int
    effect: FiniteNumber
    """The shift since then, in the unit of the series."""
    statistic: FiniteNumber
    limit: FiniteNumber
    evidence: str
    raised_at: datetime
    released_at: datetime | None = None
    """When somebody released the run after it; null while it stands."""

    @property
    def words(self) -> str:
        """A bad beginning and bad players are no change since a group."""
        if self.series in ("beginning", "players"):
            return self.evidence
        return f"{self.evidence}, since about group {self.since_group:,}"


class Hold(Frozen):
    """Why a run hands out no tasks."""

    alarm_id: str
    reason: str
    since: datetime


Purpose = Literal["train", "eval"]


Votes = Annotated[WholeNumber, Field(ge=1, le=9)]


def _require_whole_number(value: object) -> object:
    if type(value) is not int:
        raise ValueError("must be 1, 2 or 4")
    return value


Readings = Annotated[Literal[1, 2, 4], BeforeValidator(_require_whole_number)]


MinAgreement = Annotated[FiniteNumber, Field(ge=0.5, lt=1.0)]
"""A judge that finds all replies equal has a pair accuracy of .5."""


def _is_none(value: float | None) -> bool:
    return value is None


class ScoringOptions(Frozen):
    """How a run's completions are scored; fixed at the run's first use. Null or empty fields take the environment's
    value from the settings file."""

    mode: Mode | None = None
    """How judges see a group: all completions at once in mirrored orders, in pairs, or one by one."""
    votes: Votes | None = None
    """How often each question is asked: per order (`pairwise`) or per completion (`pointwise`)."""
    readings: Readings | None = None
    """Most readings of a group by all judges together in `listwise`: 1 is one order, 2 are mirrored orders, 4 are two
    more where those leave doubt. Null as 4. Other modes do not use it."""
    judges: tuple[Name, ...] = ()
    """Judge names from the settings file."""
    relative_weight: Annotated[Unit, Field(strict=True)] | None = None
    """Weight of the comparison within the group in a judged reward."""
    calibration_share: Annotated[Annotated[Unit, Field(strict=True)] | None, Field(exclude_if=_is_none)] = None
    """Share of the tasks whose groups are read once more beside replies of known level, for `calibrated`; 0 for none.
    No reward depends on it."""
    on_truncated: Literal["zero", "score"] = "zero"
    """Score of a completion with `finish_reason: length`: 0, or the score of its text."""
    rubric: Annotated[OwnRubric | None, Field(exclude_if=not_)] = None
    """What judges score by, in environments that take another rubric than their own; others ignore it."""
    turn_rewards: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether each turn of an episode gets its part of the reward. Only for trainers that add up rewards of steps."""


MaxLag = Annotated[WholeNumber, Field(ge=0, lt=2**53)]
LagPolicy = Literal["flag", "drop", "pace"]
CharacterChoice = Literal["newest", "pinned"]


def _is_newest(choice: CharacterChoice) -> bool:
    return choice == "newest"


class PanelOptions(Frozen):
    """Scoring options after the environment's settings have filled in the open ones."""

    mode: Mode
    votes: Votes
    judges: tuple[Name, ...]
    relative_weight: Unit
    rubric: Rubric | None = None
    """None: the environment's own."""
    readings: Readings | None = None
    calibration_share: Unit = 0.0


class Pin(Frozen):
    """The version and digests of an environment when the run first used it."""

    environment: str
    version: str
    scoring_digest: str
    parts: dict[str, str]
    """The digests that `scoring_digest` combines, by name."""


class RunChange(Frozen):
    """What may change of a run at any time. Only fields that are set are changed."""

    budget_usd: BudgetUsd | None = None
    max_lag: MaxLag | None = None
    lag_policy: LagPolicy = "flag"
    health: HealthOptions = HealthOptions()
    min_agreement: MinAgreement | None = None
    keep: KeepLevel | None = None

    def apply_to(self, run: "Run") -> "Run":
        """InvalidRequest for a policy about stale groups where none can be stale."""
        changed = run.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})
        if "lag_policy" in self.model_fields_set and changed.lag_policy != "flag" and changed.max_lag is None:
            raise InvalidRequest(f"{changed.lag_policy!r} needs a `max_lag`", field="lag_policy")
        return changed


class Run(Frozen):
    """One trainer's named job."""

    name: Name
    seed: Annotated[WholeNumber, Field(ge=0, lt=2**53)]
    strict: bool = False
    """Refuse (409) instead of flagging `scoring_changed`."""
    options: ScoringOptions = ScoringOptions()
    budget_usd: BudgetUsd | None = None
    """US dollars that judging its groups may cost; null for no limit. It may change at any time."""
    max_lag: MaxLag | None = None
    """Most training steps between the hand-out of a group's task and its scoring; beyond them it is stale. Null for no
    limit. It may change at any time."""
    lag_policy: LagPolicy = "flag"
    """What becomes of a stale group: it is scored and flagged; it is left `unscored: stale`; or hand-out waits for what
    would become stale. It may change at any time."""
    min_agreement: MinAgreement | None = None
    """How far its judges must agree with people: the lower bound of the pair accuracy. It may change at any time."""
    characters: Annotated[CharacterChoice, Field(exclude_if=_is_newest)] = "newest"
    """`newest`: each epoch takes up the characters as they are published then; left out of JSON, as before there was a
    choice. `pinned`: every epoch has them as they were at the run's first use."""
    keep: KeepLevel | None = None
    """What stays of its scored groups: `all`, or scores and `texts` only; null for what the settings say. It may change
    at any time."""
    pins: tuple[Pin, ...] = ()
    health: HealthOptions = HealthOptions()
    """How its health is followed. It may change at any time and affects no reward."""
    held: Hold | None = None
    """Why it hands out no tasks; null while it does."""
    created_at: datetime

    def is_stale(self, lag: int | None) -> bool:
        return lag is not None and self.max_lag is not None and lag > self.max_lag

    @property
    def drops_stale(self) -> bool:
        return self.max_lag is not None and self.lag_policy == "drop"


Step = Annotated[WholeNumber, Field(ge=0, lt=2**53)]


class Policy(Frozen):
    """The model being trained and its training step."""

    model: Annotated[str, Field(max_length=200)]
    step: Step | None = None


_STEPS: Final = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?")


class StepRange(Frozen):
    """Training steps, both ends included."""

    first: Step
    last: Step

    @classmethod
    def parse(cls, text: str) -> "StepRange":
        """`120` or `100-120`. UserError for anything else."""
        found = _STEPS.fullmatch(text.strip())
        if found is None:
            raise UserError(f"{text[:50]!r} is neither a step, such as 120, nor a range, such as 100-120")
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if last < first:
            raise UserError(f"the range {text.strip()} ends before it begins")
        return cls(first=first, last=last)

    def __str__(self) -> str:
        return f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"


class HandOutPolicy(Frozen):
    """The model that will answer, as it is when tasks are handed out."""

    model: Annotated[str, Field(max_length=200)] | None = None
    """Not kept."""
    step: Step | None = None
    """Its training step, kept with the lease. The step that a group is scored with, minus this, is the group's
    `lag`."""


class Stream(Frozen):
    """A sequence of tasks of one run, endless or one epoch long. Runs never share a stream."""

    run: str
    environment: str
    split: Split
    params: dict[str, JsonValue]
    select: dict[str, tuple[JsonValue, ...]]
    digest: str
    """Of (environment, split, params, select)."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a stream: `position` counts hand-outs, `index` is the environment's task."""

    position: int
    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class Lease:
    lease_id: str
    slot: Slot
    expires_at: datetime


class HeldLease(Frozen):
    """The task that a lease is for."""

    lease_id: str
    run: str
    environment: str
    split: Split
    params: dict[str, JsonValue]
    index: int
    step: int | None = None
    """The training step at hand-out."""


# Whether a run is being trained, has stopped, or is over: told by when its groups arrive, since few trainers say so.

RunState = Literal["new", "training", "stalled", "finished", "held"]

USUAL_PAUSES: Final = 3.0
"""A pause so many times as long as the longest one of late is unusual."""
SHORTEST_STALL: Final = timedelta(minutes=2)
LONGEST_PAUSE: Final = timedelta(hours=6)
"""Whoever trains at all sends something within this."""
QUIET_END: Final = timedelta(hours=1)
"""A run that owes nothing is over after so long, or after an unusual pause that is longer."""


class RunProgress(Frozen):
    """`since` is when its newest group arrived, or when it was held."""

    state: RunState
    since: datetime | None
    outstanding: int
    """Tasks that are handed out and not scored."""
    reason: str = ""
    """Of a run that is held."""


def tell_progress(
    arrivals: Sequence[datetime], outstanding: int, held: Hold | None, now: datetime, *, finished: bool = False
) -> RunProgress:
    """`arrivals` are those of the newest groups, newest first. `finished`: its trainer says so."""
    if held is not None:
        return RunProgress(state="held", since=held.since, outstanding=outstanding, reason=held.reason)
    if not arrivals:
        return RunProgress(state="new", since=None, outstanding=outstanding)
    quiet, unusual = now - arrivals[0], measure_unusual_pause(arrivals)
    state: RunState = "training" if quiet <= unusual else "stalled"
    if outstanding == 0 and (finished or quiet > max(QUIET_END, unusual)):
        state = "finished"
    return RunProgress(state=state, since=arrivals[0], outstanding=outstanding)


def measure_unusual_pause(arrivals: Sequence[datetime]) -> timedelta:
    """Groups of a batch come together, so the longest pause of late is about that of a training step."""
    longest = max((later - earlier for later, earlier in pairwise(arrivals)), default=timedelta())
    return min(LONGEST_PAUSE, max(SHORTEST_STALL, USUAL_PAUSES * longest))
