"""Pass rates of tasks: counts of observed outcomes, and estimates from them."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.domain.values import Frozen

TASK_MEMORY: Final = 0.7
"""Weight of a task's older groups relative to a newer one, since the policy changes."""

HALF_LIFE_GROUPS: Final = 2_000
"""Half-life of a task's observations, in groups of the run."""

LABEL_MEMORY: Final = 0.98
OVERALL_MEMORY: Final = 0.99
TASK_PRIOR: Final = 2.0
"""Weight of the prior from similar tasks, in completions. Small, because similar tasks differ, so an untried task
stays uncertain."""

LABEL_PRIOR: Final = 8.0
MAX_TASKS: Final = 20_000
"""Maximum number of tasks kept; the least recently tried are dropped."""


class TaskOutcome(Frozen):
    """One training group of a run. `sequence` is its place among all groups."""

    sequence: int
    index: int
    label: str | None = None
    tried: int
    """Number of completions with a score."""
    passed: float
    """Sum of gate x absolute over them; for a verifier, the number of correct ones."""
    pending: bool = False


@dataclass(frozen=True, slots=True)
class PassTally:
    """Weighted counts: older groups weigh less, so both are real numbers."""

    tried: float = 0.0
    passed: float = 0.0

    def add_outcome(self, outcome: TaskOutcome, memory: float) -> "PassTally":
        return PassTally(self.tried * memory + outcome.tried, self.passed * memory + outcome.passed)

    def fade(self, share: float) -> "PassTally":
        return PassTally(self.tried * share, self.passed * share)

    def estimate_rate(self, prior: float, weight: float) -> float:
        """Mean of a Beta posterior; the prior has mean `prior` and the weight of `weight` completions."""
        return (self.passed + prior * weight) / (self.tried + weight)


@dataclass(frozen=True, slots=True)
class ExpectedRate:
    """Mean and variance of a task's pass rate."""

    rate: float
    variance: float

    def compute_distance(self, target: float) -> float:
        """Expected squared distance from the target. Uncertain tasks are farther than well-known ones of the same
        rate."""
        return (self.rate - target) ** 2 + self.variance


@dataclass(frozen=True, slots=True)
class _TaskTally:
    """Observations of one task. `at` is the number of groups counted when it was last tried."""

    tally: PassTally
    at: int


@dataclass(slots=True)
class PassRates:
    """Pass rates of a run's tasks in one environment, split and params."""

    tasks: OrderedDict[int, _TaskTally] = field(default_factory=OrderedDict)
    """By index, most recently tried last."""
    labels: dict[str, PassTally] = field(default_factory=dict)
    overall: PassTally = PassTally()
    counted: int = 0

    def add_outcome(self, outcome: TaskOutcome) -> None:
        if outcome.tried == 0:
            return
        self.counted += 1
        seen = _TaskTally(self._get_tally(outcome.index).add_outcome(outcome, TASK_MEMORY), self.counted)
        self.tasks[outcome.index] = seen
        self.tasks.move_to_end(outcome.index)
        if len(self.tasks) > MAX_TASKS:
            self.tasks.popitem(last=False)
        self.overall = self.overall.add_outcome(outcome, OVERALL_MEMORY)
        if outcome.label is not None:
            self.labels[outcome.label] = self.labels.get(outcome.label, PassTally()).add_outcome(outcome, LABEL_MEMORY)

    def estimate(self, index: int, label: str | None) -> ExpectedRate:
        """Estimates a task's rate from its own outcomes, shrunk towards those of its label and of all tasks."""
        of_all = self.overall.estimate_rate(0.5, 2.0)
        alike = of_all if label is None else self.labels.get(label, PassTally()).estimate_rate(of_all, LABEL_PRIOR)
        tally = self._get_tally(index)
        rate = min(1.0, tally.estimate_rate(alike, TASK_PRIOR))
        return ExpectedRate(rate, rate * (1 - rate) / (tally.tried + TASK_PRIOR + 1))

    def _get_tally(self, index: int) -> PassTally:
        seen = self.tasks.get(index)
        return PassTally() if seen is None else seen.tally.fade(0.5 ** ((self.counted - seen.at) / HALF_LIFE_GROUPS))


def find_nearest(target: float, expected: Mapping[int, ExpectedRate]) -> int:
    """The key of the task expected closest to the target; the first one on ties."""
    return min(expected, key=lambda key: expected[key].compute_distance(target))
