"""Confidence intervals of proportions, and the agreement of repeated measurements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Z_95: Final = 1.959963984540054
"""Two-sided 95 % quantile of the standard normal distribution."""
Z_99: Final = 2.5758293035489004
"""Two-sided 99 % quantile, for where many figures are looked at."""


@dataclass(frozen=True)
class Proportion:
    """`hits` of `trials`; a tie may count half a hit."""

    hits: float
    trials: int

    @property
    def value(self) -> float | None:
        return None if self.trials == 0 else self.hits / self.trials

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's score interval of 95 % (J. Am. Stat. Assoc. 22, 1927)."""
        return self.compute_interval(Z_95)

    def compute_interval(self, quantile: float) -> tuple[float, float] | None:
        if self.trials == 0:
            return None
        share, weight = self.hits / self.trials, quantile**2 / self.trials
        middle = share + weight / 2
        spread = quantile * math.sqrt(share * (1 - share) / self.trials + weight / (4 * self.trials))
        return max(0.0, (middle - spread) / (1 + weight)), min(1.0, (middle + spread) / (1 + weight))


def compute_mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean by the normal distribution, for some dozens of values. None below two."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    spread = Z_95 * math.sqrt(variance / len(values))
    return mean - spread, mean + spread


def compute_intraclass_correlation(repeats: Sequence[tuple[float, float]]) -> float | None:
    """ICC(1,1) of Shrout and Fleiss (1979): single ratings, one-way random effects, two ratings of each thing. None
    below two things, or where nothing differs at all."""
    if len(repeats) < 2:
        return None
    means = [(one + other) / 2 for one, other in repeats]
    grand = math.fsum(means) / len(means)
    between = 2 * math.fsum((mean - grand) ** 2 for mean in means) / (len(means) - 1)
    within = math.fsum((one - other) ** 2 / 2 for one, other in repeats) / len(repeats)
    return None if between + within == 0 else (between - within) / (between + within)
