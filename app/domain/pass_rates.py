"""How often a policy gets tasks right: what is seen of it, and what may be expected."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.domain.values import Frozen

TASK_MEMORY: Final = 0.7
"""What an older group of a task counts for beside the next one: the policy changes."""

HALVED_AFTER: Final = 2_000
"""Groups of the run after which what was seen of a task counts for half of what it did."""

LABEL_MEMORY: Final = 0.98
OVERALL_MEMORY: Final = 0.99
TASK_PRIOR: Final = 2.0
"""Completions that what is known of like tasks counts for, beside those of the task itself. Few: tasks of one kind
differ, so a task that was never tried is uncertain."""

LABEL_PRIOR: Final = 8.0
MOST_TASKS: Final = 20_000
"""The tasks that were longest not tried make room."""


class TaskOutcome(Frozen):
    """One training group of a run. `sequence` is its place among all groups."""

    sequence: int
    index: int
    label: str | None = None
    tried: int
    """Completions that have a score."""
    passed: float
    """Sum of gate x absolute over them: for a verifier, how many were right."""
    pending: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """Older groups weigh less, so both are real numbers."""

    tried: float = 0.0
    passed: float = 0.0

    def after(self, outcome: TaskOutcome, memory: float) -> "Tally":
        return Tally(self.tried * memory + outcome.tried, self.passed * memory + outcome.passed)

    def faded(self, share: float) -> "Tally":
        return Tally(self.tried * share, self.passed * share)

    def rate(self, prior: float, weight: float) -> float:
        """Mean of a Beta distribution whose prior has this mean and weighs as much as so many completions."""
        return (self.passed + prior * weight) / (self.tried + weight)


@dataclass(frozen=True, slots=True)
class Expected:
    """Mean and variance of a task's pass rate."""

    rate: float
    variance: float

    def distance(self, target: float) -> float:
        """The square of how far off the target the task is, as it may be expected: a task of which little is known is
        farther off than one that is known to have the same rate."""
        return (self.rate - target) ** 2 + self.variance


@dataclass(frozen=True, slots=True)
class _Seen:
    """Of one task. `at` is how many groups were counted when it was tried last."""

    tally: Tally
    at: int


@dataclass(slots=True)
class PassRates:
    """Of one run's tasks of one environment, split and params."""

    tasks: OrderedDict[int, _Seen] = field(default_factory=OrderedDict)
    """By index, the one tried last at the end."""
    labels: dict[str, Tally] = field(default_factory=dict)
    overall: Tally = Tally()
    counted: int = 0

    def count(self, outcome: TaskOutcome) -> None:
        if outcome.tried == 0:
            return
        self.counted += 1
        seen = _Seen(self._known(outcome.index).after(outcome, TASK_MEMORY), self.counted)
        self.tasks[outcome.index] = seen
        self.tasks.move_to_end(outcome.index)
        if len(self.tasks) > MOST_TASKS:
            self.tasks.popitem(last=False)
        self.overall = self.overall.after(outcome, OVERALL_MEMORY)
        if outcome.label is not None:
            self.labels[outcome.label] = self.labels.get(outcome.label, Tally()).after(outcome, LABEL_MEMORY)

    def expected(self, index: int, label: str | None) -> Expected:
        """By what was seen of the task, leaning on what was seen of tasks with its label, and of all tasks."""
        of_all = self.overall.rate(0.5, 2.0)
        alike = of_all if label is None else self.labels.get(label, Tally()).rate(of_all, LABEL_PRIOR)
        tally = self._known(index)
        rate = min(1.0, tally.rate(alike, TASK_PRIOR))
        return Expected(rate, rate * (1 - rate) / (tally.tried + TASK_PRIOR + 1))

    def _known(self, index: int) -> Tally:
        seen = self.tasks.get(index)
        return Tally() if seen is None else seen.tally.faded(0.5 ** ((self.counted - seen.at) / HALVED_AFTER))


def nearest(target: float, expected: Mapping[int, Expected]) -> int:
    """The key whose task is expected nearest to the target; the first of several."""
    return min(expected, key=lambda key: expected[key].distance(target))
