"""Builds the report of a tournament from its duels."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import AwareDatetime

from app.evaluation.bradley_terry import (
    RESAMPLES,
    Floats,
    PairReading,
    Strengths,
    count_readings,
    find_components,
    fit_strengths,
    resample_strengths,
)
from app.evaluation.report import Caution
from app.evaluation.report_builder import FEW_TASKS
from app.evaluation.resampling import MeanEstimate, Resampler, compute_quantile, compute_tail
from app.evaluation.tournament import (
    Duel,
    LabelStandings,
    PairRow,
    PositionEffect,
    StandingRow,
    TournamentReport,
    TournamentSetup,
    UndecidedRow,
)

LABEL_RESAMPLES: Final = 400
PAIR_RESAMPLES: Final = 2_000
_SAME: Final = 1e-6
"""Smaller strengths are rounding errors."""
_OUTCOMES: Final = {("one", "one"): 0, ("other", "other"): 0, ("one", "other"): 2, ("other", "one"): 2}
"""By who was shown first and who was better; what is not here is a tie."""


@dataclass(frozen=True)
class _Table:
    """Decided duels with what is fitted to them."""

    names: Sequence[str]
    duels: Sequence[Duel]
    tasks: Sequence[Sequence[Duel]]
    fit: Strengths
    drawn: Sequence[Strengths]
    """Fits of resampled tasks; none for a single task."""

    @classmethod
    def build(cls, names: Sequence[str], duels: Sequence[Duel], seed: int, resamples: int) -> "_Table":
        by_task: dict[str, list[Duel]] = {}
        for duel in duels:
            by_task.setdefault(duel.task_id, []).append(duel)
        tasks = list(by_task.values())
        counts = [count_duels(len(names), some) for some in tasks]
        whole: Floats = sum(counts, start=count_readings(len(names), []))
        drawn = resample_strengths(counts, seed, resamples) if len(counts) > 1 else []
        return cls(names, duels, tasks, fit_strengths(whole), drawn)

    def estimate(self, value: float, drawn: Sequence[float]) -> MeanEstimate:
        """With an expanded percentile interval over tasks, as for means."""
        if not drawn:
            return MeanEstimate(value=value, tasks=len(self.tasks))
        ordered, tail = sorted(drawn), compute_tail(len(self.tasks))
        low, high = compute_quantile(ordered, tail), compute_quantile(ordered, 1.0 - tail)
        return MeanEstimate(value=value, low=min(low, value), high=max(high, value), tasks=len(self.tasks))


def build_tournament_report(
    setup: TournamentSetup, duels: Sequence[Duel], notice: str, finished_at: AwareDatetime | None
) -> TournamentReport:
    decided = [duel for duel in duels if duel.readings]
    names = [contestant.name for contestant in setup.contestants]
    table = _Table.build(names, decided, setup.seed, RESAMPLES)
    prices = [duel.usd for duel in duels if duel.calls]
    reasons = Counter(duel.reason or "not judged yet" for duel in duels if not duel.readings)
    return TournamentReport(
        notice=notice,
        setup=setup,
        finished_at=finished_at,
        cautions=tuple(_iter_cautions(table, len(duels))),
        tasks=len(table.tasks),
        planned=len(duels),
        decided=len(decided),
        by_gate=sum(duel.decided_by == "gate" for duel in decided),
        same=sum(duel.decided_by == "same" for duel in decided),
        standings=_rank_contestants(table),
        pairs=tuple(_iter_pairs(table, Resampler(setup.seed, PAIR_RESAMPLES))),
        labels=tuple(_iter_labels(names, decided, setup.seed)),
        position=_measure_position(decided),
        undecided=tuple(UndecidedRow(reason=reason, duels=count) for reason, count in reasons.most_common()),
        calls=sum(duel.calls for duel in duels),
        usd=None if None in prices else sum(price for price in prices if price is not None),
        duels=tuple(duels),
    )


def count_duels(contestants: int, duels: Sequence[Duel]) -> Floats:
    return count_readings(contestants, [reading for duel in duels for reading in _iter_readings(duel)])


def _iter_readings(duel: Duel) -> Iterator[PairReading]:
    for reading in duel.readings:
        first, second = (duel.one, duel.other) if reading.shown_first == "one" else (duel.other, duel.one)
        yield PairReading(first, second, _OUTCOMES.get((reading.shown_first, reading.better), 1))


def _rank_contestants(table: _Table) -> tuple[StandingRow, ...]:
    """Without those who have no duel."""
    met = {place for duel in table.duels for place in (duel.one, duel.other)}
    rows = [_build_standing(table, place, met) for place in sorted(met)]
    return tuple(sorted(rows, key=lambda row: -(row.strength.value or 0.0)))


def _build_standing(table: _Table, place: int, met: Collection[int]) -> StandingRow:
    shares = [
        share if duel.one == place else 1.0 - share
        for duel in table.duels
        if place in (duel.one, duel.other) and (share := duel.share) is not None
    ]
    return StandingRow(
        name=table.names[place],
        strength=table.estimate(table.fit.strengths[place], [one.strengths[place] for one in table.drawn]),
        share=table.estimate(
            table.fit.compute_field_share(place, met), [one.compute_field_share(place, met) for one in table.drawn]
        ),
        **_count_outcomes(shares),
    )


def _count_outcomes(shares: Sequence[float]) -> dict[str, int]:
    won, lost = sum(share > 0.5 for share in shares), sum(share < 0.5 for share in shares)
    return {"duels": len(shares), "won": won, "tied": len(shares) - won - lost, "lost": lost}


def _iter_pairs(table: _Table, resampler: Resampler) -> Iterator[PairRow]:
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


def _iter_labels(names: Sequence[str], duels: Sequence[Duel], seed: int) -> Iterator[LabelStandings]:
    """Such as characters, in alphabetical order; nothing where there is only one."""
    labels = sorted({duel.label for duel in duels if duel.label is not None})
    for label in labels if len(labels) > 1 else ():
        table = _Table.build(names, [duel for duel in duels if duel.label == label], seed, LABEL_RESAMPLES)
        yield LabelStandings(label=label, tasks=len(table.tasks), standings=_rank_contestants(table))


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


def _iter_cautions(table: _Table, planned: int) -> Iterator[Caution]:
    parts = [part for part in find_components(count_duels(len(table.names), table.duels)) if len(part) > 1]
    if len(parts) > 1:
        told = "; ".join(", ".join(table.names[place] for place in sorted(part)) for part in parts)
        yield Caution(code="apart", text=f"These never met, so their strengths do not compare: {told}.")
    if missing := planned - len(table.duels):
        yield Caution(code="incomplete", text=f"{missing:,} of {planned:,} duels have no outcome and are left out.")
    if len(table.tasks) < FEW_TASKS:
        text = f"Only {len(table.tasks)} tasks: intervals are rough, and small differences cannot be detected."
        yield Caution(code="few_tasks", text=text)
    position = _measure_position(table.duels)
    if position.duels and position.contradicted > position.duels / 3:
        text = (
            f"In {position.contradicted:,} of {position.duels:,} duels each order had another winner: the judge "
            "follows the position. Both orders cancel it, but little is left that says who is better."
        )
        yield Caution(code="position", text=text)
