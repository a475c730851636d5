"""Strengths by label, such as a character, where most labels have few duels: partial pooling.

A contestant's strength with a label is its strength over all duels plus a deviation. Deviations are normal around 0,
with one spread for all labels. The spread is not known: a grid of values is weighted by how likely each makes the
duels, and by a half-normal prior (Gelman, Bayesian Anal. 1, 2006, on priors of spreads). So few duels say little, and
labels that hardly differ are hardly told apart. Ties and the effect of position are the judge's: those of all duels.

Readings of a task are alike: two orders, and each reply in several duels. So a task counts as much as one reading for
each of its replies but one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from app.evaluation.bradley_terry import Floats, ParameterFits, Prior, Strengths, fit_parameters, read_strengths

SPREADS: Final[Floats] = np.linspace(0.05, 3.0, 30)
"""Standard deviations of a strength from label to label, in logarithms of odds."""
LIKELY_SPREAD: Final = 1.0
"""Scale of their half-normal prior: 95 in 100 of its mass is below 2."""
DRAWS: Final = 1_000
_HELD: Final = 1e-3
"""Standard deviation of what is the same for all labels."""


@dataclass(frozen=True)
class PooledFit:
    """Strengths with one label. `drawn`: values that the duels allow, each with the strengths over all labels that it
    was drawn with."""

    fit: Strengths
    drawn: Sequence[Strengths]
    drawn_overall: Sequence[Strengths]


@dataclass(frozen=True)
class PooledFits:
    spread: float
    """The expected standard deviation of a strength from label to label."""
    labels: Sequence[PooledFit]


def weigh_task(counts: Floats) -> Floats:
    """The readings of a task, so that they count as one for each reply but one."""
    met = counts.sum(axis=2)
    replies, readings = int(((met + met.T).sum(axis=1) > 0).sum()), float(counts.sum())
    return counts * ((replies - 1) / readings) if readings else counts


def pool_strengths(
    overall: Strengths, drawn_overall: Sequence[Strengths], labels: Sequence[Sequence[Floats]], seed: int
) -> PooledFits:
    """`labels` have the counts of each of their tasks. `drawn_overall` are fits of resampled tasks, one or more."""
    counts = np.stack([np.sum([weigh_task(task) for task in tasks], axis=0) for tasks in labels])
    centre = _list_parameters(overall)
    by_spread = [fit_parameters(counts, _build_prior(centre, float(spread))) for spread in SPREADS]
    weights = _weigh_spreads([float(fits.evidence.sum()) for fits in by_spread])
    random = np.random.default_rng(seed)
    chosen = random.choice(len(SPREADS), DRAWS, p=weights)
    centres = np.array([_list_parameters(drawn_overall[draw % len(drawn_overall)]) for draw in range(DRAWS)])
    told = [read_strengths(each) for each in centres]
    found = []
    for place in range(len(labels)):
        fits = [_place_fit(fit, place) for fit in by_spread]
        value = np.einsum("s,sd->d", weights, np.stack([fit.parameters for fit in fits]))
        drawn = _draw_parameters(fits, chosen, centres - centre, random)
        found.append(PooledFit(read_strengths(value), [read_strengths(each) for each in drawn], told))
    return PooledFits(float(weights @ SPREADS), found)


def _weigh_spreads(evidence: Sequence[float]) -> Floats:
    logs = np.array(evidence) - (SPREADS / LIKELY_SPREAD) ** 2 / 2
    weights = np.exp(logs - logs.max())
    shares: Floats = weights / weights.sum()
    return shares


def _build_prior(centre: Floats, spread: float) -> Prior:
    spreads = np.full(len(centre), spread)
    spreads[-2:] = _HELD
    return Prior(centre, 1 / spreads**2)


def _list_parameters(one: Strengths) -> Floats:
    return np.array([*one.strengths, one.tie, one.position])


def _place_fit(fits: ParameterFits, place: int) -> ParameterFits:
    return ParameterFits(fits.parameters[place], fits.curvature[place], fits.evidence[place])


def _draw_parameters(
    fits: Sequence[ParameterFits], chosen: npt.NDArray[np.int64], away: Floats, random: np.random.Generator
) -> Floats:
    """One draw for each chosen spread; `away` is how far its centre lies from the one that was fitted with. What of it
    reaches a label is what the label's own duels do not settle."""
    centre_size = away.shape[1]
    drawn = np.empty((len(chosen), centre_size))
    for spread in np.unique(chosen):
        rows = np.flatnonzero(chosen == spread)
        inverse = np.linalg.inv(fits[spread].curvature)
        reach = inverse @ np.diag(_build_prior(np.zeros(centre_size), float(SPREADS[spread])).precisions)
        noise = random.standard_normal((len(rows), centre_size)) @ np.linalg.cholesky(inverse).T
        drawn[rows] = fits[spread].parameters + away[rows] @ reach.T + noise
    strengths = drawn[:, :-2]
    drawn[:, :-2] = strengths - strengths.mean(axis=1, keepdims=True)
    return drawn
