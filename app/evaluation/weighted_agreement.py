"""Agreement of two raters from weighted items, with intervals by the unit that repeats. Pure.

Labels come from a queue that prefers doubtful items, so every item has a weight (`weigh_draws`), and figures are ratios
of weighted sums (Hájek). Intervals resample whole units, such as all that was labelled of one task.
"""

import math
import random
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.intervals import Proportion
from app.evaluation.label_agreement import AgreementFigure
from app.evaluation.resampling import compute_quantile, compute_tail

RESAMPLES: Final = 1_000
_SAME: Final = 1e-9
Table = Mapping[tuple[int, int], float]
"""Weight by the classes that both raters chose."""


@dataclass(frozen=True)
class StratumDraw:
    """How the queue came to an item. `probability` is that with which this draw chose it out of what was left of its
    stratum, `other_probability` that of an item of the other kind: targets, or those that are none."""

    stratum: Hashable
    target: bool
    probability: float
    other_probability: float
    population: int


def weigh_draws(draws: Sequence[StratumDraw]) -> tuple[float, ...]:
    """A weight for each draw: one over the inclusion probability, which is that of not being passed over by every draw
    of the stratum. Within a kind all items have the same. Strata count by the items that they have. The weights have
    the mean 1."""
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, draw in enumerate(draws):
        places[draw.stratum].append(place)
    weights = [0.0] * len(draws)
    for members in places.values():
        own = [draws[place] for place in members]
        included = {target: _compute_inclusion(own, target=target) for target in {one.target for one in own}}
        raw = [1 / included[one.target] for one in own]
        size = max(one.population for one in own) / math.fsum(raw)
        for place, weight in zip(members, raw, strict=True):
            weights[place] = weight * size
    mean = math.fsum(weights) / len(weights) if weights else 1.0
    return tuple(weight / mean for weight in weights)


def _compute_inclusion(draws: Sequence[StratumDraw], *, target: bool) -> float:
    chances = [one.probability if one.target == target else one.other_probability for one in draws]
    if max(chances) >= 1.0:
        return 1.0
    return -math.expm1(math.fsum(math.log1p(-chance) for chance in chances))


def compute_effective_number(weights: Iterable[float]) -> float:
    """Kish's: as many items of equal weight would say as much."""
    known = [weight for weight in weights if weight > 0]
    total = math.fsum(known)
    return total * total / math.fsum(weight * weight for weight in known) if known else 0.0


def build_table(rows: Iterable[tuple[int, int, float]]) -> dict[tuple[int, int], float]:
    table: defaultdict[tuple[int, int], float] = defaultdict(float)
    for one, other, weight in rows:
        table[one, other] += weight
    return dict(table)


def compute_observed_agreement(table: Table) -> float | None:
    total = math.fsum(table.values())
    return math.fsum(weight for (one, other), weight in table.items() if one == other) / total if total else None


def compute_margins(table: Table, classes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The shares of each class, by the first and by the second rater."""
    total = math.fsum(table.values()) or 1.0
    rows, columns = [0.0] * classes, [0.0] * classes
    for (one, other), weight in table.items():
        rows[one] += weight / total
        columns[other] += weight / total
    return tuple(rows), tuple(columns)


def compute_kappa(table: Table, classes: int) -> float | None:
    """Cohen's kappa with quadratic weights, which for two classes is the plain one. None where both raters used one
    class alone, so that it is not defined."""
    total = math.fsum(table.values())
    if not total:
        return None
    rows, columns = compute_margins(table, classes)
    seen = math.fsum((one - other) ** 2 * weight for (one, other), weight in table.items()) / total
    chance = math.fsum(
        (one - other) ** 2 * rows[one] * columns[other] for one in range(classes) for other in range(classes)
    )
    return 1 - seen / chance if chance > 1e-12 else None


def compute_pabak(table: Table, classes: int) -> float | None:
    """Kappa as it would be if all classes were equally frequent (Byrt, Bishop and Carlin, 1993)."""
    agreed = compute_observed_agreement(table)
    return None if agreed is None else (classes * agreed - 1) / (classes - 1)


def compute_ac1(table: Table, classes: int) -> float | None:
    """Gwet's AC1 (Br. J. Math. Stat. Psychol. 61, 2008)."""
    agreed = compute_observed_agreement(table)
    if agreed is None:
        return None
    rows, columns = compute_margins(table, classes)
    shares = [(one + other) / 2 for one, other in zip(rows, columns, strict=True)]
    chance = math.fsum(share * (1 - share) for share in shares) / (classes - 1)
    return (agreed - chance) / (1 - chance) if chance < 1 else None


def compute_bias(table: Table) -> float | None:
    """The mean difference: the second rater's class less the first's."""
    total = math.fsum(table.values())
    return math.fsum((other - one) * weight for (one, other), weight in table.items()) / total if total else None


def compute_auc(rows: Iterable[tuple[bool, float, float]]) -> float | None:
    """How often a sound item has a higher value than a defective one, a tie counting half: rows are defective, value,
    weight. None without both kinds."""
    sound: defaultdict[float, float] = defaultdict(float)
    faulty: defaultdict[float, float] = defaultdict(float)
    for defective, value, weight in rows:
        (faulty if defective else sound)[value] += weight
    total = math.fsum(sound.values()) * math.fsum(faulty.values())
    if not total:
        return None
    values = sorted(faulty)
    below = [0.0]
    for value in values:
        below.append(below[-1] + faulty[value])
    won = (
        weight * (below[bisect_left(values, value)] + below[bisect_right(values, value)]) / 2
        for value, weight in sound.items()
    )
    return math.fsum(won) / total


@dataclass(frozen=True)
class Bootstrap:
    """Resamples units. The same units always get the same interval."""

    seed: int = 0
    resamples: int = RESAMPLES

    def estimate(
        self,
        units: Sequence[Hashable],
        figure: Callable[[Mapping[Hashable, int]], float | None],
        least: float = 0.0,
    ) -> AgreementFigure:
        """`figure` of how often each unit counts. The percentile interval is expanded for few units (Hesterberg, arXiv
        1411.5279). Resamples in which the figure is not defined are left out. Where all units say the same, Wilson's
        interval for zero successes bounds the share of units that would say something else, from `least` to 1."""
        named = sorted(set(units), key=str)
        value = figure(dict.fromkeys(named, 1))
        if value is None or len(named) < 2:
            return AgreementFigure(value=value, trials=len(named))
        chance = random.Random(f"units {self.seed}")  # noqa: S311
        found = []
        for _ in range(self.resamples):
            counts: defaultdict[Hashable, int] = defaultdict(int)
            for unit in chance.choices(named, k=len(named)):
                counts[unit] += 1
            if (again := figure(counts)) is not None:
                found.append(again)
        ordered, tail = sorted(found), compute_tail(len(named))
        if not ordered or ordered[-1] - ordered[0] < _SAME:
            unseen = (Proportion(0, len(named)).interval or (0.0, 1.0))[1]
            low, high = value - unseen * (value - least), value + unseen * (1.0 - value)
            return AgreementFigure(value=value, low=low, high=high, trials=len(named))
        low, high = compute_quantile(ordered, tail), compute_quantile(ordered, 1 - tail)
        return AgreementFigure(value=value, low=low, high=high, trials=len(named))
