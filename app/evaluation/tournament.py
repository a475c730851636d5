"""Tournaments: who met whom on which task, what the judge read, and the strengths that follow.

A judge reads every pair in both orders. Of a reading that shows `i` before `j` the three outcomes have the weights

    `i` is better   exp(strength_i + position)
    a tie           exp(tie + (strength_i + strength_j + position) / 2)
    `j` is better   exp(strength_j)

That is Bradley and Terry's model with Davidson's ties (J. Am. Stat. Assoc. 65, 1970) and an effect of position
(Davidson and Beaver, Biometrics 33, 1977). In these terms it is a multinomial logit, whose log likelihood is concave:
Newton's method finds the only maximum. A weak prior sees to cases without one, such as who has never lost (Hunter, Ann.
Stat. 32, 2004).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AwareDatetime

from app.evaluation.duels import (
    Duel,
    LabelStandings,
    PairRow,
    PositionEffect,
    StandingRow,
    TournamentReport,
    TournamentSetup,
    UndecidedRow,
)
from app.evaluation.report import FEW_TASKS, Caution, MeanEstimate, Resampler, bound_resampled

# Strengths from pairs that a judge read in both orders

_PRIOR_SPREAD: Final = 3.0
"""Standard deviation of the normal prior of each parameter: a strength of 3 wins 95 in 100 with one of 0."""
RESAMPLES: Final = 1_000
_STEPS: Final = 100
_LONGEST_STEP: Final = 2.0
"""Of any parameter: a whole step of Newton's method may overshoot."""
_CONVERGED: Final = 1e-10
_AT_ONCE: Final = 250
"""Resamples that are fitted together, which bounds the memory."""

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


def count_readings(contestants: int, readings: Sequence[PairReading]) -> Floats:
    """How often each outcome was read, by first, second and outcome."""
    counts = np.zeros((contestants, contestants, 3))
    for reading in readings:
        counts[reading.first, reading.second, reading.outcome] += 1
    return counts


def fit_strengths(counts: Floats, prior_spread: float = _PRIOR_SPREAD) -> Strengths:
    return _read_strengths(_fit_parameters(counts[None], prior_spread)[0])


def resample_strengths(
    tasks: Sequence[Floats], seed: int, resamples: int = RESAMPLES, prior_spread: float = _PRIOR_SPREAD
) -> list[Strengths]:
    """Fits of tasks drawn with replacement; `tasks` are the counts of each task."""
    stacked = np.stack(tasks)
    draws = np.random.default_rng(seed).multinomial(len(tasks), np.full(len(tasks), 1 / len(tasks)), size=resamples)
    fits: list[Strengths] = []
    for begin in range(0, resamples, _AT_ONCE):
        drawn = np.tensordot(draws[begin : begin + _AT_ONCE].astype(np.float64), stacked, axes=1)
        fits += map(_read_strengths, _fit_parameters(drawn, prior_spread))
    return fits


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


def _read_strengths(parameters: Floats) -> Strengths:
    *strengths, tie, position = (float(each) for each in parameters)
    return Strengths(tuple(strengths), tie, position)


def _fit_parameters(counts: Floats, prior_spread: float) -> Floats:
    """One row of the likeliest parameters for each of the tables of counts."""
    contestants = counts.shape[1]
    first, second = np.nonzero(~np.eye(contestants, dtype=bool))
    features = _build_features(contestants, first, second)
    seen = counts[:, first, second, :]
    totals = seen.sum(axis=2)
    precision = np.eye(features.shape[2]) / prior_spread**2
    parameters = np.zeros((len(counts), features.shape[2]))
    for _ in range(_STEPS):
        logits = np.einsum("pod,bd->bpo", features, parameters)
        odds = np.exp(logits - logits.max(axis=2, keepdims=True))  # less their maximum, else they could overflow
        shares = odds / odds.sum(axis=2, keepdims=True)
        expected = totals[:, :, None] * shares
        slope = np.einsum("bpo,pod->bd", seen - expected, features) - parameters @ precision
        means = np.einsum("bpo,pod->bpd", shares, features)
        curvature = np.einsum("bpo,pod,poe->bde", expected, features, features, optimize=True)
        curvature += precision - np.einsum("bp,bpd,bpe->bde", totals, means, means, optimize=True)
        step = np.linalg.solve(curvature, slope[:, :, None])[:, :, 0]
        reach = np.abs(step).max(axis=1, keepdims=True)
        if reach.max() < _CONVERGED:
            break
        parameters = parameters + step * np.minimum(1.0, _LONGEST_STEP / reach.clip(_CONVERGED))
    return parameters


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


