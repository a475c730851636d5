"""Attempts grouped by task."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from app.evaluation.attempts import Attempt, Evaluation
from app.evaluation.passing import pass_at


@dataclass(frozen=True)
class Tried:
    """One task with its attempts, in order. Means are over scored attempts, and null if there are none."""

    task_id: str
    place: int
    label: str | None
    attempts: tuple[Attempt, ...]

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(attempt.reward for attempt in self.attempts if attempt.reward is not None)

    @property
    def reward(self) -> float | None:
        return fmean(self.rewards) if self.rewards else None

    def passed(self, threshold: float) -> int:
        return sum(reward >= threshold for reward in self.rewards)

    def pass_at(self, k: int, threshold: float) -> float | None:
        """The task's pass@k; null with fewer than `k` scored attempts."""
        return pass_at(k, len(self.rewards), self.passed(threshold)) if len(self.rewards) >= k else None

    def criterion(self, name: str) -> float | None:
        """The mean of a criterion; null if it never applied."""
        values = [value for attempt in self.attempts if (value := attempt.criteria.get(name)) is not None]
        return fmean(values) if values else None

    def where_unscored(self, reward: float) -> float:
        """The mean if every unscored attempt had this reward."""
        return fmean(reward if attempt.reward is None else attempt.reward for attempt in self.attempts)


def tried(attempts: Iterable[Attempt]) -> tuple[Tried, ...]:
    """Groups attempts by task, in the order of the split."""
    found: dict[str, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda each: (each.place, each.sample)):
        found.setdefault(attempt.task_id, []).append(attempt)
    return tuple(
        Tried(task_id=task_id, place=each[0].place, label=each[0].label, attempts=tuple(each))
        for task_id, each in found.items()
    )


def known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def criteria_in(evaluation: Evaluation) -> tuple[str, ...]:
    """The criteria that occur: those of the rubric in its order, then others."""
    seen = dict.fromkeys(name for attempt in evaluation.attempts for name in attempt.criteria)
    return tuple(dict.fromkeys([*(name for name in evaluation.setup.criteria if name in seen), *seen]))


def by_label(tasks: Sequence[Tried]) -> Mapping[str, tuple[Tried, ...]]:
    """Groups tasks by label, in alphabetical order; tasks without a label are left out."""
    labels = sorted({task.label for task in tasks if task.label is not None})
    return {label: tuple(task for task in tasks if task.label == label) for label in labels}
