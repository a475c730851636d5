"""The arithmetic of each reward, written out: whoever reads the page can work the number out from it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal

from app.domain.groups import Rollout
from app.domain.judging import Judgement, Rubric, Verdict, apply_bounds, compute_absolute
from app.domain.scores import Criterion, Score, combine, find_verified
from app.judges.explanation import DefectReport, GroupExplanation, ShareExplanation
from app.toolkit.texts import escape_invisible, format_number, format_signed

_DIGITS: Final = 4
"""After the point, so that what is worked out from the page is what stands on it."""
_CLOSE: Final = 1e-6
"""Floats that were added up in another order differ by less."""

HowRelative = Literal["none", "alone", "shrunk", "unknown"]
"""`alone`: there was nothing to compare with. `unknown`: how the relative part was shrunk is not known."""


@dataclass(frozen=True)
class CriterionTerm:
    """`readings` are what single readings gave, `mean` their mean, `value` what it counts as."""

    name: str
    readings: tuple[str, ...]
    mean: str
    value: str
    weight: str
    product: str
    note: str


@dataclass(frozen=True)
class ShareTerm:
    """What one judge's order gives a completion: `relative` is .5 + reliability x (standing - .5)."""

    judges: str
    grades: bool
    standing: str
    reliability: str
    relative: str


@dataclass(frozen=True)
class CapTerm:
    code: str
    reported: int
    readings: int
    quotes: tuple[str, ...]
    counts: bool
    cap: str
    """Empty where the defect sets none."""


@dataclass(frozen=True)
class RewardSum:
    """`slots` are the places of the completions that share the score. Texts are numbers with four decimals; empty
    where a score has no such part."""

    slots: tuple[int, ...]
    judged: bool
    reward: str
    gate: str
    absolute: str
    is_sum: bool
    """Whether `absolute` is the sum of the products, or the environment's own rule made it."""
    is_product: bool
    """Whether the reward follows from the parts that are stored."""
    relative: str
    how_relative: HowRelative
    verified_weight: str
    """Of what code verified, in `relative` as in `absolute`; empty where nothing was."""
    absolute_weight: str
    relative_weight: str
    cap: str
    criteria: tuple[CriterionTerm, ...]
    shares: tuple[ShareTerm, ...]
    caps: tuple[CapTerm, ...]
    why_gated: str


@dataclass(frozen=True)
class Contrast:
    """One part of two rewards: the difference is `weight` x (winner - runner-up)."""

    name: str
    winner: str
    other: str
    weight: str
    difference: str
    share: float


@dataclass(frozen=True)
class WinnerContrast:
    """Why the best completion is before the next one. `before_caps` is what the parts add up to, `difference` the
    difference in reward."""

    winner: int
    other: int
    parts: tuple[Contrast, ...]
    before_caps: str
    difference: str
    is_capped: bool


def build_sums(
    rollouts: Sequence[Rollout],
    judgements: Sequence[Judgement],
    explanation: GroupExplanation | None,
    rubric: Rubric | None,
) -> tuple[RewardSum, ...]:
    """Best first, one for all completions that share a score; what has no score is left out."""
    scored = [slot for slot, rollout in enumerate(rollouts) if rollout.score.outcome == "scored"]
    together = gather_equal(scored, lambda one, other: rollouts[one].score == rollouts[other].score)
    ordered = sorted(together, key=lambda slots: -(rollouts[slots[0]].score.reward or 0.0))
    return tuple(
        _build_sum(rollouts[slots[0]].score, tuple(slot + 1 for slot in slots), judgements, explanation, rubric)
        for slots in ordered
    )


def gather_equal(slots: Iterable[int], are_equal: Callable[[int, int], bool]) -> list[list[int]]:
    """Equal ones together, in the order in which the first of each is met."""
    together: list[list[int]] = []
    for slot in slots:
        equal = next((some for some in together if are_equal(some[0], slot)), None)
        if equal is None:
            together.append([slot])
        else:
            equal.append(slot)
    return together


def _build_sum(
    score: Score,
    slots: tuple[int, ...],
    judgements: Sequence[Judgement],
    explanation: GroupExplanation | None,
    rubric: Rubric | None,
) -> RewardSum:
    shares = () if explanation is None else explanation.shares
    weight = score.relative_weight
    return RewardSum(
        slots=slots,
        judged=bool(score.judges),
        reward=_write(score.reward),
        gate=format_number(score.gate, 0) if score.gate is not None else "",
        absolute=_write(score.absolute),
        is_sum=_is_weighted(score),
        is_product=_follows(score),
        relative=_write(score.relative),
        how_relative=_classify_relative(score, shares),
        verified_weight=_write(math.fsum(one.weight for one in verified)) if (verified := find_verified(score)) else "",
        absolute_weight="" if weight is None else _write(1.0 - weight),
        relative_weight=_write(weight),
        cap=_write(score.cap),
        criteria=_build_terms(score, judgements, explanation, rubric),
        shares=tuple(_build_share(share, score.candidate) for share in shares if score.candidate in share.standings),
        caps=_build_caps(explanation.defects.get(score.candidate, ()) if explanation else ()),
        why_gated=escape_invisible(score.rationale) if score.gate == 0 else "",
    )


def _write(value: float | None) -> str:
    return "" if value is None else format_number(value, _DIGITS)


def _follows(score: Score) -> bool:
    """Whether the reward is gate x min(cap, mixture), with no relative part where none has a weight."""
    if score.reward is None or score.gate is None or score.absolute is None:
        return False
    weight = score.relative_weight or 0.0
    if weight and score.relative is None:
        return False
    cap = 1.0 if score.cap is None else score.cap
    return abs(combine(score.gate, score.absolute, score.relative or 0.0, weight, cap) - score.reward) <= _CLOSE


