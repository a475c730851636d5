"""The report on one evaluation, as programs read it. `app.evaluation.measuring` makes it, `pages` shows it."""

from typing import Literal

from pydantic import AwareDatetime

from app.domain.values import FiniteNumber, Frozen, Unit
from app.evaluation.attempts import Attempt, EvaluationSetup
from app.evaluation.resampling import Estimate


class Caution(Frozen):
    """Something to know before a figure is believed. `code` is fixed, `text` is for people."""

    code: str
    text: str


class Counts(Frozen):
    """`asked` is tasks x samples; what is missing of it was never attempted, or not yet."""

    tasks: int
    asked: int
    made: int
    scored: int
    unscored: int
    passed: int


class PassAt(Frozen):
    k: int
    rate: Estimate
    left_out: int
    """Tasks with fewer than `k` scored attempts."""


class Row(Frozen):
    """One criterion or label. A criterion has no pass rate."""

    name: str
    attempts: int
    """That have a value."""
    mean: Estimate
    passed: Estimate = Estimate()
    """pass@1."""


class FlagRow(Frozen):
    flag: str
    attempts: int
    tasks: int
    share: Unit
    """Of all attempts."""
    mean: FiniteNumber | None
    """Reward of the attempts that have it."""


class UnscoredRow(Frozen):
    reason: str
    attempts: int
    tasks: int
    detail: str
    """What was said of the first one."""


class LengthRow(Frozen):
    """Of answers, in characters; the middle half of them is between `lower` and `upper`."""

    name: str
    attempts: int
    lower: int
    median: int
    upper: int
    longest: int
    output_tokens: FiniteNumber | None
    """Mean over the attempts whose tokens were counted."""


class TaskRow(Frozen):
    task_id: str
    place: int
    label: str | None
    scored: int
    passed: int
    reward: FiniteNumber | None


class Cost(Frozen):
    """Of the model's server as far as it counted; null where nothing is known."""

    input_tokens: int | None
    output_tokens: int | None
    uncounted: int
    """Attempts without token counts."""
    model_usd: FiniteNumber | None
    judging_usd: FiniteNumber | None
    seconds: FiniteNumber | None
    """Spent waiting for the model, added up over attempts."""


class Report(Frozen):
    """Every mean and rate is over tasks, each with the mean of its scored attempts; `reward` is gate x absolute."""

    kind: Literal["evaluation"] = "evaluation"
    schema_version: Literal[1] = 1
    setup: EvaluationSetup
    finished_at: AwareDatetime | None = None
    """Null while attempts are missing."""
    counts: Counts
    cautions: tuple[Caution, ...]
    mean: Estimate
    if_unscored: tuple[Unit, Unit] | None
    """Between these the mean would lie, had every unscored attempt a score: all of them 0, all of them 1."""
    noticeable: FiniteNumber | None
    """The smallest difference to another model that four in five evaluations of so many tasks would show, were both
    equally spread and independent. Compared task by task it is smaller, as far as the same tasks are hard for both."""
    passes: tuple[PassAt, ...]
    histogram: tuple[int, ...]
    """Scored attempts by tenths of the reward; the eleventh number counts those of exactly 1."""
    criteria: tuple[Row, ...]
    labels: tuple[Row, ...]
    flags: tuple[FlagRow, ...]
    unscored: tuple[UnscoredRow, ...]
    lengths: tuple[LengthRow, ...]
    judges: tuple[str, ...]
    scoring_digests: tuple[str, ...]
    cost: Cost
    tasks: tuple[TaskRow, ...]
    worst: tuple[Attempt, ...]
    best: tuple[Attempt, ...]
    """At most one of each task."""

    @property
    def complete(self) -> bool:
        return self.finished_at is not None
