"""Comparisons: two evaluations task by task, one scoring with another, and the pages of all reports.

Differences are taken within tasks that have a score in both, which cancels how hard each task is. Tables of several
differences have adjusted p-values. Settings that differ are obstacles: then no verdict is given.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Final, Literal
from urllib.parse import urlencode

from markupsafe import Markup

from app.domain.errors import InvalidRequest
from app.domain.values import FiniteNumber, Frozen, canonical_json
from app.evaluation.agreement import FEWEST_FOR_CORRELATION, compute_correlation
from app.evaluation.duels import TournamentReport
from app.evaluation.graders import GraderReport
from app.evaluation.report import (
    Caution,
    Evaluation,
    EvaluationReport,
    EvaluationSetup,
    MeanEstimate,
    Resampler,
    TaskAttempts,
    adjust_p_values,
    collect_cautions,
    compute_noticeable,
    draw_pass_at_curve,
    group_by_label,
    group_by_task,
    list_criteria,
    list_judges,
    list_reported_k,
    list_scoring_digests,
)
from app.toolkit.charts import (
    CHART_STYLE,
    UNIT,
    Scale,
    build_reward_histogram,
    fit_around_zero,
    open_page_templates,
)
from app.toolkit.conformance.probes import STRATEGIES
from app.toolkit.texts import PALETTE, cut_excerpt

Verdict = Literal["better", "worse", "undecided", "not comparable"]

_SIGNIFICANT: Final = 0.05
FEWEST_TASKS: Final = 6
"""With fewer, p is not below .05 even where all tasks moved one way (2 / 2 ** 5 = .06)."""
_MAX_CHANGES: Final = 10


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
    """Without an interval under FEWEST_TASKS."""
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
        gained=tuple(change for change in changes[:_MAX_CHANGES] if change.after > change.before),
        lost=tuple(change for change in reversed(changes[-_MAX_CHANGES:]) if change.after < change.before),
    )
    return comparison, changes


def _index_scored(evaluation: Evaluation) -> dict[str, TaskAttempts]:
    return {task.task_id: task for task in group_by_task(evaluation.attempts) if task.reward is not None}


_Pairs = Sequence[tuple[TaskAttempts, TaskAttempts]]
_Value = Callable[[TaskAttempts], float | None]


def _compute_noticeable(pairs: _Pairs) -> float | None:
    moved = [(two.reward or 0.0) - (one.reward or 0.0) for one, two in pairs]
    return compute_noticeable(moved) if len(moved) >= FEWEST_TASKS else None


def _compare_passes(
    pairs: _Pairs, before: EvaluationSetup, after: EvaluationSetup, resampler: Resampler
) -> tuple[Difference, ...]:
    """Compares pass@k for every k that both have, with the threshold of the first."""
    shared = sorted({*list_reported_k(before.samples)} & {*list_reported_k(after.samples)})
    values: dict[str, _Value] = {f"pass@{k}": _select_pass_at(k, before.threshold) for k in shared}
    return _compare_family({name: (pairs, value) for name, value in values.items()}, resampler)


def _select_pass_at(k: int, threshold: float) -> _Value:
    return lambda task: task.estimate_pass_at(k, threshold)


def _compare_criteria(
    pairs: _Pairs, before: Evaluation, after: Evaluation, resampler: Resampler
) -> tuple[Difference, ...]:
    shared = [name for name in list_criteria(before) if name in list_criteria(after)]
    return _compare_family({name: (pairs, _select_criterion(name)) for name in shared}, resampler)


def _select_criterion(criterion: str) -> _Value:
    return lambda task: task.compute_criterion_mean(criterion)


def _compare_labels(pairs: _Pairs, resampler: Resampler) -> tuple[Difference, ...]:
    after = {one.task_id: two for one, two in pairs}
    labels = group_by_label([one for one, _ in pairs])
    return _compare_family(
        {
            label: ([(one, after[one.task_id]) for one in some], lambda task: task.reward)
            for label, some in labels.items()
        },
        resampler,
    )


def _compare_family(table: Mapping[str, tuple[_Pairs, _Value]], resampler: Resampler) -> tuple[Difference, ...]:
    """One table of differences with adjusted p-values. Rows without a task that has a value in both are left out."""
    differences = [
        _compute_difference(name, pairs, value, resampler)
        for name, (pairs, value) in table.items()
        if any(value(one) is not None and value(two) is not None for one, two in pairs)
    ]
    ps = adjust_p_values([each.p for each in differences])
    return tuple(each.model_copy(update={"adjusted_p": p}) for each, p in zip(differences, ps, strict=True))


def _compute_difference(name: str, pairs: _Pairs, value: _Value, resampler: Resampler) -> Difference:
    valued = [(value(one), value(two)) for one, two in pairs]
    both = [(one, two) for one, two in valued if one is not None and two is not None]
    moved = [two - one for one, two in both]
    p = resampler.compute_sign_flip_p(moved)
    return Difference(
        name=name,
        before=fmean(one for one, _ in both),
        after=fmean(two for _, two in both),
        difference=_estimate_change(moved, resampler),
        p=p,
        adjusted_p=p,
    )


def _estimate_change(moved: Sequence[float], resampler: Resampler) -> MeanEstimate:
    """An interval of two or three tasks would be as narrow as these happen to agree."""
    if len(moved) < FEWEST_TASKS:
        return MeanEstimate(value=fmean(moved), tasks=len(moved))
    return resampler.estimate(moved, least=-1.0)


def _build_change(one: TaskAttempts, two: TaskAttempts) -> TaskChange:
    return TaskChange(
        task_id=one.task_id, place=one.place, label=one.label, before=one.reward or 0.0, after=two.reward or 0.0
    )


def _decide_verdict(overall: Difference) -> Verdict:
    if overall.p >= _SIGNIFICANT:
        return "undecided"
    return "better" if overall.after > overall.before else "worse"


def _find_obstacles(before: Evaluation, after: Evaluation) -> tuple[Obstacle, ...]:
    """Equal task ids already imply an equal environment, version, data, split and params. If all answers of one model
    failed a gate it has no judges; that is no obstacle."""
    judges = list_judges(before) or list_judges(after)
    settings = {
        "rule of scoring": (", ".join(list_scoring_digests(each.attempts)) for each in (before, after)),
        "judges": (", ".join(list_judges(each) or judges) for each in (before, after)),
        "threshold of a pass": (f"{each.setup.threshold:g}" for each in (before, after)),
    }
    return tuple(Obstacle(what=what, before=one, after=two) for what, (one, two) in settings.items() if one != two)


def _collect_cautions(before: Evaluation, after: Evaluation) -> tuple[Caution, ...]:
    """The cautions of each evaluation and those of the pair."""
    cautions = [
        Caution(code=caution.code, text=f"{which}: {caution.text}")
        for which, each in (("Before", before), ("After", after))
        for caution in collect_cautions(each, group_by_task(each.attempts))
    ]
    one, two = before.setup, after.setup
    if one.samples != two.samples:
        text = f"{one.samples} attempts at each task before, {two.samples} after: only k that both have are compared."
        cautions.append(Caution(code="samples", text=text))
    if one.sampling != two.sampling:
        text = "The two were sampled with different settings, which contribute to the difference."
        cautions.append(Caution(code="sampling", text=text))
    return tuple(cautions)


def _explain_no_overlap(before: EvaluationSetup, after: EvaluationSetup) -> str:
    settings = {
        "environment": (before.environment, after.environment),
        "version": (before.version, after.version),
        "split": (before.split, after.split),
        "params": (json.dumps(before.params, sort_keys=True), json.dumps(after.params, sort_keys=True)),
        "first task": (str(before.first), str(after.first)),
    }
    apart = [f"{what} {one} and {two}" for what, (one, two) in settings.items() if one != two]
    why = (
        ": " + ", ".join(apart) if apart else ", although both have the same setup: the environment's data has changed"
    )
    return f"these evaluations have no scored task in common{why}"


# What another rule changes about groups that were scored: pairs, best replies and signs of advantages that flip

RESAMPLES: Final = 1_000
MOST_STEP_ROWS: Final = 12
"""More policy steps than that are put together into so many ranges of about as many groups."""
_SAME: Final = 1e-9

Rewards = Sequence[float | None]
"""Rewards of one group, in the order of its completions; None for a missing reward."""


@dataclass(frozen=True)
class RescoredGroup:
    group_id: str
    original: tuple[float | None, ...]
    rescored: tuple[float | None, ...]
    label: str | None = None
    step: int | None = None


class GroupFlips(Frozen):
    """What flipped in one group. Completions are named by their places in it."""

    group_id: str
    label: str | None
    step: int | None
    pairs: tuple[tuple[int, int], ...]
    """The first was better and is worse now."""
    best: tuple[tuple[int, ...], tuple[int, ...]] | None
    """The best before and now, where none is among both."""
    signs: tuple[int, ...]
    """Completions that were above the group's mean and are below it now, or the other way round."""


