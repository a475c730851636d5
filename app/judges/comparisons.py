"""Pairwise comparisons and the win rates that follow, with estimates for pairs that were not compared."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Final

from app.judges.ranks import mean

Shares = Mapping[tuple[int, int], float]
"""By two indices, the lower first: how often the first was preferred; a tie counts half. Missing pairs were not
compared."""

Pairings = Sequence[tuple[int, int]]
"""Which items are compared, each pair once, the lower index first."""

ROUND_ROBIN: Final = 4
"""Up to this many items every pair is compared."""
NEIGHBOURS: Final = 2
"""Above that each item is compared with this many successors in a circle."""

_PRIOR: Final = 0.5
"""Prior wins and losses of every item against an average opponent. Without them an item that won everything would be
infinitely strong."""
_ROUNDS: Final = 200
_TOLERANCE: Final = 1e-4


def list_pairings(count: int) -> tuple[tuple[int, int], ...]:
    """The pairs of `count` items to compare, the lower index first."""
    if count <= ROUND_ROBIN:
        return tuple(combinations(range(count), 2))
    met = {
        tuple(sorted((place, (place + step) % count))) for place in range(count) for step in range(1, NEIGHBOURS + 1)
    }
    return tuple(sorted((low, high) for low, high in met))


def suffice_for_order(planned: Pairings, made: Pairings) -> bool:
    """Whether the comparisons made connect all items, and each item has at least half of those planned for it: who was
    compared with whom must hardly depend on whose text a judge fails at."""
    wanted, had = (Counter(item for pair in pairs for item in pair) for pairs in (planned, made))
    return all(2 * had[item] >= wanted[item] for item in wanted) and _are_connected(wanted, made)


def _are_connected(items: Collection[int], pairs: Pairings) -> bool:
    neighbours: defaultdict[int, set[int]] = defaultdict(set)
    for low, high in pairs:
        neighbours[low].add(high)
        neighbours[high].add(low)
    reached: set[int] = set()
    left = [min(items)]
    while left:
        item = left.pop()
        if item not in reached:
            reached.add(item)
            left += neighbours[item]
    return len(reached) == len(items)


def compute_preference(one: float, other: float) -> float:
    """1 when `one` is greater, 0 when `other` is, 0.5 when they are equal."""
    return 0.5 if math.isclose(one, other, abs_tol=1e-9) else float(one > other)


def compute_win_rates(count: int, shares: Shares) -> tuple[float, ...]:
    """Each item's mean share over all others. Pairs that were not compared are estimated with the Bradley-Terry
    model."""
    if count == 1:
        return (0.5,)
    strengths = () if len(shares) == count * (count - 1) // 2 else _fit_bradley_terry(count, shares)

    def get_share(place: int, other: int) -> float:
        known = shares.get((min(place, other), max(place, other)))
        if known is None:
            return strengths[place] / (strengths[place] + strengths[other])
        return known if place < other else 1.0 - known

    return tuple(mean(get_share(place, other) for other in range(count) if other != place) for place in range(count))


def _fit_bradley_terry(count: int, shares: Shares) -> Sequence[float]:
    """Hunter's MM algorithm (Annals of Statistics 32, 2004, 384-406). A tie counts as half a win for each."""
    opponents: defaultdict[int, list[int]] = defaultdict(list)
    wins = [_PRIOR] * count
    for (low, high), share in shares.items():
        opponents[low].append(high)
        opponents[high].append(low)
        wins[low] += share
        wins[high] += 1.0 - share
    strengths = [1.0] * count
    for _ in range(_ROUNDS):
        before = strengths
        strengths = [
            wins[place]
            / math.fsum(
                [*(1.0 / (own + before[other]) for other in opponents[place]), 2.0 * _PRIOR / (own + 1.0)],
            )
            for place, own in enumerate(before)
        ]
        if all(abs(math.log(now / then)) < _TOLERANCE for now, then in zip(strengths, before, strict=True)):
            break
    return strengths
