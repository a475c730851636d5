"""Ranks of a group's texts: how far two lists of them agree, and win rates from comparisons of pairs."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Final

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
    return 0.5 if abs(one - other) <= 1e-9 else float(one > other)


def compute_win_rates(count: int, shares: Shares) -> tuple[float, ...]:
    """Each item's mean share over all others. Pairs that were not compared are estimated with the Bradley-Terry
    model."""
    if count == 1:
        return (0.5,)
    own: list[list[float]] = [[] for _ in range(count)]
    for (low, high), share in shares.items():
        own[low].append(share)
        own[high].append(1.0 - share)
    if len(shares) < count * (count - 1) // 2:
        strengths = _fit_bradley_terry(count, shares)
        for low, high in combinations(range(count), 2):
            if (low, high) not in shares:
                both = strengths[low] + strengths[high]
                own[low].append(strengths[low] / both)
                own[high].append(strengths[high] / both)
    return tuple(map(mean, own))


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
    return _compare_signs(_list_signs(one), _list_signs(other))


def mean_kendall_tau(readings: Sequence[Sequence[float]]) -> float:
    """The mean over all pairs of lists."""
    return mean(_compare_signs(one, other) for one, other in combinations(map(_list_signs, readings), 2))


def mean(values: Iterable[float]) -> float:
    listed = values if type(values) is list or type(values) is tuple else list(values)
    return math.fsum(listed) / len(listed)


def _list_signs(values: Sequence[float]) -> list[int]:
    """Of all pairs."""
    return [get_sign(one - other) for one, other in combinations(values, 2)]


def _compare_signs(ones: Sequence[int], others: Sequence[int]) -> float:
    if not ones:
        return 1.0
    return sum([1 if one == other else one * other for one, other in zip(ones, others, strict=True)]) / len(ones)


def get_sign(difference: float) -> int:
    return 0 if abs(difference) < 1e-9 else (1 if difference > 0 else -1)


def rank_by_value(values: Sequence[float]) -> tuple[float, ...]:
    """Normalised ranks; values that are equal share the mean of their places."""
    tiers: dict[float, list[str]] = {}
    for place, value in enumerate(values):
        tiers.setdefault(round(value, 9), []).append(str(place))
    standings = normalise_ranks([tiers[value] for value in sorted(tiers, reverse=True)])
    return tuple(standings[str(place)] for place in range(len(values)))
