"""Judges, panels of judges, and the cache of judgements.

A judge answers one request about a group; a panel asks one or more judges and turns their answers into scores. What a
judge can do beyond answering is a protocol of its own: it reports, is priced, has a fallback, writes references. Judges
of plug-ins implement those that fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from app.domain.budgets import Admission, BudgetConfig, BudgetState, Reservation
from app.domain.judge_limits import LimitsExchange, LimitsGrant
from app.domain.judging import Case, Judgement, JudgeReport, JudgeRequest, OwnRubric, PanelResult
from app.domain.runs import PanelOptions, ScoringOptions
from app.domain.scores import (
    CALIBRATION_SECONDS,
    CalibratedValue,
    CalibrationGap,
    ReferenceKind,
    ReferencePlan,
    References,
)


class Judge(Protocol):
    """Rates the completions of a group."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def digest(self) -> str:
        """Digest of everything that could change a verdict: model, parameters, templates, code version."""

    async def judge(self, request: JudgeRequest) -> Judgement:
        """Never raises when the judge fails: the judgement then has `error` set, and the cost of the attempt."""


@runtime_checkable
class ReportingJudge(Protocol):
    """A judge that reports its health and spending."""

    def report(self) -> JudgeReport: ...


@runtime_checkable
class AnsweringJudge(Protocol):
    """A judge that answers any text, so that it can be tried how much of one it is shown."""

    async def answer_text(self, text: str) -> str | None:
        """None where it failed, as the judgements that follow then do."""


@runtime_checkable
class RecallingJudge(Protocol):
    """A judge that keeps its answers."""

    async def recall(self, request: JudgeRequest) -> Judgement | None:
        """An earlier answer to this very question."""


@runtime_checkable
class RepeatingJudge(Protocol):
    """A judge that may answer the same request in the same way every time."""

    @property
    def repeats_itself(self) -> bool:
        """Whether it does, as a model at temperature 0: a second vote would be the first one again."""


@dataclass(frozen=True)
class ReadingPace:
    """How a judge is best asked about a group."""

    largest_group: int = 16
    """Most replies in one question."""
    warms_cache: bool = True
    """Whether its first reading of a group is awaited before the others are sent, so that they find the prompt in the
    provider's cache."""


DEFAULT_PACE: Final = ReadingPace()


@runtime_checkable
class PacedJudge(Protocol):
    """A judge that says how it is best asked."""

    @property
    def pace(self) -> ReadingPace: ...


AT_ONCE: Final = ReadingPace(warms_cache=False)


def get_pace(judge: Judge) -> ReadingPace:
    """Judges without a server have no cache to warm."""
    pace: ReadingPace = getattr(judge, "pace", AT_ONCE)  # isinstance of a protocol takes ten times as long
    return pace


def gives_rewards(judge: Judge) -> bool:
    """Whether its verdicts have a `reward` in place of scores by the rubric, as those of a reward model."""
    return bool(getattr(judge, "gives_rewards", False))


@runtime_checkable
class BackedJudge(Protocol):
    """A judge with a fallback, which answers when it refuses."""

    @property
    def fallback(self) -> Judge: ...


@runtime_checkable
class PricedJudge(Protocol):
    """A judge whose calls cost money."""

    def compute_most(self, input_tokens: int) -> float | None:
        """US dollars of a call with such a prompt and the longest answer; None without prices."""

    @property
    def longest_answer(self) -> int:
        """Tokens."""


@dataclass(frozen=True)
class CachedJudgement:
    """A judgement from the cache. `claimed`: a stored group already accounts for its cost."""

    judgement: Judgement
    claimed: bool


@runtime_checkable
class WritingJudge(Protocol):
    """A judge that may write replies itself, on a request with `wanted`."""

    @property
    def writes(self) -> bool: ...


def can_write(judge: Judge) -> bool:
    return isinstance(judge, WritingJudge) and judge.writes


class JudgeCache(Protocol):
    """Cache of judgements and ledger of their cost, so that nothing is paid for twice."""

    async def get(self, reading: str) -> CachedJudgement | None: ...

    async def put(self, judgement: Judgement, hold: str = "") -> BudgetState:
        """Stores a judgement; durable on return. Its cost replaces the reservation `hold`, and it is cached under its
        `reading` unless it failed. StoreUnavailable when it cannot be written."""

    async def get_budget_state(self, judge: str) -> BudgetState:
        """Spending and reservations of all processes. Expired reservations count as calls without an answer."""

    async def reserve(self, hold: Reservation, budget: BudgetConfig) -> Admission:
        """Atomically replaces the reservation of this id if the budget allows; otherwise keeps only what was already
        used. Durable on return. Concurrent calls never exceed the budget together."""

    async def release(self, judge: str, hold: str) -> BudgetState:
        """Deletes a reservation of which nothing was used."""

    async def exchange_limits(self, asked: LimitsExchange) -> LimitsGrant:
        """Atomically gives a process its part of a judge's limits, by the clock of leases. Durable on return. The slots
        of all processes together never exceed the limit."""


class Panel(Protocol):
    """One or more judges with one set of options."""

    @property
    def judges(self) -> tuple[str, ...]: ...

    @property
    def models(self) -> tuple[str, ...]:
        """The models, one per judge, in the same order."""

    @property
    def digest(self) -> str:
        """Digest of everything that turns the judges' answers into scores."""

    async def judge(self, case: Case) -> PanelResult:
        """One score per candidate, in order. Gated candidates are 0 even when every judge fails; the rest are then
        `unscored`."""


@dataclass(frozen=True)
class CalibrationReading:
    """One reading of a group beside references. `values` follow the case's candidates: null for gated ones."""

    values: tuple[CalibratedValue | CalibrationGap | None, ...]
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True)
class WrittenReferences:
    """`replies` is null where no judge gave any that can be used."""

    replies: Mapping[ReferenceKind, str] | None
    judgement: Judgement


@runtime_checkable
class CalibratingPanel(Panel, Protocol):
    """A panel that can also read a group beside references, and have missing references written."""

    @property
    def grades(self) -> bool:
        """Whether one of its judges reads by the rubric."""

    async def calibrate(
        self, case: Case, references: References, seconds: float = CALIBRATION_SECONDS
    ) -> CalibrationReading: ...

    async def write_references(self, plan: ReferencePlan, case: Case, policy: str | None) -> WrittenReferences | None:
        """Those that the plan does not give, if they pass the gates of `case`. None when no judge of the panel writes,
        but for the model `policy`."""


class ReferenceStore(Protocol):
    """References that judges made, frozen by scene."""

    async def get(self, scene: str) -> References | None: ...

    async def put(self, scene: str, references: References) -> References:
        """Stores the references of a scene unless it has some, and returns those that it has. Durable on return."""


class Panels(Protocol):
    @property
    def judges(self) -> Mapping[str, Judge]:
        """All judges, by name."""

    def resolve_options(self, environment: str, options: ScoringOptions) -> PanelOptions:
        """`options`, with open fields filled in from the environment's settings."""

    def build_panel(self, environment: str, options: ScoringOptions) -> Panel:
        """InvalidRequest naming `options.judges` when a judge is not configured, or the field of a wrong rubric."""

    def build_fresh_panel(self, environment: str, options: ScoringOptions) -> Panel:
        """The same past the caches of its judges: every reading is asked for, and none is kept."""

    def check_rubric(self, rubric: OwnRubric, field: str) -> None:
        """InvalidRequest naming the part of `field` that is wrong."""

    def refuses_self_judging(self, judge: str) -> bool:
        """Whether `judge` must not score a policy that is its own model."""
