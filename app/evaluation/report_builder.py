"""Builds the report of an evaluation from its attempts."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Final

from app.domain.calibration import HIGHEST, LOWEST
from app.evaluation.attempts import Attempt, Evaluation, EvaluationSetup
from app.evaluation.by_task import TaskAttempts, drop_missing, group_by_label, group_by_task, list_criteria
from app.evaluation.pass_at_k import list_reported_k
from app.evaluation.report import (
    BreakdownRow,
    Caution,
    Cost,
    Counts,
    EvaluationReport,
    FlagRow,
    LengthRow,
    PassAt,
    TaskRow,
    UnscoredRow,
)
from app.evaluation.resampling import Resampler, compute_noticeable, compute_quantile

FEW_TASKS: Final = 30
"""With fewer tasks intervals are rough."""

OFFLINE_MEANING: Final = "has no model and is only for trying the system: these figures say nothing about quality."
EXAMPLES: Final = 5


def build_report(evaluation: Evaluation, resampler: Resampler | None = None) -> EvaluationReport:
    setup, attempts = evaluation.setup, evaluation.attempts
    resampler = resampler or Resampler(setup.seed)
    tasks = group_by_task(attempts)
    means = drop_missing(task.reward for task in tasks)
    alone = compute_noticeable(means)
    ordered = sorted(_select_scored(attempts), key=lambda each: (each.reward, each.place, each.sample))
    return EvaluationReport(
        setup=setup,
        finished_at=evaluation.finished_at,
        counts=_count_attempts(setup, tasks),
        cautions=collect_cautions(evaluation, tasks),
        mean=resampler.estimate(means),
        calibrated=resampler.estimate(drop_missing(task.calibrated for task in tasks), LOWEST, HIGHEST),
        calibrated_tasks=resampler.estimate(drop_missing(task.reward for task in tasks if task.calibrated is not None)),
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
        judges=tuple(sorted({judge for attempt in attempts for judge in attempt.judges})),
        scoring_digests=list_scoring_digests(attempts),
        cost=_compute_cost(evaluation),
        tasks=tuple(_build_task_row(task, setup.threshold) for task in tasks),
        worst=_pick_examples(one for one in ordered if (one.reward or 0.0) < setup.threshold),
        best=_pick_examples(one for one in _sort_best_first(ordered) if one.reward),
    )


def list_scoring_digests(attempts: Iterable[Attempt]) -> tuple[str, ...]:
    return tuple(sorted({attempt.scoring_digest for attempt in attempts if attempt.scoring_digest}))


def list_offline_judges(evaluation: Evaluation) -> tuple[str, ...]:
    """Of the judges that scored it, those that are only for trying the system."""
    used = {judge for attempt in evaluation.attempts for judge in attempt.judges}
    return tuple(sorted(used & set(evaluation.setup.offline_judges)))


def collect_cautions(evaluation: Evaluation, tasks: Sequence[TaskAttempts]) -> tuple[Caution, ...]:
    return tuple(_iter_cautions(evaluation, tasks))


def _iter_cautions(evaluation: Evaluation, tasks: Sequence[TaskAttempts]) -> Iterator[Caution]:
    setup, attempts = evaluation.setup, evaluation.attempts
    asked, unscored = setup.tasks * setup.samples, sum(attempt.reward is None for attempt in attempts)
    measured = len(drop_missing(task.reward for task in tasks))
    if offline := list_offline_judges(evaluation):
        yield Caution(code="offline_judge", text=f"Scored by {', '.join(offline)}, which {OFFLINE_MEANING}")
    if len(list_scoring_digests(attempts)) > 1:
        text = "The scoring changed during the evaluation: not all attempts were scored alike."
        yield Caution(code="scoring_changed", text=text)
    if len(attempts) < asked:
        begun = "Not finished" if evaluation.finished_at is None else "Incomplete"
        text = f"{begun}: {asked - len(attempts):,} of {asked:,} attempts are missing."
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
    rates = drop_missing(task.estimate_pass_at(k, threshold) for task in tasks)
    return PassAt(k=k, rate=resampler.estimate(rates), left_out=len(tasks) - len(rates))


def _build_histogram(tasks: Sequence[TaskAttempts]) -> tuple[int, ...]:
    counted = Counter(int(reward * 10 + 1e-9) for task in tasks for reward in task.rewards)
    return tuple(counted[tenth] for tenth in range(11))


def _build_criterion_row(name: str, tasks: Sequence[TaskAttempts], resampler: Resampler) -> BreakdownRow:
    return BreakdownRow(
        name=name,
        attempts=sum(attempt.criteria.get(name) is not None for task in tasks for attempt in task.attempts),
        mean=resampler.estimate(drop_missing(task.compute_criterion_mean(name) for task in tasks)),
    )


def _build_label_row(name: str, tasks: Sequence[TaskAttempts], threshold: float, resampler: Resampler) -> BreakdownRow:
    return BreakdownRow(
        name=name,
        attempts=sum(len(task.rewards) for task in tasks),
        mean=resampler.estimate(drop_missing(task.reward for task in tasks)),
        passed=resampler.estimate(drop_missing(task.estimate_pass_at(1, threshold) for task in tasks)),
    )


def _build_flag_rows(attempts: Sequence[Attempt]) -> tuple[FlagRow, ...]:
    """The commonest first."""
    rows = []
    for flag in sorted({flag for attempt in attempts for flag in attempt.flags}):
        having = [attempt for attempt in attempts if flag in attempt.flags]
        rewards = drop_missing(attempt.reward for attempt in having)
        rows.append(
            FlagRow(
                flag=flag,
                attempts=len(having),
                tasks=len({attempt.task_id for attempt in having}),
                share=len(having) / len(attempts),
                mean=fmean(rewards) if rewards else None,
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
    counted = drop_missing(attempt.output_tokens for attempt in attempts)
    return LengthRow(
        name=name,
        attempts=len(attempts),
        lower=round(compute_quantile(ordered, 0.25)),
        median=round(compute_quantile(ordered, 0.5)),
        upper=round(compute_quantile(ordered, 0.75)),
        longest=ordered[-1],
        output_tokens=fmean(counted) if counted else None,
    )


def _compute_cost(evaluation: Evaluation) -> Cost:
    setup, attempts = evaluation.setup, evaluation.attempts
    put_in = [attempt.input_tokens for attempt in attempts if attempt.input_tokens is not None]
    came_out = [attempt.output_tokens for attempt in attempts if attempt.output_tokens is not None]
    seconds = drop_missing(attempt.seconds for attempt in attempts)
    prices = setup.input_price is not None and setup.output_price is not None
    paid = sum(put_in) * (setup.input_price or 0.0) + sum(came_out) * (setup.output_price or 0.0)
    return Cost(
        input_tokens=sum(put_in) if put_in else None,
        output_tokens=sum(came_out) if came_out else None,
        uncounted=sum(attempt.output_tokens is None for attempt in attempts),
        model_usd=paid / 1e6 if prices and (put_in or came_out) else None,
        judging_usd=evaluation.judging_usd,
        seconds=math.fsum(seconds) if seconds else None,
    )


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
        if len(chosen) == EXAMPLES:
            break
        chosen.setdefault(attempt.task_id, attempt)
    return tuple(chosen.values())
