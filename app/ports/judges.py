"""Judges, panels of them, and what they remember."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from app.domain.budgets import Admission, BudgetConfig, Hold, Standing
from app.domain.judging import Case, Judgement, JudgeReport, JudgeRequest, PanelResult
from app.domain.runs import PanelOptions, ScoringOptions


class Judge(Protocol):
    """Something that reads a group and says how good each completion is."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def digest(self) -> str:
        """Of everything of this judge that could change a verdict: model, parameters, templates, code version."""

    async def judge(self, request: JudgeRequest) -> Judgement:
        """Never raises for a judge's failure: the judgement then has `error` set, with what the attempt cost."""


@runtime_checkable
class SelfReporting(Protocol):
    """A judge that knows how it is doing."""

    def report(self) -> JudgeReport: ...


@runtime_checkable
class Backed(Protocol):
    """A judge with another behind it, which answers where it refuses."""

    @property
    def fallback(self) -> Judge: ...


@dataclass(frozen=True)
class Recalled:
    """`claimed`: a group holds this judgement already, with what it cost."""

    judgement: Judgement
    claimed: bool


class JudgementMemory(Protocol):
    """What judges answered and what it cost, so that nothing is asked and paid twice."""

    async def get(self, reading: str) -> Recalled | None: ...

    async def put(self, judgement: Judgement, hold: str = "") -> Standing:
        """Durable on return: its cost is added to its judge's spending in the place of the hold, and it is found again
        by its `reading` unless it failed. StoreUnavailable when it cannot be written."""

    async def standing(self, judge: str) -> Standing:
        """What everybody spent and holds. Holds whose time is up count as calls without an answer."""

    async def put_aside(self, hold: Hold, budget: BudgetConfig) -> Admission:
        """Durable on return: `hold` stands in the place of an earlier one of its id where the budget admits it, and
        only what it has used where not. Two that ask at the same time never get what is there for one."""

    async def give_back(self, judge: str, hold: str) -> Standing:
        """Forgets a hold of which nothing was used."""


class Panel(Protocol):
    """One or more judges under one set of options."""

    @property
    def judges(self) -> tuple[str, ...]: ...

    @property
    def models(self) -> tuple[str, ...]:
        """One per judge, in the same order."""

    @property
    def digest(self) -> str:
        """Of all that turns its judges' answers into scores."""

    async def judge(self, case: Case) -> PanelResult:
        """One score per candidate, in order. Gated candidates are 0 even when every judge fails; the rest are then
        `unscored`."""


class Panels(Protocol):
    @property
    def judges(self) -> Mapping[str, Judge]:
        """Every judge there is, by name."""

    def options(self, environment: str, options: ScoringOptions) -> PanelOptions:
        """`options`, with what they leave open as it is configured for the environment."""

    def panel(self, environment: str, options: ScoringOptions) -> Panel:
        """InvalidRequest naming `options.judges` when a judge is not configured."""

    def refuses_self_judging(self, judge: str) -> bool:
        """Whether `judge` must not score a policy that is its own model."""