def _is_weighted(score: Score) -> bool:
    """Whether `absolute` is the weighted sum of the criteria."""
    return score.absolute is not None and abs(compute_absolute(score.criteria) - score.absolute) <= _CLOSE


def _classify_relative(score: Score, shares: Sequence[ShareExplanation]) -> HowRelative:
    if score.relative is None or score.relative_weight is None:
        return "none"
    if any(score.candidate in share.standings for share in shares):
        return "shrunk"
    return "alone" if score.relative == score.absolute and "no_comparison" in score.flags else "unknown"


def _build_terms(
    score: Score, judgements: Sequence[Judgement], explanation: GroupExplanation | None, rubric: Rubric | None
) -> tuple[CriterionTerm, ...]:
    means = {} if explanation is None else explanation.values.get(score.candidate, {})
    verdicts = _list_verdicts(score, judgements, explanation)
    return tuple(_build_term(criterion, means.get(criterion.name), verdicts, rubric) for criterion in score.criteria)


def _list_verdicts(
    score: Score, judgements: Sequence[Judgement], explanation: GroupExplanation | None
) -> Sequence[Verdict]:
    """Those that make the criteria; all of them where nobody knows which do."""
    return [
        verdict
        for index, judgement in enumerate(judgements)
        if judgement.purpose == "score" and (explanation is None or index in explanation.used)
        for verdict in judgement.verdicts
        if verdict.candidate == score.candidate and score.candidate
    ]


def _build_term(
    criterion: Criterion, mean: float | None, verdicts: Sequence[Verdict], rubric: Rubric | None
) -> CriterionTerm:
    readings = [
        _write_reading(criterion.name, verdict, rubric) for verdict in verdicts if criterion.name in verdict.scores
    ]
    value = criterion.value
    return CriterionTerm(
        name=escape_invisible(criterion.name).replace("_", " "),
        readings=tuple(readings),
        mean=_write(mean),
        value="n/a" if value is None else _write(value),
        weight=_write(criterion.weight),
        product=_write(0.0 if value is None else criterion.weight * value),
        note=escape_invisible(criterion.note),
    )


def _write_reading(name: str, verdict: Verdict, rubric: Rubric | None) -> str:
    """A reading that a defect bounds says both: what was given, and what counts."""
    score = verdict.scores[name]
    bounded = score if rubric is None else apply_bounds(rubric, verdict).get(name, score)
    reading = "n/a" if score is None else format_number(score, 2)
    return reading if bounded == score else f"{reading} → {format_number(bounded, 2)}"


def _build_share(share: ShareExplanation, candidate: str) -> ShareTerm:
    return ShareTerm(
        judges=escape_invisible(", ".join(share.judges)),
        grades=share.grades,
        standing=_write(share.standings[candidate]),
        reliability=_write(share.reliability),
        relative=_write(share.relatives[candidate]),
    )


def _build_caps(reports: Sequence[DefectReport]) -> tuple[CapTerm, ...]:
    return tuple(
        CapTerm(
            code=escape_invisible(report.code).replace("_", " "),
            reported=report.reported,
            readings=report.readings,
            quotes=tuple(map(escape_invisible, report.quotes)),
            counts=report.counts,
            cap="" if report.cap is None else _write(report.cap),
        )
        for report in reports
    )


def contrast_best(rollouts: Sequence[Rollout]) -> WinnerContrast | None:
    """The best completion beside the next one whose reward is lower. None where there are no two such, or where nothing
    says how they came about."""
    scored = [(slot, one.score) for slot, one in enumerate(rollouts, 1) if one.score.reward is not None]
    scored.sort(key=lambda each: -(each[1].reward or 0.0))
    if not scored:
        return None
    first, best = scored[0]
    second = next(((slot, score) for slot, score in scored if (score.reward or 0.0) < (best.reward or 0.0)), None)
    if (
        second is None
        or second[1].gate == 0
        or not all(_follows(score) and _is_weighted(score) for score in (best, second[1]))
    ):
        return None
    return _contrast(first, best, *second)


def _contrast(first: int, best: Score, second: int, other: Score) -> WinnerContrast:
    weight = best.relative_weight or 0.0
    parts = [
        _contrast_part(mine.name.replace("_", " "), mine.value, theirs.value, (1.0 - weight) * mine.weight)
        for mine, theirs in _pair_criteria(best, other)
    ]
    if weight:
        parts.append(_contrast_part("relative to the group", best.relative, other.relative, weight))
    total = sum(part.share for part in parts)
    difference = (best.reward or 0.0) - (other.reward or 0.0)
    return WinnerContrast(
        winner=first,
        other=second,
        parts=tuple(sorted(parts, key=lambda part: -abs(part.share))),
        before_caps=format_signed(total, _DIGITS),
        difference=format_signed(difference, _DIGITS),
        is_capped=abs(total - difference) > 1e-4,
    )


def _pair_criteria(best: Score, other: Score) -> Sequence[tuple[Criterion, Criterion]]:
    pairs = zip_longest(best.criteria, other.criteria)
    return [(one, two) for one, two in pairs if one is not None and two is not None and one.name == two.name]


def _contrast_part(name: str, mine: float | None, theirs: float | None, weight: float) -> Contrast:
    gap = 0.0 if mine is None or theirs is None else weight * (mine - theirs)
    return Contrast(
        name=escape_invisible(name),
        winner=_write(mine) or "n/a",
        other=_write(theirs) or "n/a",
        weight=_write(weight),
        difference=format_signed(gap, _DIGITS),
        share=gap,
    )
