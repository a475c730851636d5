"""Compares two evaluations task by task: the differences and their significance."""

import json
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Final, Literal

from app.domain.errors import InvalidRequest
from app.domain.values import FiniteNumber, Frozen
from app.evaluation.attempts import Evaluation, EvaluationSetup
from app.evaluation.by_task import TaskAttempts, group_by_label, group_by_task, list_criteria
from app.evaluation.pass_at_k import list_reported_k
from app.evaluation.report import Caution
from app.evaluation.report_builder import collect_cautions, list_scoring_digests
from app.evaluation.resampling import MeanEstimate, Resampler, adjust_p_values, compute_noticeable

Verdict = Literal["better", "worse", "undecided", "not comparable"]

SIGNIFICANT: Final = 0.05
MAX_CHANGES: Final = 10


class Obstacle(Frozen):
    """A setting that differs, so that the difference is not only due to the models."""

    what: str
    before: str
    after: str


class Difference(Frozen):
    """After minus before, over the tasks with a value in both."""

    name: str
    before: FiniteNumber
    after: FiniteNumber
    difference: MeanEstimate
    p: FiniteNumber
    """p-value of the sign-flip test."""
    adjusted_p: FiniteNumber
    """Holm-adjusted within its table."""


class TaskChange(Frozen):
    task_id: str
    place: int
    label: str | None
    before: FiniteNumber
    after: FiniteNumber


class Comparison(Frozen):
    kind: Literal["comparison"] = "comparison"
    schema_version: Literal[1] = 1
    before: EvaluationSetup
    after: EvaluationSetup
    verdict: Verdict
    """The second model against the first, by mean reward; `undecided` does not mean equal."""
    obstacles: tuple[Obstacle, ...]
    cautions: tuple[Caution, ...]
    tasks: int
    """Tasks with a score in both."""
    only_before: int
    only_after: int
    overall: Difference
    noticeable: FiniteNumber | None
    """The minimum detectable difference at 80 % power for these tasks and variances; null if there are too few tasks
    for any significant result."""
    passes: tuple[Difference, ...]
    criteria: tuple[Difference, ...]
    labels: tuple[Difference, ...]
    improved: int
    declined: int
    gained: tuple[TaskChange, ...]
    lost: tuple[TaskChange, ...]
    """The tasks whose mean changed most in either direction."""


def compare_evaluations(before: Evaluation, after: Evaluation, resampler: Resampler | None = None) -> Comparison:
    """Compares two evaluations. Raises InvalidRequest if they have no task in common."""
    return compare_with_changes(before, after, resampler)[0]


def compare_with_changes(
    before: Evaluation, after: Evaluation, resampler: Resampler | None = None
) -> tuple[Comparison, list[TaskChange]]:
    """Also lists every task with a score in both, those that gained most first."""
    resampler = resampler or Resampler(before.setup.seed)
    first, second = _index_scored(before), _index_scored(after)
    pairs = [(first[task_id], second[task_id]) for task_id in first if task_id in second]
    if not pairs:
        raise InvalidRequest(_explain_no_overlap(before.setup, after.setup))
    overall = _compute_difference("reward", pairs, lambda task: task.reward, resampler)
    obstacles = _find_obstacles(before, after)
    changes = sorted((_build_change(*pair) for pair in pairs), key=lambda each: each.before - each.after)
    comparison = Comparison(
        before=before.setup,
        after=after.setup,
        verdict="not comparable" if obstacles else _decide_verdict(overall),
        obstacles=obstacles,
        cautions=_collect_cautions(before, after),
        tasks=len(pairs),
        only_before=len(first) - len(pairs),
        only_after=len(second) - len(pairs),
        overall=overall,
        noticeable=_compute_noticeable(pairs),
        passes=_compare_passes(pairs, before.setup, after.setup, resampler),
        criteria=_compare_criteria(pairs, before, after, resampler),
        labels=_compare_labels(pairs, resampler),
        improved=sum(change.after > change.before for change in changes),
        declined=sum(change.after < change.before for change in changes),
        gained=tuple(change for change in changes[:MAX_CHANGES] if change.after > change.before),
        lost=tuple(change for change in reversed(changes[-MAX_CHANGES:]) if change.after < change.before),
    )
    return comparison, changes


def _index_scored(evaluation: Evaluation) -> dict[str, TaskAttempts]:
    return {task.task_id: task for task in group_by_task(evaluation.attempts) if task.reward is not None}


Pairs = Sequence[tuple[TaskAttempts, TaskAttempts]]
Value = Callable[[TaskAttempts], float | None]


def _compute_noticeable(pairs: Pairs) -> float | None:
    """None if even equal signs for all tasks, p = 2 / 2 ** tasks, would not be significant."""
    moved = [(two.reward or 0.0) - (one.reward or 0.0) for one, two in pairs]
    return compute_noticeable(moved) if 2.0 ** (1 - len(moved)) < SIGNIFICANT else None


