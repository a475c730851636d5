"""Confidence intervals for means over tasks, and significance tests for differences between two models.

Attempts at one task are correlated, so tasks are resampled, not attempts: every function here takes one value per task,
the mean over its attempts (a cluster bootstrap with equal weights; see arXiv 2411.00640).
"""

import math
import random
from collections.abc import Sequence
from operator import getitem
from statistics import NormalDist, fmean, stdev
from typing import Final

from app.domain.intervals import Z_95, Proportion
from app.domain.values import FiniteNumber, Frozen

RESAMPLES: Final = 10_000
MAX_DRAWS: Final = 10_000_000
"""Maximum draws for one interval, a few seconds per report: above 1,000 tasks there are fewer resamples."""

EXACT_UP_TO: Final = 13
"""Up to this many differing tasks the sign-flip test is exact; above, sign assignments are sampled."""

POWER: Final = 0.8
_SAME: Final = 1e-9
"""Smaller differences of sums are rounding errors."""


class MeanEstimate(Frozen):
    """A mean over tasks with its 95 % confidence interval; all null without data."""

    value: FiniteNumber | None = None
    low: FiniteNumber | None = None
    high: FiniteNumber | None = None
    tasks: int = 0


class Resampler:
    """Seeded resampling: the same values always get the same interval."""

    def __init__(self, seed: int, resamples: int = RESAMPLES) -> None:
        self._seed = seed
        self._resamples = resamples
        self._known: dict[tuple[tuple[float, ...], float, float], MeanEstimate] = {}

    def estimate(self, values: Sequence[float], least: float = 0.0, most: float = 1.0) -> MeanEstimate:
        """Estimates the population mean of `values` in [least, most] by an expanded percentile interval (Hesterberg,
        arXiv 1411.5279), because the plain percentile interval is too narrow for few tasks.

        If every task has the same value, resampling finds no width. Then Wilson's interval for zero successes bounds
        the share of the population with another value, and those could have any value."""
        key = (tuple(values), least, most)
        if key not in self._known:
            self._known[key] = self._compute_estimate(values, least, most)
        return self._known[key]

    def resample_means(self, values: Sequence[float]) -> list[float]:
        """The sorted means of resamples with replacement."""
        chance = random.Random(f"means {self._seed}")  # noqa: S311
        count = min(self._resamples, max(1, MAX_DRAWS // len(values)))
        return sorted(sum(chance.choices(values, k=len(values))) / len(values) for _ in range(count))

    def compute_sign_flip_p(self, differences: Sequence[float]) -> float:
        """Two-sided p-value of the mean difference by a sign-flip test: the share of sign assignments with a difference
        at least as large. Never 0: if assignments are sampled, the observed one counts as one of them (Phipson and
        Smyth, Stat. Appl. Genet. Mol. Biol. 9, 2010, art. 39)."""
        moved = [difference for difference in differences if abs(difference) > _SAME]
        reached = abs(math.fsum(moved)) - _SAME * max(1, len(moved))
        tables = [_compute_signed_sums(moved[at : at + 8]) for at in range(0, len(moved), 8)]
        if len(moved) <= EXACT_UP_TO:
            ways = [0.0]
            for table in tables:
                ways = [way + more for way in ways for more in table]
            return sum(abs(way) >= reached for way in ways) / len(ways)
        chance = random.Random(f"signs {self._seed}")  # noqa: S311
        sizes = [len(table) - 1 for table in tables]
        found = 0
        for _ in range(self._resamples):
            drawn = map(int.__and__, chance.randbytes(len(tables)), sizes)
            found += abs(sum(map(getitem, tables, drawn))) >= reached
        return (found + 1) / (self._resamples + 1)

    def _compute_estimate(self, values: Sequence[float], least: float, most: float) -> MeanEstimate:
        if not values:
            return MeanEstimate()
        mean = fmean(values)
        if max(values) - min(values) < _SAME:
            unseen = (Proportion(0, len(values)).interval or (0.0, 1.0))[1]
            low, high = mean - unseen * (mean - least), mean + unseen * (most - mean)
        else:
            means, tail = self.resample_means(values), compute_tail(len(values))
            low, high = compute_quantile(means, tail), compute_quantile(means, 1.0 - tail)
        return MeanEstimate(value=mean, low=low, high=high, tasks=len(values))


def compute_quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile by linear interpolation (Hyndman and Fan's type 7)."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def adjust_p_values(ps: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjustment (Scand. J. Stat. 6, 1979): the probability that any entry of a table is below 0.05 by
    chance is at most 5 %."""
    found = [0.0] * len(ps)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        found[place] = largest
    return tuple(found)


def compute_noticeable(values: Sequence[float]) -> float | None:
    """The minimum detectable mean at 80 % power for this many tasks with the variance of `values`; null for fewer than
    two."""
    if len(values) < 2:
        return None
    return (Z_95 + NormalDist().inv_cdf(POWER)) * stdev(values) / math.sqrt(len(values))


def compute_tail(count: int) -> float:
    """The tail probability of an expanded percentile interval for `count` values. Student's t by its Cornish-Fisher
    expansion (Abramowitz and Stegun, 26.7.5)."""
    z, free = Z_95, count - 1
    t = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    return NormalDist().cdf(-t * math.sqrt(count / free))


def _compute_signed_sums(values: Sequence[float]) -> list[float]:
    """The sums of the values over all sign assignments: 2 to the power of their number."""
    sums = [0.0]
    for value in values:
        sums = [each + sign * value for each in sums for sign in (1.0, -1.0)]
    return sums
