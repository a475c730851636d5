"""Strengths from pairs that a judge read in both orders: Bradley and Terry's model with ties and an effect of position.

Of a reading that shows `i` before `j` the three outcomes have the weights

    `i` is better   exp(strength_i + position)
    a tie           exp(tie + (strength_i + strength_j + position) / 2)
    `j` is better   exp(strength_j)

Ties are Davidson's (J. Am. Stat. Assoc. 65, 1970), the position is Davidson and Beaver's (Biometrics 33, 1977). In
these terms it is a multinomial logit, whose log likelihood is concave: Newton's method finds the only maximum. Hunter
(Ann. Stat. 32, 2004) says when there is one; a weak prior sees to the other cases, such as who has never lost.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

PRIOR_SPREAD: Final = 3.0
"""Standard deviation of the normal prior of each parameter: a strength of 3 wins 95 in 100 with one of 0."""
RESAMPLES: Final = 1_000
_STEPS: Final = 100
_LONGEST_STEP: Final = 2.0
_CONVERGED: Final = 1e-10
_AT_ONCE: Final = 250
_LEAST_SHARE: Final = 1e-300

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PairReading:
    """`first` was shown before `second`. `outcome`: 0 where the first was better, 1 for a tie, 2 for the second."""

    first: int
    second: int
    outcome: int


@dataclass(frozen=True)
class Strengths:
    """In logarithms of odds. Strengths add up to 0."""

    strengths: tuple[float, ...]
    tie: float
    position: float

    def compute_share(self, one: int, other: int) -> float:
        """The expected share of duels that `one` wins against `other`, ties as half, over both orders."""
        first = _compute_share(self.strengths[one] + self.position, self.strengths[other], self.tie)
        second = _compute_share(self.strengths[other] + self.position, self.strengths[one], self.tie)
        return (first + 1.0 - second) / 2

    def compute_field_share(self, one: int, field: Collection[int]) -> float:
        """Against the others of a field, each counting as much. 1 without others."""
        shares = [self.compute_share(one, other) for other in sorted(field) if other != one]
        return sum(shares) / len(shares) if shares else 1.0


def _compute_share(first: float, second: float, tie: float) -> float:
    middle = tie + (first + second) / 2
    most = max(first, middle, second)
    won, tied, lost = math.exp(first - most), math.exp(middle - most), math.exp(second - most)
    return (won + tied / 2) / (won + tied + lost)


@dataclass(frozen=True)
class Prior:
    """Normal, by parameter: strengths, then tie, then position."""

    means: Floats
    precisions: Floats

    @classmethod
    def build(cls, contestants: int, spread: float) -> "Prior":
        """Around 0."""
        return cls(np.zeros(contestants + 2), np.full(contestants + 2, 1 / spread**2))


@dataclass(frozen=True)
class ParameterFits:
    """By table of counts: the likeliest parameters, the curvature there, and the logarithm of how likely the counts are
    under the prior, by Laplace's method and but for a constant."""

    parameters: Floats
    curvature: Floats
    evidence: Floats


def count_readings(contestants: int, readings: Sequence[PairReading]) -> Floats:
    """How often each outcome was read, by first, second and outcome."""
    counts = np.zeros((contestants, contestants, 3))
    for reading in readings:
        counts[reading.first, reading.second, reading.outcome] += 1
    return counts


def fit_strengths(counts: Floats, prior_spread: float = PRIOR_SPREAD) -> Strengths:
    return read_strengths(fit_parameters(counts[None], Prior.build(counts.shape[1], prior_spread)).parameters[0])


def resample_strengths(
    tasks: Sequence[Floats], seed: int, resamples: int = RESAMPLES, prior_spread: float = PRIOR_SPREAD
) -> list[Strengths]:
    """Fits of tasks drawn with replacement; `tasks` are the counts of each task."""
    stacked = np.stack(tasks)
    draws = np.random.default_rng(seed).multinomial(len(tasks), np.full(len(tasks), 1 / len(tasks)), size=resamples)
    prior = Prior.build(stacked.shape[1], prior_spread)
    found: list[Strengths] = []
    for begin in range(0, resamples, _AT_ONCE):
        drawn = np.tensordot(draws[begin : begin + _AT_ONCE].astype(np.float64), stacked, axes=1)
        found += map(read_strengths, fit_parameters(drawn, prior).parameters)
    return found


def find_components(counts: Floats) -> list[set[int]]:
    """Contestants who met, directly or through others. Strengths of several components do not compare."""
    met = counts.sum(axis=2)
    met = met + met.T
    parts: list[set[int]] = []
    for contestant in range(len(met)):
        joined = {contestant} | {int(other) for other in np.flatnonzero(met[contestant])}
        touching = [part for part in parts if part & joined]
        parts = [part for part in parts if not part & joined] + [joined.union(*touching)]
    return parts


def read_strengths(parameters: Floats) -> Strengths:
    *strengths, tie, position = (float(each) for each in parameters)
    return Strengths(tuple(strengths), tie, position)


def fit_parameters(counts: Floats, prior: Prior) -> ParameterFits:
    """Of each of the tables of counts. These may be weighted."""
    contestants = counts.shape[1]
    first, second = np.nonzero(~np.eye(contestants, dtype=bool))
    features = _build_features(contestants, first, second)
    seen = counts[:, first, second, :]
    totals = seen.sum(axis=2)
    precision = np.diag(prior.precisions)
    parameters = np.tile(prior.means, (len(counts), 1))
    for _ in range(_STEPS):
        logits = np.einsum("pod,bd->bpo", features, parameters)
        odds = np.exp(logits - logits.max(axis=2, keepdims=True))
        shares = odds / odds.sum(axis=2, keepdims=True)
        expected = totals[:, :, None] * shares
        away = parameters - prior.means
        slope = np.einsum("bpo,pod->bd", seen - expected, features) - away @ precision
        means = np.einsum("bpo,pod->bpd", shares, features)
        curvature = np.einsum("bpo,pod,poe->bde", expected, features, features, optimize=True)
        curvature += precision - np.einsum("bp,bpd,bpe->bde", totals, means, means, optimize=True)
        step = np.linalg.solve(curvature, slope[:, :, None])[:, :, 0]
        reach = np.abs(step).max(axis=1, keepdims=True)
        if reach.max() < _CONVERGED:
            break
        parameters = parameters + step * np.minimum(1.0, _LONGEST_STEP / reach.clip(_CONVERGED))
    likelihood = (seen * np.log(shares.clip(_LEAST_SHARE))).sum(axis=(1, 2))
    fitted = likelihood - (away**2 @ prior.precisions) / 2
    return ParameterFits(
        parameters,
        curvature,
        fitted + (np.log(prior.precisions).sum() - np.linalg.slogdet(curvature).logabsdet) / 2,
    )


def _build_features(contestants: int, first: npt.NDArray[np.intp], second: npt.NDArray[np.intp]) -> Floats:
    """By ordered pair, outcome and parameter: strengths, then tie, then position."""
    pairs = np.arange(len(first))
    features = np.zeros((len(first), 3, contestants + 2))
    features[pairs, 0, first] = 1.0
    features[pairs, 1, first] = features[pairs, 1, second] = 0.5
    features[pairs, 2, second] = 1.0
    features[:, 1, contestants] = 1.0
    features[:, 0, contestants + 1], features[:, 1, contestants + 1] = 1.0, 0.5
    return features
