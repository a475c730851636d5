"""Agreement between two scorings of the same groups. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Rewards = Sequence[float | None]
"""Rewards of one group, in the order of its completions; None for a missing reward."""


@dataclass(frozen=True)
class Agreement:
    """Statistics over completions with a reward in both scorings; None where there is nothing to compare."""

    groups: int
    """Groups with at least two such completions."""
    completions: int
    spearman: float | None
    """Rank correlation of all rewards, ties sharing a mean rank; None where a scoring has a single distinct reward."""
    mean_difference: float | None
    """Mean absolute difference of rewards."""
    best_changed: float | None
    """Share of the groups in which no completion is best in both scorings."""


def measure_agreement(pairs: Sequence[tuple[Rewards, Rewards]]) -> Agreement:
    both = [[(a, b) for a, b in zip(*pair, strict=True) if a is not None and b is not None] for pair in pairs]
    flat = [one for group in both for one in group]
    comparable = [group for group in both if len(group) > 1]
    changed = sum(
        _find_best([a for a, _ in group]).isdisjoint(_find_best([b for _, b in group])) for group in comparable
    )
    return Agreement(
        groups=len(comparable),
        completions=len(flat),
        spearman=_compute_correlation(_compute_ranks([a for a, _ in flat]), _compute_ranks([b for _, b in flat])),
        mean_difference=math.fsum(abs(a - b) for a, b in flat) / len(flat) if flat else None,
        best_changed=changed / len(comparable) if comparable else None,
    )


def _find_best(rewards: Sequence[float]) -> set[int]:
    highest = max(rewards)
    return {place for place, reward in enumerate(rewards) if highest - reward < 1e-9}


def _compute_ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in order[first : last + 1]:
            ranks[place] = (first + last) / 2
        first = last + 1
    return ranks


def _compute_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's."""
    if len(one) < 2:
        return None
    middle = (len(one) - 1) / 2  # of ranks, whatever is tied
    spread = math.fsum((a - middle) ** 2 for a in one) * math.fsum((b - middle) ** 2 for b in other)
    if spread == 0:
        return None
    return math.fsum((a - middle) * (b - middle) for a, b in zip(one, other, strict=True)) / math.sqrt(spread)