class FlipFigures(Frozen):
    """Figures over groups with two completions or more that have both rewards. Groups weigh the same, and are what the
    95 % intervals resample."""

    name: str
    groups: int
    pairs: int
    """With different rewards before."""
    pairs_flipped: int
    pairs_tied: int
    """With equal rewards now."""
    flipped_share: MeanEstimate
    """Of a group's pairs that differed before, those in the other order now."""
    best_changed: MeanEstimate
    """Share of the groups in which no reply is best in both."""
    signs_flipped: MeanEstimate
    """Of a group's completions off the mean before, those on its other side now."""
    mean_shift: MeanEstimate
    """A group's mean reward now, minus the one before."""
    rank_correlation: MeanEstimate
    """Spearman's, within groups of three or more with different rewards before; 0 where all are equal now."""


class FlipReport(Frozen):
    completions: int
    """With both rewards."""
    spearman: FiniteNumber | None
    """Of the rewards of all groups together; null where all are equal in one of the scorings."""
    mean_difference: FiniteNumber | None
    """Mean absolute difference of rewards."""
    overall: FlipFigures
    labels: tuple[FlipFigures, ...]
    """By label, such as the character."""
    steps: tuple[FlipFigures, ...]
    """By policy step, or by ranges of steps where there are many."""
    flips: tuple[GroupFlips, ...]
    """Groups in which anything flipped."""