# Tables of strengths: of all decided duels, and of those with each label

_SAME: Final = 1e-6
"""Smaller strengths are rounding errors."""
_OUTCOMES: Final = {("one", "one"): 0, ("other", "other"): 0, ("one", "other"): 2, ("other", "one"): 2}
"""By who was shown first and who was better; what is not here is a tie."""


@dataclass(frozen=True)
class _StrengthTable:
    """Decided duels with what is fitted to them."""

    names: Sequence[str]
    duels: Sequence[Duel]
    counts: Mapping[str, Floats]
    """By task."""
    fit: Strengths
    drawn: Sequence[Strengths]
    """Fits of resampled tasks; none for a single task."""

    @classmethod
    def build(cls, names: Sequence[str], duels: Sequence[Duel], seed: int) -> "_StrengthTable":
        """With expanded percentile intervals over tasks, as for means."""
        by_task: dict[str, list[Duel]] = {}
        for duel in duels:
            by_task.setdefault(duel.task_id, []).append(duel)
        counts = {task: _count_duels(len(names), some) for task, some in by_task.items()}
        fit = fit_strengths(sum(counts.values(), start=count_readings(len(names), [])))
        drawn = resample_strengths(list(counts.values()), seed) if len(counts) > 1 else []
        return cls(names, duels, counts, fit, drawn)

    def estimate(self, value: float, drawn: Sequence[float]) -> MeanEstimate:
        if not drawn:
            return MeanEstimate(value=value, tasks=len(self.counts))
        low, high = bound_resampled(sorted(drawn), len(self.counts))
        return MeanEstimate(value=value, low=min(low, value), high=max(high, value), tasks=len(self.counts))


def _iter_labels(whole: _StrengthTable, seed: int) -> Iterator[LabelStandings]:
    """In alphabetical order; none where there is only one label."""
    labels = sorted({duel.label for duel in whole.duels if duel.label is not None})
    for label in labels if len(labels) > 1 else ():
        table = _StrengthTable.build(whole.names, [duel for duel in whole.duels if duel.label == label], seed)
        yield LabelStandings(label=label, tasks=len(table.counts), standings=_rank_contestants(table))


def _count_duels(contestants: int, duels: Sequence[Duel]) -> Floats:
    return count_readings(contestants, [reading for duel in duels for reading in _iter_readings(duel)])


def _iter_readings(duel: Duel) -> Iterator[PairReading]:
    for reading in duel.readings:
        first, second = (duel.one, duel.other) if reading.shown_first == "one" else (duel.other, duel.one)
        yield PairReading(first, second, _OUTCOMES.get((reading.shown_first, reading.better), 1))


def _rank_contestants(table: _StrengthTable) -> tuple[StandingRow, ...]:
    """Without those who have no duel."""
    met = {contestant for duel in table.duels for contestant in (duel.one, duel.other)}
    rows = [_build_standing(table, contestant, met) for contestant in sorted(met)]
    return tuple(sorted(rows, key=lambda row: -(row.strength.value or 0.0)))


def _build_standing(table: _StrengthTable, contestant: int, met: Collection[int]) -> StandingRow:
    shares = [
        share if duel.one == contestant else 1.0 - share
        for duel in table.duels
        if contestant in (duel.one, duel.other) and (share := duel.share) is not None
    ]
    return StandingRow(
        name=table.names[contestant],
        strength=table.estimate(table.fit.strengths[contestant], [one.strengths[contestant] for one in table.drawn]),
        share=table.estimate(
            table.fit.compute_field_share(contestant, met),
            [one.compute_field_share(contestant, met) for one in table.drawn],
        ),
        **_count_outcomes(shares),
    )


def _count_outcomes(shares: Sequence[float]) -> dict[str, int]:
    won, lost = sum(share > 0.5 for share in shares), sum(share < 0.5 for share in shares)
    return {"duels": len(shares), "won": won, "tied": len(shares) - won - lost, "lost": lost}


