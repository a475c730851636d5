"""Builds the report of a tournament from its duels."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import AwareDatetime

from app.evaluation.bradley_terry import find_components
from app.evaluation.report import Caution
from app.evaluation.report_builder import FEW_TASKS
from app.evaluation.resampling import Resampler
from app.evaluation.strength_tables import (
    StrengthTable,
    count_duels,
    fit_labels,
    iter_pairs,
    iter_readings,
    rank_contestants,
)
from app.evaluation.tournament import Duel, PositionEffect, TournamentReport, TournamentSetup, UndecidedRow

PAIR_RESAMPLES: Final = 2_000


def build_tournament_report(
    setup: TournamentSetup, duels: Sequence[Duel], notice: str, finished_at: AwareDatetime | None
) -> TournamentReport:
    decided = [duel for duel in duels if duel.readings]
    names = [contestant.name for contestant in setup.contestants]
    table = StrengthTable.build(names, decided, setup.seed)
    labels = fit_labels(table, setup.seed)
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
        standings=rank_contestants(table),
        pairs=tuple(iter_pairs(table, Resampler(setup.seed, PAIR_RESAMPLES))),
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
    outcomes = Counter(reading.outcome for duel in judged for reading in iter_readings(duel))
    return PositionEffect(
        readings=outcomes.total(),
        first=outcomes[0],
        tied=outcomes[1],
        second=outcomes[2],
        duels=len(judged),
        contradicted=sum(duel.is_contradicted for duel in judged),
    )


def _iter_cautions(table: StrengthTable, planned: int) -> Iterator[Caution]:
    parts = [part for part in find_components(count_duels(len(table.names), table.duels)) if len(part) > 1]
    if len(parts) > 1:
        told = "; ".join(", ".join(table.names[place] for place in sorted(part)) for part in parts)
        yield Caution(code="apart", text=f"These never met, so their strengths do not compare: {told}.")
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
