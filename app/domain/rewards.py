"""Combines the parts of a score into a reward, and computes group statistics."""

import math
from collections.abc import Iterable, Mapping, Sequence

from app.domain.judging import Defect, Rubric, RubricCriterion, Verdict
from app.domain.scores import Criterion, GroupStatistics, Outcome, Score

ADVANTAGE_EPSILON = 1e-4
"""Added to the standard deviation, as TRL does (grpo_trainer, `scale_rewards="group"`)."""

LOW_SIGNAL_STD = 0.01
"""Below this standard deviation of rewards, a group counts as having no training signal."""


def combine(gate: float, absolute: float, relative: float, relative_weight: float, cap: float = 1.0) -> float:
    """gate x min(cap, (1 - w) x absolute + w x relative)."""
    return gate * min(cap, (1.0 - relative_weight) * absolute + relative_weight * relative)


def apply_bounds(rubric: Rubric, verdict: Verdict) -> dict[str, float | None]:
    """The scores of one judgement, limited by the defects that it reports."""
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
    return min((rule.cap for rule in rubric.defects if rule.code in reported and rule.cap is not None), default=1.0)


def build_criteria(rubric: Rubric, values: Mapping[str, float | None]) -> tuple[Criterion, ...]:
    """The rubric's criteria with their values. A criterion with an unmet requirement counts as 0, and its note says so.
    Weights of criteria that do not apply are distributed over the others in proportion."""
    unmet = {criterion.name: _explain_unmet(criterion, values) for criterion in rubric.criteria}
    met = {name: 0.0 if unmet[name] else values.get(name) for name in unmet}
    applicable = math.fsum(c.weight for c in rubric.criteria if met[c.name] is not None)
    return tuple(
        Criterion(
            name=criterion.name,
            value=met[criterion.name],
            weight=0.0 if met[criterion.name] is None or applicable == 0 else criterion.weight / applicable,
            note=unmet[criterion.name],
        )
        for criterion in rubric.criteria
    )


def _explain_unmet(criterion: RubricCriterion, values: Mapping[str, float | None]) -> str:
    """Why the criterion counts as 0 although it has a value; empty if it does not."""
    value, needed = values.get(criterion.name), criterion.requires
    if value is None or needed is None:
        return ""
    found = values.get(needed.criterion) or 0.0
    if found >= needed.at_least:
        return ""
    return (
        f"judged {value:.2f}, counts as 0: {needed.criterion} is {found:.2f} and must be at least {needed.at_least:g}"
    )


def compute_absolute(criteria: Sequence[Criterion]) -> float:
    """The weighted mean of the criteria that apply; 0 if none does."""
    return min(1.0, math.fsum(c.weight * c.value for c in criteria if c.value is not None))


def combine_outcomes(scores: Iterable[Score]) -> Outcome:
    """The outcome of a group: `pending` if any is, else `unscored` if any is, else `scored`."""
    outcomes = {score.outcome for score in scores}
    return "pending" if "pending" in outcomes else "unscored" if "unscored" in outcomes else "scored"


def measure_spread(rewards: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation; null below two rewards."""
    if len(rewards) < 2:
        return None, None
    mean = math.fsum(rewards) / len(rewards)
    return mean, math.sqrt(math.fsum([(reward - mean) ** 2 for reward in rewards]) / (len(rewards) - 1))


def has_low_signal(scores: Iterable[Score], std: float) -> bool:
    """Whether the rewards, which have this spread, hardly differ, or the judges disagree."""
    return std < LOW_SIGNAL_STD or any("low_signal" in score.flags for score in scores)


def compute_statistics(scores: Sequence[Score]) -> GroupStatistics:
    """Mean, sample standard deviation and advantages over non-null rewards; null for null, all null below two."""
    mean, std = measure_spread([score.reward for score in scores if score.reward is not None])
    if mean is None or std is None:
        return GroupStatistics(mean=None, std=None, advantages=(None,) * len(scores), low_signal=True)
    return GroupStatistics(
        mean=mean,
        std=std,
        advantages=tuple(
            None if score.reward is None else (score.reward - mean) / (std + ADVANTAGE_EPSILON) for score in scores
        ),
        low_signal=has_low_signal(scores, std),
    )
