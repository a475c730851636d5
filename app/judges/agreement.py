"""Ranks within a group, and the agreement between judgements."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Final

NEUTRAL: Final = 0.5


def normalised_ranks(tiers: Sequence[Sequence[str]]) -> dict[str, float]:
    """1 for the best, 0 for the last; ties share the mean of their places; 0.5 for a single item."""
    count = sum(map(len, tiers))
    standings: dict[str, float] = {}
    above = 0
    for tier in tiers:
        place = above + (len(tier) - 1) / 2
        standings.update(dict.fromkeys(tier, NEUTRAL if count == 1 else 1.0 - place / (count - 1)))
        above += len(tier)
    return standings


def kendall(one: Sequence[float], other: Sequence[float]) -> float:
    """Kendall's tau of two lists of ranks of the same items: 1 when all pairs are in the same order, -1 when all are
    reversed. A pair tied in both lists agrees; tied in one it counts 0."""
    agreements = [_agree(one[i] - one[j], other[i] - other[j]) for i, j in combinations(range(len(one)), 2)]
    return math.fsum(agreements) / len(agreements) if agreements else 1.0


def mean_kendall(readings: Sequence[Sequence[float]]) -> float:
    """The mean over all pairs of lists."""
    return mean(kendall(one, other) for one, other in combinations(readings, 2))


def top_is_close(readings: Sequence[Sequence[float]]) -> bool:
    """Whether the lists disagree about the order of the two items with the best means."""
    means = [mean(column) for column in zip(*readings, strict=True)]
    first, second = sorted(range(len(means)), key=lambda place: (-means[place], place))[:2]
    signs = [_sign(reading[first] - reading[second]) for reading in readings]
    return any(one != other for one, other in pairwise(signs))


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def _agree(one: float, other: float) -> float:
    if _sign(one) == _sign(other):
        return 1.0
    return 0.0 if _sign(one) == 0 or _sign(other) == 0 else -1.0


def _sign(difference: float) -> int:
    return 0 if abs(difference) < 1e-9 else (1 if difference > 0 else -1)
