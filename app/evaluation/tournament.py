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
    LabelProfile,
    LabelStandings,
    PairRow,
    PositionEffect,
    ProfileRow,
    StandingRow,
    TournamentReport,
    TournamentSetup,
    UndecidedRow,
)
from app.evaluation.report import FEW_TASKS, Caution, MeanEstimate, Resampler, compute_quantile, compute_tail

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
_LEAST_SHARE: Final = 1e-300
"""Keeps the logarithm finite where a share underflows."""

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
class _Prior:
    """Normal, by parameter: strengths, then tie, then position."""

    means: Floats
    precisions: Floats

    @classmethod
    def build(cls, contestants: int, spread: float) -> "_Prior":
        """Around 0."""
        return cls(np.zeros(contestants + 2), np.full(contestants + 2, 1 / spread**2))


@dataclass(frozen=True)
class _ParameterFits:
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


def fit_strengths(counts: Floats, prior_spread: float = _PRIOR_SPREAD) -> Strengths:
    return _read_strengths(_fit_parameters(counts[None], _Prior.build(counts.shape[1], prior_spread)).parameters[0])


def resample_strengths(
    tasks: Sequence[Floats], seed: int, resamples: int = RESAMPLES, prior_spread: float = _PRIOR_SPREAD
) -> list[Strengths]:
    """Fits of tasks drawn with replacement; `tasks` are the counts of each task."""
    stacked = np.stack(tasks)
    draws = np.random.default_rng(seed).multinomial(len(tasks), np.full(len(tasks), 1 / len(tasks)), size=resamples)
    prior = _Prior.build(stacked.shape[1], prior_spread)
    fits: list[Strengths] = []
    for begin in range(0, resamples, _AT_ONCE):
        drawn = np.tensordot(draws[begin : begin + _AT_ONCE].astype(np.float64), stacked, axes=1)
        fits += map(_read_strengths, _fit_parameters(drawn, prior).parameters)
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


