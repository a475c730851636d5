"""Tables of strengths from the decided duels of a tournament: of all of them, and with each label."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from app.evaluation.bradley_terry import (
    Floats,
    PairReading,
    Strengths,
    count_readings,
    fit_strengths,
    resample_strengths,
)
from app.evaluation.pooled_strengths import pool_strengths
from app.evaluation.resampling import MeanEstimate, Resampler, compute_quantile, compute_tail
from app.evaluation.tournament import Duel, LabelProfile, LabelStandings, PairRow, ProfileRow, StandingRow

_SAME: Final = 1e-6
"""Smaller strengths are rounding errors."""
_TAIL: Final = 0.025
_OUTCOMES: Final = {("one", "one"): 0, ("other", "other"): 0, ("one", "other"): 2, ("other", "one"): 2}
"""By who was shown first and who was better; what is not here is a tie."""


@dataclass(frozen=True)
class StrengthTable:
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
    def build(cls, names: Sequence[str], duels: Sequence[Duel], seed: int) -> "StrengthTable":
        """With expanded percentile intervals over tasks, as for means."""
        by_task: dict[str, list[Duel]] = {}
        for duel in duels:
            by_task.setdefault(duel.task_id, []).append(duel)
        counts = {task: count_duels(len(names), some) for task, some in by_task.items()}
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
class LabelFit:
    standings: LabelStandings
    table: StrengthTable
    fit: Strengths
    """Over all labels."""
    drawn: Sequence[Strengths]
    """Over all labels, with each draw of the table."""

    def build_profile_row(self, standing: StandingRow) -> ProfileRow:
        place = self.table.names.index(standing.name)
        here = [one.strengths[place] for one in self.table.drawn]
        overall = [one.strengths[place] for one in self.drawn]
        difference = self.table.estimate(
            self.table.fit.strengths[place] - self.fit.strengths[place],
            [one - other for one, other in zip(here, overall, strict=True)],
        )
        return ProfileRow(
            label=self.standings.label,
            tasks=self.standings.tasks,
            standing=standing,
            difference=difference,
            verdict=decide(difference),
        )


@dataclass(frozen=True)
class LabelFits:
    names: Sequence[str]
    labels: Sequence[LabelFit] = ()
    spread: float | None = None

    def list_standings(self) -> tuple[LabelStandings, ...]:
        return tuple(one.standings for one in self.labels)

    def list_profiles(self) -> tuple[LabelProfile, ...]:
        rows: dict[str, list[ProfileRow]] = {name: [] for name in reversed(self.names)}
        for one in self.labels:
            for standing in one.standings.standings:
                rows[standing.name].append(one.build_profile_row(standing))
        return tuple(
            LabelProfile(name=name, rows=tuple(sorted(found, key=lambda row: -(row.standing.share.value or 0.0))))
            for name, found in rows.items()
            if found
        )


def fit_labels(whole: StrengthTable, seed: int) -> LabelFits:
    """In alphabetical order; none where there is only one label."""
    by_label: dict[str, list[Duel]] = {}
    for duel in whole.duels:
        if duel.label is not None:
            by_label.setdefault(duel.label, []).append(duel)
    if len(by_label) < 2 or not whole.drawn:
        return LabelFits(whole.names)
    counts = {
        label: {duel.task_id: whole.counts[duel.task_id] for duel in by_label[label]} for label in sorted(by_label)
    }
    pooled = pool_strengths(whole.fit, whole.drawn, [list(each.values()) for each in counts.values()], seed)
    tables = [
        StrengthTable(whole.names, by_label[label], counts[label], fit.fit, fit.drawn, _TAIL)
        for label, fit in zip(counts, pooled.labels, strict=True)
    ]
    fits = [
        LabelFit(
            LabelStandings(label=label, tasks=len(counts[label]), standings=rank_contestants(table)),
            table,
            whole.fit,
            fit.drawn_overall,
        )
        for label, table, fit in zip(counts, tables, pooled.labels, strict=True)
    ]
    return LabelFits(whole.names, fits, pooled.spread)


def count_duels(contestants: int, duels: Sequence[Duel]) -> Floats:
    return count_readings(contestants, [reading for duel in duels for reading in iter_readings(duel)])


def iter_readings(duel: Duel) -> Iterator[PairReading]:
    for reading in duel.readings:
        first, second = (duel.one, duel.other) if reading.shown_first == "one" else (duel.other, duel.one)
        yield PairReading(first, second, _OUTCOMES.get((reading.shown_first, reading.better), 1))


def rank_contestants(table: StrengthTable) -> tuple[StandingRow, ...]:
    """Without those who have no duel."""
    met = {place for duel in table.duels for place in (duel.one, duel.other)}
    rows = [_build_standing(table, place, met) for place in sorted(met)]
    return tuple(sorted(rows, key=lambda row: -(row.strength.value or 0.0)))


def _build_standing(table: StrengthTable, place: int, met: Collection[int]) -> StandingRow:
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


def iter_pairs(table: StrengthTable, resampler: Resampler) -> Iterator[PairRow]:
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
                verdict=decide(difference),
                **_count_outcomes(shares),
            )


def decide(difference: MeanEstimate) -> Literal["better", "worse", "undecided"]:
    """By whether the interval of the difference has 0 in it."""
    if difference.low is None or difference.high is None or (difference.low <= _SAME and difference.high >= -_SAME):
        return "undecided"
    return "better" if difference.low > 0 else "worse"
