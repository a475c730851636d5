"""A tournament as data: contestants, their duels, and the report. Without the arithmetic, which needs NumPy."""

from statistics import fmean
from typing import Literal

from pydantic import AwareDatetime

from app.domain.values import FiniteNumber, Frozen
from app.evaluation.report import Caution, MeanEstimate

Side = Literal["one", "other"]


class Contestant(Frozen):
    """A checkpoint whose stored replies take part."""

    name: str
    source: str
    """The folder of an evaluation, or a run with its steps."""
    models: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    """Those who scored its replies before."""
    tasks: int = 0


class DuelReading(Frozen):
    """One of the orders in which the judge read a pair."""

    shown_first: Side
    better: Side | Literal["tie"]


class Duel(Frozen):
    """Two contestants' replies to one task. `one` and `other` are places among the contestants."""

    task_id: str
    label: str | None = None
    one: int
    other: int
    groups: tuple[str, str]
    """The stored groups that the replies are from."""
    group_id: str | None = None
    """The pair as it was judged."""
    decided_by: Literal["judge", "gate", "same"] | None = None
    """A gate where one reply or both had failed it, `same` for equal replies; null without an outcome."""
    readings: tuple[DuelReading, ...] = ()
    reason: str | None = None
    """Why there is no outcome."""
    calls: int = 0
    usd: FiniteNumber | None = None

    @property
    def share(self) -> float | None:
        """Of `one`: the mean of its readings, ties as half."""
        worth = {"one": 1.0, "tie": 0.5, "other": 0.0}
        return fmean(worth[reading.better] for reading in self.readings) if self.readings else None

    @property
    def is_contradicted(self) -> bool:
        """Whether each order found another one better."""
        return {"one", "other"} <= {reading.better for reading in self.readings}


class TournamentSetup(Frozen):
    judge: str
    judge_model: str
    environments: tuple[str, ...]
    contestants: tuple[Contestant, ...]
    run: str
    """The run under which the pairs are stored."""
    seed: int
    tasks: int
    gateway: str = ""
    gateway_url: str = ""
    started_at: AwareDatetime


class StandingRow(Frozen):
    """One contestant. `duels` are its duels with an outcome."""

    name: str
    strength: MeanEstimate
    """In logarithms of odds. Strengths add up to 0; of duels that are no ties a difference of 1 wins 73 in 100."""
    share: MeanEstimate
    """The expected share of duels that it wins against the others who met somebody, ties as half."""
    duels: int
    won: int
    tied: int
    lost: int


class PairRow(Frozen):
    """Two contestants head to head; both figures are of `one`."""

    one: str
    other: str
    duels: int
    won: int
    tied: int
    lost: int
    share: MeanEstimate
    difference: MeanEstimate
    """Of strengths."""
    verdict: Literal["better", "worse", "undecided"]


class LabelStandings(Frozen):
    """With one label, such as a character: strengths from its own duels alone."""

    label: str
    tasks: int
    standings: tuple[StandingRow, ...]


class PositionEffect(Frozen):
    """How often the judge preferred what it was shown first. `contradicted` duels had another winner in each order."""

    readings: int
    first: int
    tied: int
    second: int
    duels: int
    contradicted: int


class UndecidedRow(Frozen):
    reason: str
    duels: int


class TournamentReport(Frozen):
    notice: str
    """What has to be known first: that the judge is no stranger, or has no model. Empty for nothing."""
    kind: Literal["tournament"] = "tournament"
    schema_version: Literal[1] = 1
    setup: TournamentSetup
    finished_at: AwareDatetime | None
    """Null while duels are missing."""
    cautions: tuple[Caution, ...]
    tasks: int
    """With at least one outcome."""
    planned: int
    decided: int
    by_gate: int
    same: int
    standings: tuple[StandingRow, ...]
    """The strongest first."""
    pairs: tuple[PairRow, ...]
    labels: tuple[LabelStandings, ...]
    """In alphabetical order; none where there is only one."""
    position: PositionEffect
    undecided: tuple[UndecidedRow, ...]
    calls: int
    usd: FiniteNumber | None
    """Null where a price is unknown."""
    duels: tuple[Duel, ...]
