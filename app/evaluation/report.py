"""The report of one evaluation as data. `app.evaluation.report_builder` builds it, `pages` renders it."""

from typing import Literal

from pydantic import AwareDatetime

from app.domain.values import FiniteNumber, Frozen, Unit
from app.evaluation.attempts import Attempt, EvaluationSetup
from app.evaluation.resampling import MeanEstimate


class Caution(Frozen):
    """A warning about the figures. `code` is fixed, `text` is for people."""

    code: str
    text: str


class Counts(Frozen):
    """Numbers of tasks and attempts. `asked` is tasks x samples, `made` is what was attempted so far."""

    tasks: int
    asked: int
    made: int
    scored: int
    unscored: int
    passed: int


class PassAt(Frozen):
    k: int
    rate: MeanEstimate
    left_out: int
    """Tasks with fewer than `k` scored attempts."""


class BreakdownRow(Frozen):
    """One criterion or label. A criterion has no pass rate."""

    name: str
    attempts: int
    """Attempts with a value."""
    mean: MeanEstimate
    passed: MeanEstimate = MeanEstimate()
    """pass@1."""


class FlagRow(Frozen):
    flag: str
    attempts: int
    tasks: int
    share: Unit
    """Share of all attempts."""
    mean: FiniteNumber | None
    """Mean reward of the attempts with this flag."""


class UnscoredRow(Frozen):
    reason: str
    attempts: int
    tasks: int
    detail: str
    """The rationale of the first one."""


class LengthRow(Frozen):
    """Lengths of answers in characters; `lower` and `upper` are the quartiles."""

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
    """Cost as far as the model's server reported it; null if unknown."""

    input_tokens: int | None
    output_tokens: int | None
    uncounted: int
    """Attempts without token counts."""
    model_usd: FiniteNumber | None
    judging_usd: FiniteNumber | None
    seconds: FiniteNumber | None
    """Total time of the model over all attempts."""


class EvaluationReport(Frozen):
    """Every mean and rate is over tasks; a task's value is the mean of its scored attempts. `reward` is gate x
    absolute."""

    kind: Literal["evaluation"] = "evaluation"
    schema_version: Literal[1] = 1
    setup: EvaluationSetup
    finished_at: AwareDatetime | None = None
    """Null while attempts are missing."""
    counts: Counts
    cautions: tuple[Caution, ...]
    mean: MeanEstimate
    calibrated: MeanEstimate = MeanEstimate()
    """On the scale of replies of known level, over the tasks whose groups were drawn for that."""
    calibrated_tasks: MeanEstimate = MeanEstimate()
    """The mean reward of those tasks."""
    if_unscored: tuple[Unit, Unit] | None
    """Bounds of the mean if every unscored attempt had reward 0, or reward 1."""
    noticeable: FiniteNumber | None
    """The minimum detectable difference to another model at 80 % power, for independent samples of equal variance. A
    comparison task by task detects smaller differences if the same tasks are hard for both."""
    passes: tuple[PassAt, ...]
    histogram: tuple[int, ...]
    """Scored attempts by tenths of the reward; the eleventh number counts rewards of exactly 1."""
    criteria: tuple[BreakdownRow, ...]
    labels: tuple[BreakdownRow, ...]
    flags: tuple[FlagRow, ...]
    unscored: tuple[UnscoredRow, ...]
    lengths: tuple[LengthRow, ...]
    judges: tuple[str, ...]
    scoring_digests: tuple[str, ...]
    cost: Cost
    tasks: tuple[TaskRow, ...]
    worst: tuple[Attempt, ...]
    best: tuple[Attempt, ...]
    """At most one attempt per task."""

    @property
    def complete(self) -> bool:
        return self.finished_at is not None
