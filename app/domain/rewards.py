"""Combines the parts of a score into a reward, and computes group statistics."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from app.domain.judging import Defect, Rubric, RubricCriterion, Verdict
from app.domain.scores import Criterion, GroupStatistics, Outcome, Score
from app.domain.values import SameObject

ADVANTAGE_EPSILON = 1e-4
"""Added to the standard deviation, as TRL does (grpo_trainer, `scale_rewards="group"`)."""

LOW_SIGNAL_STD = 0.01
"""Below this standard deviation of rewards, a group counts as having no training signal."""


def combine(gate: float, absolute: float, relative: float, relative_weight: float, cap: float = 1.0) -> float:
    """gate x min(cap, (1 - w) x absolute + w x relative)."""
    return gate * min(cap, (1.0 - relative_weight) * absolute + relative_weight * relative)


def compute_own_reward(score: Score) -> float | None:
    """gate x absolute within the cap: what an evaluation would have paid, comparable across groups. None without a
    reward."""
    if score.reward is None or score.absolute is None:
        return score.reward
    gate, cap = (1.0 if part is None else part for part in (score.gate, score.cap))
    return combine(gate, score.absolute, 0.0, 0.0, cap)


def apply_bounds(rubric: Rubric, verdict: Verdict) -> Mapping[str, float | None]:
    """The scores of one judgement, limited by the defects that it reports."""
    if not verdict.defects:
        return verdict.scores
    reported = {defect.code for defect in verdict.defects}
    scores = dict(verdict.scores)
    for bound in (rule.bounds for rule in rubric.defects if rule.code in reported and rule.bounds is not None):
        score = scores.get(bound.criterion)
        if score is not None:
            scores[bound.criterion] = min(score, bound.at_most)
    return scores


def find_cap(rubric: Rubric, defects: Iterable[Defect]) -> float:
    """The lowest cap among the defects; 1 without any."""
    reported = {defect.code for defect in defects}
    if not reported:
        return 1.0
    return min((rule.cap for rule in rubric.defects if rule.code in reported and rule.cap is not None), default=1.0)


def build_criteria(rubric: Rubric, values: Mapping[str, float | None]) -> tuple[Criterion, ...]:
    """The rubric's criteria with their values. A criterion with an unmet requirement counts as 0, and its note says so.
    Weights of criteria that do not apply are distributed over the others in proportion."""
    (weighed,) = _weigh_criteria(rubric, (values,))
    return tuple(
        [
            _build_criterion(
                criterion.name,
                value,
                weight,
                _explain_unmet(criterion, values) if criterion.requires is not None else "",
            )
            for criterion, (value, weight) in zip(rubric.criteria, weighed, strict=True)
        ]
    )


@lru_cache(maxsize=4096)
def _build_criterion(name: str, value: float | None, weight: float, note: str) -> Criterion:
    """Kept, since judges give few different numbers."""
    return Criterion(name=name, value=value, weight=weight, note=note)


def compute_absolute_score(rubric: Rubric, values: Mapping[str, float | None]) -> float:
    """As `compute_absolute` of `build_criteria`, without the criteria."""
    (score,) = compute_absolute_scores(rubric, (values,))
    return score


def compute_absolute_scores(rubric: Rubric, listed: Iterable[Mapping[str, float | None]]) -> tuple[float, ...]:
    """Of each."""
    return tuple(
        [
            min(1.0, math.fsum([weight * value for value, weight in weighed if value is not None]))
            for weighed in _weigh_criteria(rubric, listed)
        ]
    )


def _weigh_criteria(
    rubric: Rubric, listed: Iterable[Mapping[str, float | None]]
) -> Iterator[list[tuple[float | None, float]]]:
    """Of each, per criterion the value that counts, and its weight. What they share is looked up once."""
    same = SameObject(rubric)
    names, requiring, weights = _list_criteria(same)
    for values in listed:
        met = list(map(values.get, names))
        for place, criterion in requiring:
            if _is_unmet(criterion, values):
                met[place] = 0.0
        shares = _share_weights(same, tuple([value is not None for value in met])) if None in met else weights
        yield list(zip(met, shares, strict=True))


@lru_cache(maxsize=256)
def _list_criteria(
    rubric: SameObject[Rubric],
) -> tuple[tuple[str, ...], tuple[tuple[int, RubricCriterion], ...], tuple[float, ...]]:
    """The names of all, those that require another with their places, and the weights where all apply."""
    criteria = rubric.value.criteria
    requiring = tuple((place, each) for place, each in enumerate(criteria) if each.requires is not None)
    return tuple(each.name for each in criteria), requiring, _share_weights(rubric, (True,) * len(criteria))


@lru_cache(maxsize=256)
def _share_weights(rubric: SameObject[Rubric], applies: tuple[bool, ...]) -> tuple[float, ...]:
    """Of the criteria, of which some do not apply."""
    applying = [(each.weight, applied) for each, applied in zip(rubric.value.criteria, applies, strict=True)]
    applicable = math.fsum([weight for weight, applied in applying if applied])
    return tuple(weight / applicable if applied and applicable else 0.0 for weight, applied in applying)


def _is_unmet(criterion: RubricCriterion, values: Mapping[str, float | None]) -> bool:
    """Whether the criterion counts as 0 although it has a value."""
    needed = criterion.requires
    if needed is None or values.get(criterion.name) is None:
        return False
    return (values.get(needed.criterion) or 0.0) < needed.at_least


def _explain_unmet(criterion: RubricCriterion, values: Mapping[str, float | None]) -> str:
    """Why the criterion counts as 0 although it has a value; empty if it does not."""
    value, needed = values.get(criterion.name), criterion.requires
    if value is None or needed is None or not _is_unmet(criterion, values):
        return ""
    found = values.get(needed.criterion) or 0.0
    return (
        f"judged {value:.2f}, counts as 0: {needed.criterion} is {found:.2f} and must be at least {needed.at_least:g}"
    )


def compute_absolute(criteria: Sequence[Criterion]) -> float:
    """The weighted mean of the criteria that apply; 0 if none does."""
    return min(1.0, math.fsum([c.weight * c.value for c in criteria if c.value is not None]))


def combine_outcomes(scores: Iterable[Score]) -> Outcome:
    """The outcome of a group: `pending` if any is, else `unscored` if any is, else `scored`."""
    outcomes = {score.outcome for score in scores}
    return "pending" if "pending" in outcomes else "unscored" if "unscored" in outcomes else "scored"


def measure_spread(rewards: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation; null below two rewards."""
    return _measure_spread(tuple(rewards))


