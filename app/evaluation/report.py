"""One evaluation: its setup and attempts, and the report that is built of them.

Attempts at one task are correlated, so every mean and rate is over tasks, and intervals resample tasks, not attempts: a
cluster bootstrap with equal weights (see arXiv 2411.00640). Resampling is seeded by the setup, so the same attempts
always give the same report.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import getitem
from statistics import NormalDist, fmean, stdev
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from app.domain.scores import HIGHEST, LOWEST
from app.domain.values import (
    Z_95,
    FiniteJson,
    FiniteNumber,
    Frozen,
    Name,
    Proportion,
    Reward,
    Split,
    Typical,
    Unit,
    WholeNumber,
    compute_quantile,
    compute_t_95,
    find_typical,
)
from app.toolkit.charts import ChartForm, Curve, CurveChart, CurvePoint, draw_curves
from app.toolkit.texts import format_number

# The data of an evaluation

Count = Annotated[WholeNumber, Field(ge=0)]
Price = Annotated[FiniteNumber, Field(ge=0)]


class SamplingSettings(Frozen):
    """Sampling parameters for the model's server; null is the server's default."""

    temperature: FiniteNumber | None = None
    top_p: FiniteNumber | None = None
    max_tokens: Count | None = None
    extra: dict[str, FiniteJson] = {}
    """Other fields that were sent with each request."""


class Attempt(Frozen):
    """One completion for one task."""

    task_id: str
    place: Count
    """The task's cursor position in the split."""
    sample: Count
    """Which of the task's attempts, from 0."""
    outcome: Literal["scored", "unscored"]
    reason: str | None = None
    """Why it is unscored: the gateway's reason, or `policy_failed` if the model's server gave no answer."""
    reward: Reward | None = None
    """gate x absolute, limited by the rubric's caps: the gateway's reward with `purpose: eval`. Comparable across
    groups; never relative to a group."""
    calibrated: FiniteNumber | None = None
    """Where its group was drawn for that: quality on the scale of replies of known level."""
    calibrated_error: FiniteNumber | None = None
    """Its standard error."""
    criteria: dict[str, Unit | None] = {}
    """Null if a criterion did not apply."""
    label: str | None = None
    """The value that tables are broken down by, from the task's metadata, such as a character."""
    flags: tuple[str, ...] = ()
    rationale: str = ""
    judges: tuple[str, ...] = ()
    scoring_digest: str = ""
    group_id: str | None = None
    """The stored group with all details; null if nothing was sent for scoring."""
    prompt: str = ""
    """The end of the prompt, possibly shortened."""
    text: str = ""
    """The answer, possibly shortened. Untrusted text."""
    characters: Count = 0
    """The length of the whole answer."""
    turns: Count = 1
    """Number of the model's answers in this attempt."""
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    """Both are totals over all turns, as counted by the model's server."""
    finish_reason: str | None = None
    seconds: FiniteNumber | None = None
    """The model's time over all turns."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if (self.outcome == "scored") != (self.reward is not None):
            raise ValueError("an attempt has a reward exactly when it is scored")
        if (self.outcome == "unscored") != (self.reason is not None):
            raise ValueError("an attempt has a reason exactly when it is unscored")
        return self


class EvaluationSetup(Frozen):
    """All settings of an evaluation, fixed before the first attempt."""

    environment: str
    version: str
    split: Split = "test"
    params: dict[str, FiniteJson] = {}
    first: Count = 0
    """Cursor position of the first task."""
    tasks: Annotated[Count, Field(ge=1)]
    """Number of requested tasks."""
    samples: Annotated[Count, Field(ge=1)]
    """Attempts at each task."""
    strictness: str = ""
    """The rule that pays, where the environment has several, such as `ours` and `published`."""
    threshold: Unit = 1.0
    """The lowest reward that counts as passed."""
    seed: Count = 0
    """Seed for sampling, if the model's server accepts one, and for bootstrap and tests."""
    model: str
    step: Count | None = None
    """The policy's training step, stored with the groups."""
    sampling: SamplingSettings = SamplingSettings()
    run: Name
    """Run name that the groups are stored under."""
    label: str | None = None
    """The metadata key of `Attempt.label`."""
    criteria: tuple[str, ...] = ()
    """In the order of the environment's rubric; other criteria follow."""
    offline_judges: tuple[str, ...] = ()
    """Judges that are only for trying the system."""
    gateway: str = ""
    """The gateway's version."""
    gateway_url: Annotated[str, Field(pattern=r"^(https?://[^\s\"'<>]+)?$")] = ""
    """Where the gateway's pages are; empty if nobody said."""
    input_price: Price | None = None
    output_price: Price | None = None
    """US dollars per million tokens of the model."""
    started_at: AwareDatetime

    @property
    def checkpoint(self) -> str:
        """The model with its step, if it has one."""
        return self.model if self.step is None else f"{self.model}, step {self.step}"

    @property
    def rule(self) -> str:
        """Behind the name of a figure that depends on the rule."""
        return f" ({self.strictness})" if self.strictness else ""