@dataclass(frozen=True)
class _Pairing:
    """The completions of a group that have both rewards."""

    group: RescoredGroup
    places: tuple[int, ...]
    before: tuple[float, ...]
    now: tuple[float, ...]

    @property
    def differing(self) -> list[tuple[int, int]]:
        """Indexes of pairs that differed before, the better one first."""
        pairs = combinations(range(len(self.places)), 2)
        ordered = ((a, b) if self.before[a] > self.before[b] else (b, a) for a, b in pairs)
        return [(a, b) for a, b in ordered if self.before[a] - self.before[b] > _SAME]

    @property
    def flipped(self) -> list[tuple[int, int]]:
        return [(a, b) for a, b in self.differing if self.now[b] - self.now[a] > _SAME]

    @property
    def tied(self) -> int:
        return sum(abs(self.now[a] - self.now[b]) <= _SAME for a, b in self.differing)

    @property
    def best(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return _find_best(self.before), _find_best(self.now)

    @property
    def best_changed(self) -> bool:
        before, now = self.best
        return set(before).isdisjoint(now)

    @property
    def signs(self) -> list[tuple[int, int]]:
        """Of the advantages before and now."""
        return list(zip(_list_signs(self.before), _list_signs(self.now), strict=True))


def report_flips(groups: Iterable[RescoredGroup], seed: int = 0) -> FlipReport:
    paired = [_pair_rewards(group) for group in groups]
    before = [reward for one in paired for reward in one.before]
    now = [reward for one in paired for reward in one.now]
    comparable = [one for one in paired if len(one.places) > 1]
    resampler = Resampler(seed, RESAMPLES)
    by_label: defaultdict[str, list[_Pairing]] = defaultdict(list)
    for one in comparable:
        if one.group.label is not None:
            by_label[one.group.label].append(one)
    return FlipReport(
        completions=len(before),
        spearman=_compute_spearman(before, now) if len(before) > 1 and _differ(before) and _differ(now) else None,
        mean_difference=fmean(abs(a - b) for a, b in zip(before, now, strict=True)) if before else None,
        overall=_build_figures("all", comparable, resampler),
        labels=tuple(_build_figures(label, by_label[label], resampler) for label in sorted(by_label)),
        steps=tuple(_build_figures(name, some, resampler) for name, some in _split_by_step(comparable)),
        flips=tuple(flips for one in comparable if (flips := _find_flips(one)) is not None),
    )


def _pair_rewards(group: RescoredGroup) -> _Pairing:
    both = [
        (place, before, now)
        for place, (before, now) in enumerate(zip(group.original, group.rescored, strict=True))
        if before is not None and now is not None
    ]
    return (
        _Pairing(group, *(tuple(column) for column in zip(*both, strict=True))) if both else _Pairing(group, (), (), ())
    )


def _build_figures(name: str, groups: Sequence[_Pairing], resampler: Resampler) -> FlipFigures:
    compared = [one for one in groups if one.differing]
    moved = [[now == -before for before, now in one.signs if before] for one in groups]
    ranked = [one for one in groups if len(one.places) >= FEWEST_FOR_CORRELATION and _differ(one.before)]
    return FlipFigures(
        name=name,
        groups=len(groups),
        pairs=sum(len(one.differing) for one in groups),
        pairs_flipped=sum(len(one.flipped) for one in groups),
        pairs_tied=sum(one.tied for one in groups),
        flipped_share=resampler.estimate([len(one.flipped) / len(one.differing) for one in compared]),
        best_changed=resampler.estimate([float(one.best_changed) for one in groups]),
        signs_flipped=resampler.estimate([fmean(flipped) for flipped in moved if flipped]),
        mean_shift=resampler.estimate([fmean(one.now) - fmean(one.before) for one in groups], least=-1.0),
        rank_correlation=resampler.estimate([_compute_spearman(one.before, one.now) for one in ranked], least=-1.0),
    )


def _find_flips(one: _Pairing) -> GroupFlips | None:
    signs = tuple(place for place, (before, now) in zip(one.places, one.signs, strict=True) if before * now < 0)
    pairs = tuple((one.places[a], one.places[b]) for a, b in one.flipped)
    if not (pairs or signs or one.best_changed):
        return None
    before, now = (tuple(one.places[at] for at in best) for best in one.best)
    best = (before, now) if one.best_changed else None
    group = one.group
    return GroupFlips(group_id=group.group_id, label=group.label, step=group.step, pairs=pairs, best=best, signs=signs)


def _split_by_step(groups: Sequence[_Pairing]) -> list[tuple[str, list[_Pairing]]]:
    by_step: defaultdict[int, list[_Pairing]] = defaultdict(list)
    for one in groups:
        if one.group.step is not None:
            by_step[one.group.step].append(one)
    total = sum(map(len, by_step.values()))
    rows: list[tuple[list[int], list[_Pairing]]] = []
    seen = 0
    for step in sorted(by_step):
        row = seen * MOST_STEP_ROWS // total if len(by_step) > MOST_STEP_ROWS else len(rows)
        if row >= len(rows):
            rows.append(([], []))
        rows[-1][0].append(step)
        rows[-1][1].extend(by_step[step])
        seen += len(by_step[step])
    return [(_name_steps(steps), some) for steps, some in rows]


def _name_steps(steps: Sequence[int]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"


def _find_best(rewards: Sequence[float]) -> tuple[int, ...]:
    highest = max(rewards)
    return tuple(place for place, reward in enumerate(rewards) if highest - reward <= _SAME)


def _list_signs(rewards: Sequence[float]) -> list[int]:
    mean = fmean(rewards)
    return [0 if abs(reward - mean) <= _SAME else int(math.copysign(1, reward - mean)) for reward in rewards]


def _differ(rewards: Sequence[float]) -> bool:
    return max(rewards) - min(rewards) > _SAME


def _compute_spearman(before: Sequence[float], now: Sequence[float]) -> float:
    return compute_correlation(_compute_ranks(before), _compute_ranks(now)) or 0.0


def _compute_ranks(values: Sequence[float]) -> list[float]:
    """Ties share a mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] - values[order[first]] <= _SAME:
            last += 1
        for index in order[first : last + 1]:
            ranks[index] = (first + last) / 2
        first = last + 1
    return ranks


# Reports as self-contained HTML files without scripts; text that models wrote is escaped

_TEMPLATES: Final = Path(__file__).with_name("templates")
_TASKS_SHOWN: Final = 500
_jinja = open_page_templates([_TEMPLATES])
_jinja.filters.update(excerpt=cut_excerpt, json=canonical_json)

Document = EvaluationReport | Comparison | TournamentReport | GraderReport


def render_html(document: Document) -> str:
    """A whole HTML page without surrogates, for a file in UTF-8."""
    values = _build_values(document)
    style = Markup(PALETTE + CHART_STYLE + (_TEMPLATES / "report.css").read_text(encoding="utf-8"))  # noqa: S704  # a file of ours
    return _jinja.get_template(f"{document.kind}.html").render(style=style, **values)


def _build_values(document: Document) -> dict[str, object]:
    match document:
        case EvaluationReport():
            return _build_report_values(document)
        case Comparison():
            return _build_comparison_values(document)
        case TournamentReport():
            return _build_tournament_values(document)
        case GraderReport():
            return {"report": document, "strategies": STRATEGIES}


def _build_tournament_values(report: TournamentReport) -> dict[str, object]:
    rows = [row for table in (report.standings, *(each.standings for each in report.labels)) for row in table]
    reach = max(
        (abs(end) for row in rows for end in (row.strength.low, row.strength.high) if end is not None), default=1.0
    )
    return {
        "report": report,
        "scale": Scale(-max(1.0, math.ceil(reach)), max(1.0, math.ceil(reach))),
        "names": [contestant.name for contestant in report.setup.contestants],
        "duels": report.duels[:_TASKS_SHOWN],
        "duels_left_out": max(0, len(report.duels) - _TASKS_SHOWN),
    }


def _build_report_values(report: EvaluationReport) -> dict[str, object]:
    return {
        "report": report,
        "scale": UNIT,
        "columns": build_reward_histogram(report.histogram),
        "curve": draw_pass_at_curve(report.passes),
        "tasks": report.tasks[:_TASKS_SHOWN],
        "tasks_left_out": max(0, len(report.tasks) - _TASKS_SHOWN),
    }


def _build_comparison_values(comparison: Comparison) -> dict[str, object]:
    rows = (comparison.overall, *comparison.passes, *comparison.criteria, *comparison.labels)
    scale = fit_around_zero(row.difference for row in rows)
    return {"comparison": comparison, "scale": scale, "viewer": _link_comparison(comparison)}


def _link_comparison(comparison: Comparison) -> str:
    """The viewer's page of the same two; empty where they are not of one gateway."""
    one, other = comparison.before, comparison.after
    if not one.gateway_url or one.gateway_url != other.gateway_url:
        return ""
    query = {
        f"{side}{part}": value
        for side, setup in (("first", one), ("second", other))
        for part, value in (("", setup.run), ("_model", setup.model), ("_steps", setup.step))
        if value is not None
    }
    return f"{one.gateway_url}/view/compare?{urlencode({**query, 'environment': one.environment}, errors='replace')}"
