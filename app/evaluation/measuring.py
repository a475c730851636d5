"""Builds the report of an evaluation from its attempts."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from app.evaluation.attempts import Attempt, Evaluation, EvaluationSetup
from app.evaluation.by_task import Tried, by_label, criteria_in, known, tried
from app.evaluation.passing import rungs
from app.evaluation.report import (
    Caution,
    Cost,
    Counts,
    FlagRow,
    LengthRow,
    PassAt,
    Report,
    Row,
    TaskRow,
    UnscoredRow,
)
from app.evaluation.resampling import Resampler, noticeable, quantile

FEW_TASKS: Final = 30
"""With fewer tasks intervals are rough."""

EXAMPLES: Final = 5


def report_of(evaluation: Evaluation, resampler: Resampler | None = None) -> Report:
    setup, attempts = evaluation.setup, evaluation.attempts
    resampler = resampler or Resampler(setup.seed)
    tasks = tried(attempts)
    means = known(task.reward for task in tasks)
    alone = noticeable(means)
    ordered = sorted(_scored(attempts), key=lambda each: (each.reward, each.place, each.sample))
    return Report(
        setup=setup,
        finished_at=evaluation.finished_at,
        counts=_counts(setup, tasks),
        cautions=cautions(evaluation, tasks),
        mean=resampler.estimate(means),
        if_unscored=_if_unscored(tasks),
        noticeable=None if alone is None else alone * math.sqrt(2),
        passes=tuple(_pass_at(k, tasks, setup.threshold, resampler) for k in rungs(setup.samples)),
        histogram=_histogram(tasks),
        criteria=tuple(_criterion(name, tasks, resampler) for name in criteria_in(evaluation)),
        labels=tuple(_label(name, some, setup.threshold, resampler) for name, some in by_label(tasks).items()),
        flags=_flags(attempts),
        unscored=_unscored(attempts),
        lengths=_lengths(attempts, setup.threshold),
        judges=tuple(sorted({judge for attempt in attempts for judge in attempt.judges})),
        scoring_digests=scoring_digests(attempts),
        cost=_cost(evaluation),
        tasks=tuple(_task(task, setup.threshold) for task in tasks),
        worst=_examples(one for one in ordered if (one.reward or 0.0) < setup.threshold),
        best=_examples(one for one in _best_first(ordered) if one.reward),
    )


def scoring_digests(attempts: Iterable[Attempt]) -> tuple[str, ...]:
    return tuple(sorted({attempt.scoring_digest for attempt in attempts if attempt.scoring_digest}))


def cautions(evaluation: Evaluation, tasks: Sequence[Tried]) -> tuple[Caution, ...]:
    setup, attempts = evaluation.setup, evaluation.attempts
    offline = sorted({judge for attempt in attempts for judge in attempt.judges} & set(setup.offline_judges))
    asked, unscored = setup.tasks * setup.samples, sum(attempt.reward is None for attempt in attempts)
    measured = len(known(task.reward for task in tasks))
    found = []
    if offline:
        text = "has no model and is only for trying the system: these figures say nothing about quality."
        found.append(Caution(code="offline_judge", text=f"Scored by {', '.join(offline)}, which {text}"))
    if len(scoring_digests(attempts)) > 1:
        text = "The scoring changed during the evaluation: not all attempts were scored alike."
        found.append(Caution(code="scoring_changed", text=text))
    if len(attempts) < asked:
        begun = "Not finished" if evaluation.finished_at is None else "Incomplete"
        text = f"{begun}: {asked - len(attempts):,} of {asked:,} attempts are missing."
        found.append(Caution(code="incomplete", text=text))
    if unscored:
        text = f"{unscored:,} of {len(attempts):,} attempts have no score and are left out of every mean."
        found.append(Caution(code="unscored", text=text))
    if measured < FEW_TASKS:
        text = f"Only {measured} tasks with a score: intervals are rough, and small differences cannot be detected."
        found.append(Caution(code="few_tasks", text=text))
    return tuple(found)


def _scored(attempts: Iterable[Attempt]) -> list[Attempt]:
    return [attempt for attempt in attempts if attempt.reward is not None]


def _counts(setup: EvaluationSetup, tasks: Sequence[Tried]) -> Counts:
    made = sum(len(task.attempts) for task in tasks)
    scored = sum(len(task.rewards) for task in tasks)
    return Counts(
        tasks=len(tasks),
        asked=setup.tasks * setup.samples,
        made=made,
        scored=scored,
        unscored=made - scored,
        passed=sum(task.passed(setup.threshold) for task in tasks),
    )


def _if_unscored(tasks: Sequence[Tried]) -> tuple[float, float] | None:
    if not tasks:
        return None
    return fmean(task.where_unscored(0.0) for task in tasks), fmean(task.where_unscored(1.0) for task in tasks)


def _pass_at(k: int, tasks: Sequence[Tried], threshold: float, resampler: Resampler) -> PassAt:
    rates = known(task.pass_at(k, threshold) for task in tasks)
    return PassAt(k=k, rate=resampler.estimate(rates), left_out=len(tasks) - len(rates))


def _histogram(tasks: Sequence[Tried]) -> tuple[int, ...]:
    counted = Counter(int(reward * 10 + 1e-9) for task in tasks for reward in task.rewards)
    return tuple(counted[tenth] for tenth in range(11))


def _criterion(name: str, tasks: Sequence[Tried], resampler: Resampler) -> Row:
    return Row(
        name=name,
        attempts=sum(attempt.criteria.get(name) is not None for task in tasks for attempt in task.attempts),
        mean=resampler.estimate(known(task.criterion(name) for task in tasks)),
    )


def _label(name: str, tasks: Sequence[Tried], threshold: float, resampler: Resampler) -> Row:
    return Row(
        name=name,
        attempts=sum(len(task.rewards) for task in tasks),
        mean=resampler.estimate(known(task.reward for task in tasks)),
        passed=resampler.estimate(known(task.pass_at(1, threshold) for task in tasks)),
    )


def _flags(attempts: Sequence[Attempt]) -> tuple[FlagRow, ...]:
    """The commonest first."""
    rows = []
    for flag in sorted({flag for attempt in attempts for flag in attempt.flags}):
        having = [attempt for attempt in attempts if flag in attempt.flags]
        rewards = known(attempt.reward for attempt in having)
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


def _unscored(attempts: Sequence[Attempt]) -> tuple[UnscoredRow, ...]:
    """The commonest first."""
    rows = []
    for reason in sorted({attempt.reason for attempt in attempts if attempt.reason is not None}):
        having = [attempt for attempt in attempts if attempt.reason == reason]
        tasks = len({attempt.task_id for attempt in having})
        rows.append(UnscoredRow(reason=reason, attempts=len(having), tasks=tasks, detail=having[0].rationale))
    return tuple(sorted(rows, key=lambda row: -row.attempts))


def _lengths(attempts: Sequence[Attempt], threshold: float) -> tuple[LengthRow, ...]:
    scored = _scored(attempts)
    kinds = {
        "all": scored,
        "passed": [attempt for attempt in scored if (attempt.reward or 0.0) >= threshold],
        "not passed": [attempt for attempt in scored if (attempt.reward or 0.0) < threshold],
    }
    return tuple(_length(name, some) for name, some in kinds.items() if some)


def _length(name: str, attempts: Sequence[Attempt]) -> LengthRow:
    ordered = sorted(attempt.characters for attempt in attempts)
    counted = known(attempt.output_tokens for attempt in attempts)
    return LengthRow(
        name=name,
        attempts=len(attempts),
        lower=round(quantile(ordered, 0.25)),
        median=round(quantile(ordered, 0.5)),
        upper=round(quantile(ordered, 0.75)),
        longest=ordered[-1],
        output_tokens=fmean(counted) if counted else None,
    )


def _cost(evaluation: Evaluation) -> Cost:
    setup, attempts = evaluation.setup, evaluation.attempts
    put_in = [attempt.input_tokens for attempt in attempts if attempt.input_tokens is not None]
    came_out = [attempt.output_tokens for attempt in attempts if attempt.output_tokens is not None]
    seconds = known(attempt.seconds for attempt in attempts)
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


def _task(task: Tried, threshold: float) -> TaskRow:
    return TaskRow(
        task_id=task.task_id,
        place=task.place,
        label=task.label,
        scored=len(task.rewards),
        passed=task.passed(threshold),
        reward=task.reward,
    )


def _best_first(ordered: Sequence[Attempt]) -> list[Attempt]:
    return sorted(ordered, key=lambda each: -(each.reward or 0.0))


def _examples(attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """The first few attempts, one per task."""
    chosen: dict[str, Attempt] = {}
    for attempt in attempts:
        if len(chosen) == EXAMPLES:
            break
        chosen.setdefault(attempt.task_id, attempt)
    return tuple(chosen.values())