@lru_cache(maxsize=4096)
def _measure_spread(rewards: tuple[float, ...]) -> tuple[float | None, float | None]:
    """Kept: it is asked for four times of each group, and verifiers give few different rewards."""
    if len(rewards) < 2:
        return None, None
    mean = math.fsum(rewards) / len(rewards)
    return mean, math.sqrt(math.fsum([(reward - mean) ** 2 for reward in rewards]) / (len(rewards) - 1))


def has_low_signal(scores: Iterable[Score], std: float) -> bool:
    """Whether the rewards, which have this spread, hardly differ, or the judges disagree."""
    return std < LOW_SIGNAL_STD or any(["low_signal" in score.flags for score in scores])


def compute_statistics(scores: Sequence[Score]) -> GroupStatistics:
    """Mean, sample standard deviation and advantages over non-null rewards; null for null, all null below two."""
    mean, std = measure_spread([score.reward for score in scores if score.reward is not None])
    if mean is None or std is None:
        return GroupStatistics(mean=None, std=None, advantages=(None,) * len(scores), low_signal=True)
    return GroupStatistics.build_trusted(
        mean=mean,
        std=std,
        advantages=tuple(
            [None if score.reward is None else (score.reward - mean) / (std + ADVANTAGE_EPSILON) for score in scores]
        ),
        low_signal=has_low_signal(scores, std),
    )