def _fit_parameters(counts: Floats, prior: _Prior) -> _ParameterFits:
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
        odds = np.exp(logits - logits.max(axis=2, keepdims=True))  # less their maximum, else they could overflow
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
    return _ParameterFits(
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


# Strengths by label, such as a character, where most labels have few duels: partial pooling. A contestant's strength
# with a label is its strength over all duels plus a deviation, normal around 0, with one spread for all labels. The
# spread is not known: a grid of values is weighted by how likely each makes the duels, and by a half-normal prior
# (Gelman, Bayesian Anal. 1, 2006). So few duels say little. Readings of one task are alike, so a task counts as one for
# each reply but one.

SPREADS: Final[Floats] = np.linspace(0.05, 3.0, 30)
"""Standard deviations of a strength from label to label, in logarithms of odds."""
LIKELY_SPREAD: Final = 1.0
"""Scale of their half-normal prior: 95 in 100 of its mass is below 2."""
_DRAWS: Final = 1_000
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
    by_spread = [_fit_parameters(counts, _build_prior(centre, float(spread))) for spread in SPREADS]
    weights = _weigh_spreads([float(fits.evidence.sum()) for fits in by_spread])
    random = np.random.default_rng(seed)
    chosen = random.choice(len(SPREADS), _DRAWS, p=weights)
    centres = np.array([_list_parameters(drawn_overall[draw % len(drawn_overall)]) for draw in range(_DRAWS)])
    overall_draws = [_read_strengths(each) for each in centres]
    pooled = []
    for label in range(len(labels)):
        fits = [_take_fit(fit, label) for fit in by_spread]
        value = np.einsum("s,sd->d", weights, np.stack([fit.parameters for fit in fits]))
        drawn = _draw_parameters(fits, chosen, centres - centre, random)
        pooled.append(PooledFit(_read_strengths(value), [_read_strengths(each) for each in drawn], overall_draws))
    return PooledFits(float(weights @ SPREADS), pooled)


def _weigh_spreads(evidence: Sequence[float]) -> Floats:
    logs = np.array(evidence) - (SPREADS / LIKELY_SPREAD) ** 2 / 2
    weights = np.exp(logs - logs.max())
    shares: Floats = weights / weights.sum()
    return shares


def _build_prior(centre: Floats, spread: float) -> _Prior:
    spreads = np.full(len(centre), spread)
    spreads[-2:] = _HELD
    return _Prior(centre, 1 / spreads**2)


def _list_parameters(one: Strengths) -> Floats:
    return np.array([*one.strengths, one.tie, one.position])


def _take_fit(fits: _ParameterFits, label: int) -> _ParameterFits:
    return _ParameterFits(fits.parameters[label], fits.curvature[label], fits.evidence[label])


def _draw_parameters(
    fits: Sequence[_ParameterFits], chosen: npt.NDArray[np.int64], away: Floats, random: np.random.Generator
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


# Tables of strengths: of all decided duels, and with each label

_SAME: Final = 1e-6
"""Smaller strengths are rounding errors."""
_TAIL: Final = 0.025
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
    """Fits of resampled tasks; none for a single task. With a label, values that its duels allow."""
    tail: float
    """What lies beyond each end of an interval of 95 %, among the drawn."""

    @classmethod
    def build(cls, names: Sequence[str], duels: Sequence[Duel], seed: int) -> "_StrengthTable":
        """With expanded percentile intervals over tasks, as for means."""
        by_task: dict[str, list[Duel]] = {}
        for duel in duels:
            by_task.setdefault(duel.task_id, []).append(duel)
        counts = {task: _count_duels(len(names), some) for task, some in by_task.items()}
        fit = fit_strengths(sum(counts.values(), start=count_readings(len(names), [])))
        drawn = resample_strengths(list(counts.values()), seed) if len(counts) > 1 else []
        return cls(names, duels, counts, fit, drawn, compute_tail(len(counts)) if drawn else _TAIL)

    def estimate(self, value: float, drawn: Sequence[float]) -> MeanEstimate:
        if not drawn:
            return MeanEstimate(value=value, tasks=len(self.counts))
        ordered = sorted(drawn)
        low, high = compute_quantile(ordered, self.tail), compute_quantile(ordered, 1.0 - self.tail)
        return MeanEstimate(value=value, low=min(low, value), high=max(high, value), tasks=len(self.counts))


@dataclass(frozen=True)
class _LabelFit:
    standings: LabelStandings
    table: _StrengthTable
    fit: Strengths
    """Over all labels."""
    drawn: Sequence[Strengths]
    """Over all labels, with each draw of the table."""

    def build_profile_row(self, standing: StandingRow) -> ProfileRow:
        contestant = self.table.names.index(standing.name)
        here = [one.strengths[contestant] for one in self.table.drawn]
        overall = [one.strengths[contestant] for one in self.drawn]
        difference = self.table.estimate(
            self.table.fit.strengths[contestant] - self.fit.strengths[contestant],
            [one - other for one, other in zip(here, overall, strict=True)],
        )
        return ProfileRow(
            label=self.standings.label,
            tasks=self.standings.tasks,
            standing=standing,
            difference=difference,
            verdict=_decide(difference),
        )


@dataclass(frozen=True)
class _LabelFits:
    names: Sequence[str]
    labels: Sequence[_LabelFit] = ()
    spread: float | None = None

    def list_standings(self) -> tuple[LabelStandings, ...]:
        return tuple(one.standings for one in self.labels)

    def list_profiles(self) -> tuple[LabelProfile, ...]:
        rows: dict[str, list[ProfileRow]] = {name: [] for name in reversed(self.names)}
        for one in self.labels:
            for standing in one.standings.standings:
                rows[standing.name].append(one.build_profile_row(standing))
        return tuple(
            LabelProfile(name=name, rows=tuple(sorted(ranked, key=lambda row: -(row.standing.share.value or 0.0))))
            for name, ranked in rows.items()
            if ranked
        )


def _fit_labels(whole: _StrengthTable, seed: int) -> _LabelFits:
    """In alphabetical order; none where there is only one label."""
    by_label: dict[str, list[Duel]] = {}
    for duel in whole.duels:
        if duel.label is not None:
            by_label.setdefault(duel.label, []).append(duel)
    if len(by_label) < 2 or not whole.drawn:
        return _LabelFits(whole.names)
    counts = {
        label: {duel.task_id: whole.counts[duel.task_id] for duel in by_label[label]} for label in sorted(by_label)
    }
    pooled = pool_strengths(whole.fit, whole.drawn, [list(each.values()) for each in counts.values()], seed)
    tables = [
        _StrengthTable(whole.names, by_label[label], counts[label], fit.fit, fit.drawn, _TAIL)
        for label, fit in zip(counts, pooled.labels, strict=True)
    ]
    fits = [
        _LabelFit(
            LabelStandings(label=label, tasks=len(counts[label]), standings=_rank_contestants(table)),
            table,
            whole.fit,
            fit.drawn_overall,
        )
        for label, table, fit in zip(counts, tables, pooled.labels, strict=True)
    ]
    return _LabelFits(whole.names, fits, pooled.spread)


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
    labels = _fit_labels(table, setup.seed)
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
        labels=labels.list_standings(),
        profiles=labels.list_profiles(),
        label_spread=labels.spread,
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
