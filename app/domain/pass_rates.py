"""How often a policy gets tasks right: what is seen of it, and what may be expected."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.domain.values import Frozen

TASK_MEMORY: Final = 0.7
"""What an older group of a task counts for beside the next one: the policy changes."""

LABEL_MEMORY: Final = 0.98
OVERALL_MEMORY: Final = 0.99
TASK_PRIOR: Final = 4.0
"""Completions that what is known of like tasks counts for, beside those of the task itself."""

LABEL_PRIOR: Final = 8.0


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

    def rate(self, prior: float, weight: float) -> float:
        """Mean of a Beta distribution whose prior has this mean and weighs as much as so many completions."""
        return (self.passed + prior * weight) / (self.tried + weight)


@dataclass(slots=True)
class PassRates:
    """Of one run's tasks of one environment, split and params."""

    tasks: dict[int, Tally] = field(default_factory=dict)
    labels: dict[str, Tally] = field(default_factory=dict)
    overall: Tally = Tally()

    def count(self, outcome: TaskOutcome) -> None:
        self.tasks[outcome.index] = self.tasks.get(outcome.index, Tally()).after(outcome, TASK_MEMORY)
        self.overall = self.overall.after(outcome, OVERALL_MEMORY)
        if outcome.label is not None:
            self.labels[outcome.label] = self.labels.get(outcome.label, Tally()).after(outcome, LABEL_MEMORY)

    def expected(self, index: int, label: str | None) -> "Expected":
        """By what was seen of the task, leaning on what was seen of tasks with its label, and of all tasks."""
        of_all = self.overall.rate(0.5, 2.0)
        alike = of_all if label is None else self.labels.get(label, Tally()).rate(of_all, LABEL_PRIOR)
        tally = self.tasks.get(index, Tally())
        rate = tally.rate(alike, TASK_PRIOR)
        return Expected(rate, math.sqrt(rate * (1 - rate) / (tally.tried + TASK_PRIOR + 1)))


@dataclass(frozen=True, slots=True)
class Expected:
    """Mean and standard deviation of a task's pass rate, both in [0, 1]."""

    rate: float
    deviation: float

    def distance(self, target: float) -> float:
        """How far off the target at the best that may be hoped for: one standard deviation nearer, and at least 0."""
        return max(0.0, abs(self.rate - target) - self.deviation)


def nearest(target: float, expected: Mapping[int, Expected]) -> int:
    """The key whose task is expected nearest to the target; the first of several."""
    return min(expected, key=lambda key: expected[key].distance(target))
