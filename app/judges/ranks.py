"""Ranks of a group's texts, and how far two lists of them agree."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Final

NEUTRAL: Final = 0.5
_NORMAL: Final = NormalDist()


def normalise_ranks(tiers: Sequence[Sequence[str]]) -> dict[str, float]:
    """1 for the best, 0 for the last; ties share the mean of their places; 0.5 for a single item."""
    count = sum(map(len, tiers))
    standings: dict[str, float] = {}
    above = 0
    for tier in tiers:
        place = above + (len(tier) - 1) / 2
        standings.update(dict.fromkeys(tier, NEUTRAL if count == 1 else 1.0 - place / (count - 1)))
        above += len(tier)
    return standings


def space_as_normal(standings: Sequence[float]) -> tuple[float, ...]:
    """Means of normalised ranks, or win rates, as the normal distribution has its quantiles: places in the middle move
    together, and the best and the last stand out. Ranks alone say that neighbours are equally far apart everywhere. 0,
    0.5 and 1 stay what they are."""
    count = len(standings)
    if count < 3:
        return tuple(standings)
    widest = 2.0 * _find_distance(NEUTRAL, count)
    return tuple(
        NEUTRAL + math.copysign(_find_distance(abs(standing - NEUTRAL), count) / widest, standing - NEUTRAL)
        for standing in standings
    )


def _find_distance(from_middle: float, count: int) -> float:
    """In standard deviations. Half a place is kept free at either end, where the distribution has none."""
    return -_NORMAL.inv_cdf(((NEUTRAL - from_middle) * (count - 1) + 0.5) / count)


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Kendall's tau of two lists of ranks of the same items: 1 when all pairs are in the same order, -1 when all are
    reversed. A pair tied in both lists agrees; tied in one it counts 0."""
    agreements = [_compare_signs(one[i] - one[j], other[i] - other[j]) for i, j in combinations(range(len(one)), 2)]
    return math.fsum(agreements) / len(agreements) if agreements else 1.0


def mean_kendall_tau(readings: Sequence[Sequence[float]]) -> float:
    """The mean over all pairs of lists."""
    return mean(kendall_tau(one, other) for one, other in combinations(readings, 2))


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def _compare_signs(one: float, other: float) -> float:
    if get_sign(one) == get_sign(other):
        return 1.0
    return 0.0 if get_sign(one) == 0 or get_sign(other) == 0 else -1.0


def get_sign(difference: float) -> int:
    return 0 if abs(difference) < 1e-9 else (1 if difference > 0 else -1)


def rank_by_value(values: Sequence[float]) -> tuple[float, ...]:
    """Normalised ranks; values that are equal share the mean of their places."""
    tiers: dict[float, list[str]] = {}
    for place, value in enumerate(values):
        tiers.setdefault(round(value, 9), []).append(str(place))
    standings = normalise_ranks([tiers[value] for value in sorted(tiers, reverse=True)])
    return tuple(standings[str(place)] for place in range(len(values)))
