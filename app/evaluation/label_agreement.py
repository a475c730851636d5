"""How far a judge's rewards agree with people's labels: pair accuracy and correlation, with intervals."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev
from typing import Final

from app.domain.intervals import Z_95
from app.domain.values import FiniteNumber, Frozen
from app.evaluation.resampling import Resampler

_SAME: Final = 1e-9
_FEWEST_FOR_CORRELATION: Final = 3
"""Of two replies a correlation is only a sign, which pair accuracy already is."""


@dataclass(frozen=True)
class JudgedLabels:
    """One group: people's labels and the judge's rewards of the same replies, in one order. Replies without a reward
    are left out beforehand."""

    labels: tuple[float, ...]
    rewards: tuple[float, ...]
    subset: str = ""


class AgreementFigure(Frozen):
    """A figure with its 95 % interval; null where nothing can be compared."""

    value: FiniteNumber | None = None
    low: FiniteNumber | None = None
    high: FiniteNumber | None = None
    trials: int = 0
    """Groups that it rests on; replies, where each group is a single one."""


@dataclass(frozen=True)
class LabelAgreement:
    pair_accuracy: AgreementFigure
    """How often the reply that people rated higher got the higher reward. A tie of rewards counts half; replies with
    equal labels are not compared."""
    correlation: AgreementFigure
    """Pearson's r of reward and label: the mean over the groups of three or more, 0 where all rewards are equal."""


def measure_label_agreement(groups: Sequence[JudgedLabels], seed: int = 0) -> LabelAgreement:
    """Groups weigh the same, and are what is resampled. Where each is a single reply, the replies of a subset are
    compared with each other instead, and the subsets' figures averaged."""
    if groups and all(len(group.labels) == 1 for group in groups):
        return _compare_across_groups(groups)
    accuracies = [share for group in groups if (share := compute_pair_accuracy(group)) is not None]
    correlations = [r for group in groups if (r := compute_group_correlation(group)) is not None]
    resampler = Resampler(seed)
    accuracy, correlation = resampler.estimate(accuracies), resampler.estimate(correlations, least=-1.0)
    return LabelAgreement(
        AgreementFigure(value=accuracy.value, low=accuracy.low, high=accuracy.high, trials=accuracy.tasks),
        AgreementFigure(value=correlation.value, low=correlation.low, high=correlation.high, trials=correlation.tasks),
    )


def compute_pair_accuracy(group: JudgedLabels) -> float | None:
    scored = list(zip(group.labels, group.rewards, strict=True))
    hits = [
        _score_pair(one[0] - other[0], one[1] - other[1])
        for one, other in combinations(scored, 2)
        if abs(one[0] - other[0]) > _SAME
    ]
    return fmean(hits) if hits else None


def compute_group_correlation(group: JudgedLabels) -> float | None:
    """None for fewer than three replies, or without different labels."""
    if len(group.labels) < _FEWEST_FOR_CORRELATION:
        return None
    return compute_correlation(group.labels, group.rewards)


def compute_correlation(labels: Sequence[float], rewards: Sequence[float]) -> float | None:
    """Pearson's r; 0 for equal rewards, which say nothing, None for equal labels."""
    middle, centre = fmean(labels), fmean(rewards)
    spread = math.fsum((label - middle) ** 2 for label in labels)
    other = math.fsum((reward - centre) ** 2 for reward in rewards)
    if spread <= _SAME:
        return None
    if other <= _SAME**2:
        return 0.0
    products = ((label - middle) * (reward - centre) for label, reward in zip(labels, rewards, strict=True))
    return math.fsum(products) / math.sqrt(spread * other)


def _score_pair(labels: float, rewards: float) -> float:
    """1 for the same sign, 0.5 for equal rewards, else 0."""
    if abs(rewards) <= _SAME:
        return 0.5
    return float((labels > 0) == (rewards > 0))


def _compare_across_groups(groups: Sequence[JudgedLabels]) -> LabelAgreement:
    by_subset: defaultdict[str, list[JudgedLabels]] = defaultdict(list)
    for group in groups:
        by_subset[group.subset].append(group)
    merged = [
        JudgedLabels(tuple(one.labels[0] for one in some), tuple(one.rewards[0] for one in some))
        for some in by_subset.values()
    ]
    return LabelAgreement(
        _average([_measure_pooled_accuracy(one) for one in merged]),
        _average([_measure_pooled_correlation(one) for one in merged]),
    )


def _measure_pooled_accuracy(pool: JudgedLabels) -> AgreementFigure:
    """A U-statistic of order two: four times the variance of each reply's own share over their number (Hoeffding, Ann.
    Math. Stat. 19, 1948)."""
    scored = list(zip(pool.labels, pool.rewards, strict=True))
    shares = []
    for label, reward in scored:
        hits = [_score_pair(label - other, reward - its) for other, its in scored if abs(label - other) > _SAME]
        if hits:
            shares.append((fmean(hits), len(hits)))
    if len(shares) < 2:
        return AgreementFigure()
    value = math.fsum(share * pairs for share, pairs in shares) / sum(pairs for _, pairs in shares)
    error = 2 * stdev(share for share, _ in shares) / math.sqrt(len(shares))
    return _bound(value, error, len(shares), least=0.0)


def _measure_pooled_correlation(pool: JudgedLabels) -> AgreementFigure:
    """Fisher's z interval (Metron 1, 1921), given as its half width around r."""
    value = compute_correlation(pool.labels, pool.rewards)
    if value is None or len(pool.labels) < 4:
        return AgreementFigure()
    error = (1 - value**2) / math.sqrt(len(pool.labels) - 3)
    return _bound(value, error, len(pool.labels), least=-1.0)


def _bound(value: float, error: float, trials: int, least: float) -> AgreementFigure:
    low, high = max(least, value - Z_95 * error), min(1.0, value + Z_95 * error)
    return AgreementFigure(value=value, low=low, high=high, trials=trials)


def _average(figures: Sequence[AgreementFigure]) -> AgreementFigure:
    """The mean of independent figures, with the error of their mean."""
    known = [one for one in figures if one.value is not None and one.low is not None and one.high is not None]
    if not known:
        return AgreementFigure()
    half = [max(one.high - one.value, one.value - one.low) for one in known]  # type: ignore[operator]
    value, width = fmean(one.value or 0.0 for one in known), math.hypot(*half) / len(known)
    return AgreementFigure(
        value=value, low=max(-1.0, value - width), high=min(1.0, value + width), trials=sum(one.trials for one in known)
    )