class Evaluation(Frozen):
    setup: EvaluationSetup
    attempts: tuple[Attempt, ...]
    judging_usd: Price | None = None
    """The judges' cost, if known."""
    finished_at: AwareDatetime | None = None
    """Null while attempts are missing."""


# Intervals for means over tasks, and significance tests for differences between two models. Every function takes one
# value for each task: the mean over its attempts.

RESAMPLES: Final = 10_000
_MAX_DRAWS: Final = 10_000_000
"""Maximum draws for one interval, a few seconds per report: above 1,000 tasks there are fewer resamples."""

EXACT_UP_TO: Final = 13
"""Up to this many differing tasks the sign-flip test is exact; above, sign assignments are sampled."""

_POWER: Final = 0.8
_SAME: Final = 1e-9
"""Smaller differences of sums are rounding errors."""


class MeanEstimate(Frozen):
    """A mean over tasks with its 95 % confidence interval; all null without data."""

    value: FiniteNumber | None = None
    low: FiniteNumber | None = None
    high: FiniteNumber | None = None
    tasks: int = 0


class Resampler:
    """Seeded resampling: the same values always get the same interval."""

    def __init__(self, seed: int, resamples: int = RESAMPLES) -> None:
        self._seed = seed
        self._resamples = resamples
        self._estimates: dict[tuple[tuple[float, ...], float, float], MeanEstimate] = {}

    def estimate(self, values: Sequence[float], least: float = 0.0, most: float = 1.0) -> MeanEstimate:
        """Estimates the population mean of `values` in [least, most]."""
        key = (tuple(values), least, most)
        if key not in self._estimates:
            self._estimates[key] = self._compute_estimate(values, least, most)
        return self._estimates[key]

    def resample_means(self, values: Sequence[float]) -> list[float]:
        """The sorted means of resamples with replacement."""
        chance = random.Random(f"means {self._seed}")  # noqa: S311
        count = min(self._resamples, max(1, _MAX_DRAWS // len(values)))
        return sorted(sum(chance.choices(values, k=len(values))) / len(values) for _ in range(count))

    def compute_sign_flip_p(self, differences: Sequence[float]) -> float:
        """Two-sided p-value of the mean difference by a sign-flip test: the share of sign assignments with a difference
        at least as large. Never 0: if assignments are sampled, the observed one counts as one of them (Phipson and
        Smyth, Stat. Appl. Genet. Mol. Biol. 9, 2010, art. 39)."""
        moved = [difference for difference in differences if abs(difference) > _SAME]
        reached = abs(math.fsum(moved)) - _SAME * max(1, len(moved))
        # In tables of eight, so that one random byte chooses the signs of eight tasks.
        tables = [_compute_signed_sums(moved[at : at + 8]) for at in range(0, len(moved), 8)]
        if len(moved) <= EXACT_UP_TO:
            ways = [0.0]
            for table in tables:
                ways = [way + more for way in ways for more in table]
            return sum(abs(way) >= reached for way in ways) / len(ways)
        chance = random.Random(f"signs {self._seed}")  # noqa: S311
        sizes = [len(table) - 1 for table in tables]
        reaching = 0
        for _ in range(self._resamples):
            drawn = map(int.__and__, chance.randbytes(len(tables)), sizes)
            reaching += abs(sum(map(getitem, tables, drawn))) >= reached
        return (reaching + 1) / (self._resamples + 1)

    def _compute_estimate(self, values: Sequence[float], least: float, most: float) -> MeanEstimate:
        if not values:
            return MeanEstimate()
        mean = fmean(values)
        if max(values) - min(values) < _SAME:
            low, high = bound_unseen(mean, len(values), least, most)
        else:
            low, high = bound_resampled(self.resample_means(values), len(values))
        return MeanEstimate(value=mean, low=low, high=high, tasks=len(values))


def bound_resampled(ordered: Sequence[float], count: int) -> tuple[float, float]:
    """The 95 % interval of a figure, from its sorted values over resamples of `count` units. It is expanded
    (Hesterberg, arXiv 1411.5279), because the plain percentile interval is too narrow for few units."""
    tail = compute_tail(count)
    return compute_quantile(ordered, tail), compute_quantile(ordered, 1.0 - tail)


def bound_unseen(value: float, count: int, least: float = 0.0, most: float = 1.0) -> tuple[float, float]:
    """The same where all of `count` units say `value`, so that resampling finds no width: Wilson's interval for zero
    successes bounds the share of units that would say something else, and those could say anything from `least` to
    `most`."""
    unseen = (Proportion(0, count).interval or (0.0, 1.0))[1]
    return value - unseen * (value - least), value + unseen * (most - value)


def adjust_p_values(ps: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjustment (Scand. J. Stat. 6, 1979): the probability that any entry of a table is below 0.05 by
    chance is at most 5 %."""
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def compute_noticeable(values: Sequence[float]) -> float | None:
    """The minimum detectable mean at 80 % power for this many tasks with the variance of `values`; null for fewer than
    two."""
    if len(values) < 2:
        return None
    return (Z_95 + NormalDist().inv_cdf(_POWER)) * stdev(values) / math.sqrt(len(values))


def compute_tail(count: int) -> float:
    """The tail probability of an expanded percentile interval for `count` values."""
    return NormalDist().cdf(-compute_t_95(count - 1) * math.sqrt(count / (count - 1)))


def _compute_signed_sums(values: Sequence[float]) -> list[float]:
    """The sums of the values over all sign assignments: 2 to the power of their number."""
    sums = [0.0]
    for value in values:
        sums = [each + sign * value for each in sums for sign in (1.0, -1.0)]
    return sums


# pass@k: the probability that at least one of k attempts at a task passes


def estimate_pass_at(k: int, attempts: int, passed: int) -> float:
    """The unbiased estimate of Chen et al. (arXiv 2107.03374): the share of all subsets of `k` attempts with at least
    one pass, 1 - C(n - c, k) / C(n, k). Raises ValueError with fewer than `k` attempts."""
    if not 1 <= k <= attempts:
        raise ValueError(f"pass@{k} cannot be estimated from {attempts} attempts")
    failed = attempts - passed
    return 1.0 - math.prod((failed - drawn) / (attempts - drawn) for drawn in range(k))


def list_reported_k(samples: int) -> tuple[int, ...]:
    """The reported values of k: 1, 2, 4 and so on, and the number of attempts per task."""
    return tuple(sorted({samples, *(2**power for power in range(samples.bit_length()))}))


# Attempts grouped by task


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
        return _average(self.rewards)

    @property
    def calibrated(self) -> float | None:
        return _average(attempt.calibrated for attempt in self.attempts)

    def count_passed(self, threshold: float) -> int:
        return sum(reward >= threshold for reward in self.rewards)

    def estimate_pass_at(self, k: int, threshold: float) -> float | None:
        """The task's pass@k; null with fewer than `k` scored attempts."""
        return estimate_pass_at(k, len(self.rewards), self.count_passed(threshold)) if len(self.rewards) >= k else None

    def compute_criterion_mean(self, name: str) -> float | None:
        """The mean of a criterion; null if it never applied."""
        return _average(attempt.criteria.get(name) for attempt in self.attempts)

    def compute_mean_if_unscored(self, reward: float) -> float:
        """The mean if every unscored attempt had this reward."""
        return fmean(reward if attempt.reward is None else attempt.reward for attempt in self.attempts)


def group_by_task(attempts: Iterable[Attempt]) -> tuple[TaskAttempts, ...]:
    """Groups attempts by task, in the order of the split."""
    by_task: dict[str, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda each: (each.place, each.sample)):
        by_task.setdefault(attempt.task_id, []).append(attempt)
    return tuple(
        TaskAttempts(task_id=task_id, place=each[0].place, label=each[0].label, attempts=tuple(each))
        for task_id, each in by_task.items()
    )


def _drop_missing(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _average(values: Iterable[float | None]) -> float | None:
    """The mean of those that there are."""
    known = _drop_missing(values)
    return fmean(known) if known else None


def list_criteria(evaluation: Evaluation) -> tuple[str, ...]:
    """The criteria that occur: those of the rubric in its order, then others."""
    seen = dict.fromkeys(name for attempt in evaluation.attempts for name in attempt.criteria)
    return tuple(dict.fromkeys([*(name for name in evaluation.setup.criteria if name in seen), *seen]))


def group_by_label(tasks: Sequence[TaskAttempts]) -> Mapping[str, tuple[TaskAttempts, ...]]:
    """Groups tasks by label, in alphabetical order; tasks without a label are left out."""
    labels = sorted({task.label for task in tasks if task.label is not None})
    return {label: tuple(task for task in tasks if task.label == label) for label in labels}


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
    line_seconds: Typical | None = None
    """Of one answer, which has the mean of its attempt, as (median, 95th percentile). So are the next two."""
    line_tokens: Typical | None = None
    prompt_tokens: Typical | None = None


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


# The report, built from the attempts

FEW_TASKS: Final = 30
"""With fewer tasks intervals are rough."""

_EXAMPLES: Final = 5


def build_report(evaluation: Evaluation, resampler: Resampler | None = None) -> EvaluationReport:
    setup, attempts = evaluation.setup, evaluation.attempts
    resampler = resampler or Resampler(setup.seed)
    tasks = group_by_task(attempts)
    means = _drop_missing(task.reward for task in tasks)
    alone = compute_noticeable(means)
    ordered = sorted(_select_scored(attempts), key=lambda each: (each.reward, each.place, each.sample))
    return EvaluationReport(
        setup=setup,
        finished_at=evaluation.finished_at,
        counts=_count_attempts(setup, tasks),
        cautions=collect_cautions(evaluation, tasks),
        mean=resampler.estimate(means),
        calibrated=resampler.estimate(_drop_missing(task.calibrated for task in tasks), LOWEST, HIGHEST),
        calibrated_tasks=resampler.estimate(
            _drop_missing(task.reward for task in tasks if task.calibrated is not None)
        ),
        if_unscored=_compute_bounds(tasks),
        noticeable=None if alone is None else alone * math.sqrt(2),
        passes=tuple(_build_pass_at(k, tasks, setup.threshold, resampler) for k in list_reported_k(setup.samples)),
        histogram=_build_histogram(tasks),
        criteria=tuple(_build_criterion_row(name, tasks, resampler) for name in list_criteria(evaluation)),
        labels=tuple(
            _build_label_row(name, some, setup.threshold, resampler) for name, some in group_by_label(tasks).items()
        ),
        flags=_build_flag_rows(attempts),
        unscored=_build_unscored_rows(attempts),
        lengths=_build_length_rows(attempts, setup.threshold),
        judges=tuple(list_judges(evaluation)),
        scoring_digests=list_scoring_digests(attempts),
        cost=_compute_cost(evaluation),
        tasks=tuple(_build_task_row(task, setup.threshold) for task in tasks),
        worst=_pick_examples(one for one in ordered if (one.reward or 0.0) < setup.threshold),
        best=_pick_examples(one for one in _sort_best_first(ordered) if one.reward),
    )


def list_scoring_digests(attempts: Iterable[Attempt]) -> tuple[str, ...]:
    return tuple(sorted({attempt.scoring_digest for attempt in attempts if attempt.scoring_digest}))


def list_judges(evaluation: Evaluation) -> list[str]:
    """Those that scored it, in alphabetical order."""
    return sorted({judge for attempt in evaluation.attempts for judge in attempt.judges})


def list_offline_judges(evaluation: Evaluation) -> tuple[str, ...]:
    """Of the judges that scored it, those that are only for trying the system."""
    return tuple(judge for judge in list_judges(evaluation) if judge in evaluation.setup.offline_judges)


def describe_offline_tasks(*evaluations: Evaluation) -> str:
    """How many tasks were scored by judges that are only for trying the system; empty for none."""
    attempts = [attempt for each in evaluations for attempt in each.attempts]
    judges = {judge for each in evaluations for judge in list_offline_judges(each)}
    judged = {attempt.task_id for attempt in attempts if judges.intersection(attempt.judges)}
    tasks = len({attempt.task_id for attempt in attempts})
    if not judged:
        return ""
    is_all = len(judged) == tasks
    begun = "Scored" if is_all else f"{len(judged):,} of {tasks:,} tasks were scored"
    return (
        f"{begun} by {', '.join(sorted(judges))}, which has no model and is only for trying the system: "
        f"{'these' if is_all else 'their'} figures say nothing about quality."
    )


def collect_cautions(evaluation: Evaluation, tasks: Sequence[TaskAttempts]) -> tuple[Caution, ...]:
    return tuple(_iter_cautions(evaluation, tasks))


def _iter_cautions(evaluation: Evaluation, tasks: Sequence[TaskAttempts]) -> Iterator[Caution]:
    setup, attempts = evaluation.setup, evaluation.attempts
    requested, unscored = setup.tasks * setup.samples, sum(attempt.reward is None for attempt in attempts)
    measured = len(_drop_missing(task.reward for task in tasks))
    if offline := describe_offline_tasks(evaluation):
        yield Caution(code="offline_judge", text=offline)
    if len(list_scoring_digests(attempts)) > 1:
        text = "The scoring changed during the evaluation: not all attempts were scored alike."
        yield Caution(code="scoring_changed", text=text)
    if len(attempts) < requested:
        begun = "Not finished" if evaluation.finished_at is None else "Incomplete"
        text = f"{begun}: {requested - len(attempts):,} of {requested:,} attempts are missing."
        yield Caution(code="incomplete", text=text)
    if unscored:
        text = f"{unscored:,} of {len(attempts):,} attempts have no score and are left out of every mean."
        yield Caution(code="unscored", text=text)
    if measured < FEW_TASKS:
        text = f"Only {measured} tasks with a score: intervals are rough, and small differences cannot be detected."
        yield Caution(code="few_tasks", text=text)


def _select_scored(attempts: Iterable[Attempt]) -> list[Attempt]:
    return [attempt for attempt in attempts if attempt.reward is not None]


def _count_attempts(setup: EvaluationSetup, tasks: Sequence[TaskAttempts]) -> Counts:
    made = sum(len(task.attempts) for task in tasks)
    scored = sum(len(task.rewards) for task in tasks)
    return Counts(
        tasks=len(tasks),
        asked=setup.tasks * setup.samples,
        made=made,
        scored=scored,
        unscored=made - scored,
        passed=sum(task.count_passed(setup.threshold) for task in tasks),
    )


def _compute_bounds(tasks: Sequence[TaskAttempts]) -> tuple[float, float] | None:
    if not tasks:
        return None
    return fmean(task.compute_mean_if_unscored(0.0) for task in tasks), fmean(
        task.compute_mean_if_unscored(1.0) for task in tasks
    )


def _build_pass_at(k: int, tasks: Sequence[TaskAttempts], threshold: float, resampler: Resampler) -> PassAt:
    rates = _drop_missing(task.estimate_pass_at(k, threshold) for task in tasks)
    return PassAt(k=k, rate=resampler.estimate(rates), left_out=len(tasks) - len(rates))


def _build_histogram(tasks: Sequence[TaskAttempts]) -> tuple[int, ...]:
    counted = Counter(int(reward * 10 + 1e-9) for task in tasks for reward in task.rewards)
    return tuple(counted[tenth] for tenth in range(11))


def _build_criterion_row(name: str, tasks: Sequence[TaskAttempts], resampler: Resampler) -> BreakdownRow:
    return BreakdownRow(
        name=name,
        attempts=sum(attempt.criteria.get(name) is not None for task in tasks for attempt in task.attempts),
        mean=resampler.estimate(_drop_missing(task.compute_criterion_mean(name) for task in tasks)),
    )


def _build_label_row(name: str, tasks: Sequence[TaskAttempts], threshold: float, resampler: Resampler) -> BreakdownRow:
    return BreakdownRow(
        name=name,
        attempts=sum(len(task.rewards) for task in tasks),
        mean=resampler.estimate(_drop_missing(task.reward for task in tasks)),
        passed=resampler.estimate(_drop_missing(task.estimate_pass_at(1, threshold) for task in tasks)),
    )


def _build_flag_rows(attempts: Sequence[Attempt]) -> tuple[FlagRow, ...]:
    """The commonest first."""
    rows = []
    for flag in sorted({flag for attempt in attempts for flag in attempt.flags}):
        having = [attempt for attempt in attempts if flag in attempt.flags]
        rows.append(
            FlagRow(
                flag=flag,
                attempts=len(having),
                tasks=len({attempt.task_id for attempt in having}),
                share=len(having) / len(attempts),
                mean=_average(attempt.reward for attempt in having),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.attempts))


def _build_unscored_rows(attempts: Sequence[Attempt]) -> tuple[UnscoredRow, ...]:
    """The commonest first."""
    rows = []
    for reason in sorted({attempt.reason for attempt in attempts if attempt.reason is not None}):
        having = [attempt for attempt in attempts if attempt.reason == reason]
        tasks = len({attempt.task_id for attempt in having})
        rows.append(UnscoredRow(reason=reason, attempts=len(having), tasks=tasks, detail=having[0].rationale))
    return tuple(sorted(rows, key=lambda row: -row.attempts))


def _build_length_rows(attempts: Sequence[Attempt], threshold: float) -> tuple[LengthRow, ...]:
    scored = _select_scored(attempts)
    kinds = {
        "all": scored,
        "passed": [attempt for attempt in scored if (attempt.reward or 0.0) >= threshold],
        "not passed": [attempt for attempt in scored if (attempt.reward or 0.0) < threshold],
    }
    return tuple(_build_length_row(name, some) for name, some in kinds.items() if some)


def _build_length_row(name: str, attempts: Sequence[Attempt]) -> LengthRow:
    ordered = sorted(attempt.characters for attempt in attempts)
    return LengthRow(
        name=name,
        attempts=len(attempts),
        lower=round(compute_quantile(ordered, 0.25)),
        median=round(compute_quantile(ordered, 0.5)),
        upper=round(compute_quantile(ordered, 0.75)),
        longest=ordered[-1],
        output_tokens=_average(attempt.output_tokens for attempt in attempts),
    )


def _compute_cost(evaluation: Evaluation) -> Cost:
    setup, attempts = evaluation.setup, evaluation.attempts
    put_in = [attempt.input_tokens for attempt in attempts if attempt.input_tokens is not None]
    came_out = [attempt.output_tokens for attempt in attempts if attempt.output_tokens is not None]
    seconds = _drop_missing(attempt.seconds for attempt in attempts)
    prices = setup.input_price is not None and setup.output_price is not None
    paid = sum(put_in) * (setup.input_price or 0.0) + sum(came_out) * (setup.output_price or 0.0)
    return Cost(
        input_tokens=sum(put_in) if put_in else None,
        output_tokens=sum(came_out) if came_out else None,
        uncounted=sum(attempt.output_tokens is None for attempt in attempts),
        model_usd=paid / 1e6 if prices and (put_in or came_out) else None,
        judging_usd=evaluation.judging_usd,
        seconds=math.fsum(seconds) if seconds else None,
        line_seconds=find_typical(_list_by_line(attempts, "seconds")),
        line_tokens=find_typical(_list_by_line(attempts, "output_tokens")),
        prompt_tokens=find_typical(_list_by_line(attempts, "input_tokens")),
    )


def _list_by_line(attempts: Sequence[Attempt], name: str) -> list[float]:
    values = ((getattr(attempt, name), attempt.turns) for attempt in attempts)
    return [value / max(turns, 1) for value, turns in values if value is not None]


def _build_task_row(task: TaskAttempts, threshold: float) -> TaskRow:
    return TaskRow(
        task_id=task.task_id,
        place=task.place,
        label=task.label,
        scored=len(task.rewards),
        passed=task.count_passed(threshold),
        reward=task.reward,
    )


def _sort_best_first(ordered: Sequence[Attempt]) -> list[Attempt]:
    return sorted(ordered, key=lambda each: -(each.reward or 0.0))


def _pick_examples(attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """The first few attempts, one per task."""
    chosen: dict[str, Attempt] = {}
    for attempt in attempts:
        if len(chosen) == _EXAMPLES:
            break
        chosen.setdefault(attempt.task_id, attempt)
    return tuple(chosen.values())


# The chart of a report


def draw_pass_at_curve(passes: Sequence[PassAt]) -> CurveChart | None:
    """pass@k over k on a logarithmic scale; None for a single k."""
    rates = [(each.k, each.rate) for each in passes if each.rate.value is not None]
    if len(rates) < 2:
        return None
    points = [CurvePoint(math.log2(k), rate.value, rate.low, rate.high) for k, rate in rates]
    form = ChartForm(
        floor=0.0,
        ceiling=1.0,
        from_floor=True,
        along="log2 k =",
        format_value=partial(format_number, digits=2),
        x_ticks=[(math.log2(k), str(k)) for k, _ in rates],
    )
    return draw_curves([Curve("pass@k", points)], form)
