"""Attempts grouped by task."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from app.evaluation.attempts import Attempt, Evaluation
from app.evaluation.pass_at_k import estimate_pass_at


@dataclass(frozen=True)
class TaskAttempts:
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

    @property
    def calibrated(self) -> float | None:
        values = drop_missing(attempt.calibrated for attempt in self.attempts)
        return fmean(values) if values else None

    def count_passed(self, threshold: float) -> int:
        return sum(reward >= threshold for reward in self.rewards)

    def estimate_pass_at(self, k: int, threshold: float) -> float | None:
        """The task's pass@k; null with fewer than `k` scored attempts."""
        return estimate_pass_at(k, len(self.rewards), self.count_passed(threshold)) if len(self.rewards) >= k else None

    def compute_criterion_mean(self, name: str) -> float | None:
        """The mean of a criterion; null if it never applied."""
        values = [value for attempt in self.attempts if (value := attempt.criteria.get(name)) is not None]
        return fmean(values) if values else None

    def compute_mean_if_unscored(self, reward: float) -> float:
        """The mean if every unscored attempt had this reward."""
        return fmean(reward if attempt.reward is None else attempt.reward for attempt in self.attempts)


def group_by_task(attempts: Iterable[Attempt]) -> tuple[TaskAttempts, ...]:
    """Groups attempts by task, in the order of the split."""
    found: dict[str, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda each: (each.place, each.sample)):
        found.setdefault(attempt.task_id, []).append(attempt)
    return tuple(
        TaskAttempts(task_id=task_id, place=each[0].place, label=each[0].label, attempts=tuple(each))
        for task_id, each in found.items()
    )


def drop_missing(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def list_criteria(evaluation: Evaluation) -> tuple[str, ...]:
    """The criteria that occur: those of the rubric in its order, then others."""
    seen = dict.fromkeys(name for attempt in evaluation.attempts for name in attempt.criteria)
    return tuple(dict.fromkeys([*(name for name in evaluation.setup.criteria if name in seen), *seen]))


def group_by_label(tasks: Sequence[TaskAttempts]) -> Mapping[str, tuple[TaskAttempts, ...]]:
    """Groups tasks by label, in alphabetical order; tasks without a label are left out."""
    labels = sorted({task.label for task in tasks if task.label is not None})
    return {label: tuple(task for task in tasks if task.label == label) for label in labels}