def _compare_passes(
    pairs: Pairs, before: EvaluationSetup, after: EvaluationSetup, resampler: Resampler
) -> tuple[Difference, ...]:
    """Compares pass@k for every k that both have, with the threshold of the first."""
    shared = sorted({*list_reported_k(before.samples)} & {*list_reported_k(after.samples)})
    values: dict[str, Value] = {f"pass@{k}": _select_pass_at(k, before.threshold) for k in shared}
    return _compare_family({name: (pairs, value) for name, value in values.items()}, resampler)


def _select_pass_at(k: int, threshold: float) -> Value:
    return lambda task: task.estimate_pass_at(k, threshold)


def _compare_criteria(
    pairs: Pairs, before: Evaluation, after: Evaluation, resampler: Resampler
) -> tuple[Difference, ...]:
    shared = [name for name in list_criteria(before) if name in list_criteria(after)]
    return _compare_family({name: (pairs, _select_criterion(name)) for name in shared}, resampler)


def _select_criterion(criterion: str) -> Value:
    return lambda task: task.compute_criterion_mean(criterion)


def _compare_labels(pairs: Pairs, resampler: Resampler) -> tuple[Difference, ...]:
    after = {one.task_id: two for one, two in pairs}
    labels = group_by_label([one for one, _ in pairs])
    return _compare_family(
        {
            label: ([(one, after[one.task_id]) for one in some], lambda task: task.reward)
            for label, some in labels.items()
        },
        resampler,
    )


def _compare_family(table: Mapping[str, tuple[Pairs, Value]], resampler: Resampler) -> tuple[Difference, ...]:
    """One table of differences with adjusted p-values. Rows without a task that has a value in both are left out."""
    found = [
        _compute_difference(name, pairs, value, resampler)
        for name, (pairs, value) in table.items()
        if any(value(one) is not None and value(two) is not None for one, two in pairs)
    ]
    ps = adjust_p_values([each.p for each in found])
    return tuple(each.model_copy(update={"adjusted_p": p}) for each, p in zip(found, ps, strict=True))


def _compute_difference(name: str, pairs: Pairs, value: Value, resampler: Resampler) -> Difference:
    valued = [(value(one), value(two)) for one, two in pairs]
    both = [(one, two) for one, two in valued if one is not None and two is not None]
    moved = [two - one for one, two in both]
    p = resampler.compute_sign_flip_p(moved)
    return Difference(
        name=name,
        before=fmean(one for one, _ in both),
        after=fmean(two for _, two in both),
        difference=resampler.estimate(moved, least=-1.0),
        p=p,
        adjusted_p=p,
    )


def _build_change(one: TaskAttempts, two: TaskAttempts) -> TaskChange:
    return TaskChange(
        task_id=one.task_id, place=one.place, label=one.label, before=one.reward or 0.0, after=two.reward or 0.0
    )


def _decide_verdict(overall: Difference) -> Verdict:
    if overall.p >= SIGNIFICANT:
        return "undecided"
    return "better" if overall.after > overall.before else "worse"


def _find_obstacles(before: Evaluation, after: Evaluation) -> tuple[Obstacle, ...]:
    """Equal task ids already imply an equal environment, version, data, split and params. If all answers of one model
    failed a gate it has no judges; that is no obstacle."""
    read = _list_judges(before) or _list_judges(after)
    told = {
        "rule of scoring": (", ".join(list_scoring_digests(each.attempts)) for each in (before, after)),
        "judges": (", ".join(_list_judges(each) or read) for each in (before, after)),
        "threshold of a pass": (f"{each.setup.threshold:g}" for each in (before, after)),
    }
    return tuple(Obstacle(what=what, before=one, after=two) for what, (one, two) in told.items() if one != two)


def _list_judges(evaluation: Evaluation) -> list[str]:
    return sorted({judge for attempt in evaluation.attempts for judge in attempt.judges})


def _collect_cautions(before: Evaluation, after: Evaluation) -> tuple[Caution, ...]:
    """The cautions of each evaluation and those of the pair."""
    found = [
        Caution(code=caution.code, text=f"{which}: {caution.text}")
        for which, each in (("Before", before), ("After", after))
        for caution in collect_cautions(each, group_by_task(each.attempts))
    ]
    one, two = before.setup, after.setup
    if one.samples != two.samples:
        text = f"{one.samples} attempts at each task before, {two.samples} after: only k that both have are compared."
        found.append(Caution(code="samples", text=text))
    if one.sampling != two.sampling:
        text = "The two were sampled with different settings, which contribute to the difference."
        found.append(Caution(code="sampling", text=text))
    return tuple(found)


def _explain_no_overlap(before: EvaluationSetup, after: EvaluationSetup) -> str:
    told = {
        "environment": (before.environment, after.environment),
        "version": (before.version, after.version),
        "split": (before.split, after.split),
        "params": (json.dumps(before.params, sort_keys=True), json.dumps(after.params, sort_keys=True)),
        "first task": (str(before.first), str(after.first)),
    }
    apart = [f"{what} {one} and {two}" for what, (one, two) in told.items() if one != two]
    why = (
        ": " + ", ".join(apart) if apart else ", although both have the same setup: the environment's data has changed"
    )
    return f"these evaluations have no scored task in common{why}"