def _iter_pairs(table: _StrengthTable, resampler: Resampler) -> Iterator[PairRow]:
    for one in range(len(table.names)):
        for other in range(one + 1, len(table.names)):
            met = [duel for duel in table.duels if (duel.one, duel.other) == (one, other)]
            shares = [share for duel in met if (share := duel.share) is not None]
            if not shares:
                continue
            difference = table.estimate(
                table.fit.strengths[one] - table.fit.strengths[other],
                [each.strengths[one] - each.strengths[other] for each in table.drawn],
            )
            yield PairRow(
                one=table.names[one],
                other=table.names[other],
                share=resampler.estimate(shares),
                difference=difference,
                verdict=_decide(difference),
                **_count_outcomes(shares),
            )


def _decide(difference: MeanEstimate) -> Literal["better", "worse", "undecided"]:
    """By whether the interval of the difference has 0 in it."""
    if difference.low is None or difference.high is None or (difference.low <= _SAME and difference.high >= -_SAME):
        return "undecided"
    return "better" if difference.low > 0 else "worse"


# The report, built from the duels

_PAIR_RESAMPLES: Final = 2_000


def build_tournament_report(
    setup: TournamentSetup, duels: Sequence[Duel], notice: str, finished_at: AwareDatetime | None
) -> TournamentReport:
    decided = [duel for duel in duels if duel.readings]
    names = [contestant.name for contestant in setup.contestants]
    table = _StrengthTable.build(names, decided, setup.seed)
    prices = [duel.usd for duel in duels if duel.calls]
    reasons = Counter(duel.reason or "not judged yet" for duel in duels if not duel.readings)
    return TournamentReport(
        notice=notice,
        setup=setup,
        finished_at=finished_at,
        cautions=tuple(_iter_cautions(table, len(duels))),
        tasks=len(table.counts),
        planned=len(duels),
        decided=len(decided),
        by_gate=sum(duel.decided_by == "gate" for duel in decided),
        same=sum(duel.decided_by == "same" for duel in decided),
        standings=_rank_contestants(table),
        pairs=tuple(_iter_pairs(table, Resampler(setup.seed, _PAIR_RESAMPLES))),
        labels=tuple(_iter_labels(table, setup.seed)),
        position=_measure_position(decided),
        undecided=tuple(UndecidedRow(reason=reason, duels=count) for reason, count in reasons.most_common()),
        calls=sum(duel.calls for duel in duels),
        usd=None if None in prices else sum(price for price in prices if price is not None),
        duels=tuple(duels),
    )


def _measure_position(duels: Sequence[Duel]) -> PositionEffect:
    """Of what the judge read: gates and equal replies know no position."""
    judged = [duel for duel in duels if duel.decided_by == "judge"]
    outcomes = Counter(reading.outcome for duel in judged for reading in _iter_readings(duel))
    return PositionEffect(
        readings=outcomes.total(),
        first=outcomes[0],
        tied=outcomes[1],
        second=outcomes[2],
        duels=len(judged),
        contradicted=sum(duel.is_contradicted for duel in judged),
    )


def _iter_cautions(table: _StrengthTable, planned: int) -> Iterator[Caution]:
    parts = [part for part in find_components(_count_duels(len(table.names), table.duels)) if len(part) > 1]
    if len(parts) > 1:
        groups = "; ".join(", ".join(table.names[member] for member in sorted(part)) for part in parts)
        yield Caution(code="apart", text=f"These never met, so their strengths do not compare: {groups}.")
    if missing := planned - len(table.duels):
        yield Caution(code="incomplete", text=f"{missing:,} of {planned:,} duels have no outcome and are left out.")
    if len(table.counts) < FEW_TASKS:
        text = f"Only {len(table.counts)} tasks: intervals are rough, and small differences cannot be detected."
        yield Caution(code="few_tasks", text=text)
    position = _measure_position(table.duels)
    if position.duels and position.contradicted > position.duels / 3:
        text = (
            f"In {position.contradicted:,} of {position.duels:,} duels each order had another winner: the judge "
            "follows the position. Both orders cancel it, but little is left that says who is better."
        )
        yield Caution(code="position", text=text)
