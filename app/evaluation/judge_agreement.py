"""How far a judge agrees with the people who labelled the queue's items. Pure."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from app.domain.labels import LEVELS_OF_LABELS, Label, LabelledGroupRecord
from app.evaluation.agreement_figures import AgreementSlice, CriterionAgreement, DefectAgreement, PairAgreement
from app.evaluation.label_agreement import AgreementFigure
from app.evaluation.weighted_agreement import (
    Bootstrap,
    StratumDraw,
    build_table,
    compute_ac1,
    compute_auc,
    compute_bias,
    compute_effective_number,
    compute_kappa,
    compute_margins,
    compute_observed_agreement,
    compute_pabak,
    weigh_draws,
)

FEWEST_EFFECTIVE: Final = 50
"""Below so many effective groups only counts are given."""
_SAME: Final = 1e-9


@dataclass(frozen=True)
class _Item:
    """A group with its weight."""

    record: LabelledGroupRecord
    weight: float

    @property
    def unit(self) -> Hashable:
        return self.record.task_id

    @property
    def share(self) -> float:
        """The weight of each of its labels."""
        return self.weight / len(self.record.labels)


def measure_judge_agreement(records: Sequence[LabelledGroupRecord], seed: int = 0) -> AgreementSlice:
    """`records` in the order of their first labels."""
    return _measure_slice("all", _weigh_records(records), Bootstrap(seed))


def measure_slices(
    records: Sequence[LabelledGroupRecord], name: Callable[[Label], str], seed: int = 0
) -> tuple[AgreementSlice, ...]:
    """By what a label belongs to, where there is more than one of it. Weights are those of the whole."""
    items = _weigh_records(records)
    names = sorted({name(label) for record in records for label in record.labels})
    if len(names) < 2:
        return ()
    return tuple(_measure_slice(each, _keep_labels(items, each, name), Bootstrap(seed)) for each in names)


def find_lower_bound(records: Sequence[LabelledGroupRecord], seed: int = 0) -> tuple[float, float | None]:
    """The effective number of groups, and the lower bound of the pair accuracy; None where there are too few."""
    pairs = _measure_pairs(_weigh_records(records), Bootstrap(seed))
    return pairs.effective, pairs.judge.low


def _weigh_records(records: Sequence[LabelledGroupRecord]) -> list[_Item]:
    known = [(record, draw) for record in records if (draw := record.labels[0].draw) is not None]
    draws = [
        StratumDraw(
            (record.labels[0].environment, record.labels[0].run),
            bool(draw.reasons),
            draw.probability,
            draw.other_probability,
            draw.population,
        )
        for record, draw in known
    ]
    return [_Item(record, weight) for (record, _), weight in zip(known, weigh_draws(draws), strict=True)]


def _keep_labels(items: Sequence[_Item], wanted: str, name: Callable[[Label], str]) -> list[_Item]:
    kept = ((item, tuple(label for label in item.record.labels if name(label) == wanted)) for item in items)
    return [_Item(item.record.model_copy(update={"labels": labels}), item.weight) for item, labels in kept if labels]


def _measure_slice(name: str, items: Sequence[_Item], bootstrap: Bootstrap) -> AgreementSlice:
    criteria = sorted(
        {
            criterion
            for item in items
            for label in item.record.labels
            for said in label.replies.values()
            for criterion in said.levels
        }
    )
    return AgreementSlice(
        name=name,
        pairs=_measure_pairs(items, bootstrap),
        criteria=tuple(_measure_criterion(one, items, bootstrap) for one in criteria),
        defects=_measure_defects(items, bootstrap),
    )


@dataclass(frozen=True)
class _Row:
    """One comparison: `share` is its weight, `value` what is averaged."""

    unit: Hashable
    value: float
    share: float


def _measure_pairs(items: Sequence[_Item], bootstrap: Bootstrap) -> PairAgreement:
    ordered = [item for item in items if any(list_ordered_pairs(label, item.record) for label in item.record.labels)]
    hits, ties, shared, on_shared = [], [], [], []
    for item in ordered:
        for label in item.record.labels:
            for better, worse, tied in list_ordered_pairs(label, item.record):
                gap = item.record.rewards[better] - item.record.rewards[worse]
                ties.append((item.share, tied, abs(gap) <= _SAME))
                if not tied:
                    hits.append(_Row(item.unit, _score_gap(gap), item.share))
        for agreed, hit in _compare_people(item.record):
            shared.append(_Row(item.unit, agreed, item.weight))
            on_shared.append(_Row(item.unit, hit, item.weight))
    effective = compute_effective_number(item.weight for item in ordered)
    counts = PairAgreement(groups=len(ordered), pairs=len(hits), effective=effective, shared_pairs=len(shared))
    if effective < FEWEST_EFFECTIVE:
        return counts
    total = math.fsum(share for share, _, _ in ties)
    return counts.model_copy(
        update={
            "judge": _estimate_mean(hits, bootstrap),
            "people": _estimate_mean(shared, bootstrap),
            "judge_on_shared": _estimate_mean(on_shared, bootstrap),
            "people_ties": math.fsum(share for share, tied, _ in ties if tied) / total,
            "judge_ties": math.fsum(share for share, _, tied in ties if tied) / total,
        }
    )


def list_ordered_pairs(label: Label, record: LabelledGroupRecord) -> list[tuple[str, str, bool]]:
    """Better, worse, and whether the person found them equal; of replies that have a reward."""
    tiers = [tuple(one for one in tier if one in record.rewards) for tier in label.order]
    decided = [
        (better, worse, False) for place, tier in enumerate(tiers) for better in tier for after in tiers[place + 1 :]
        for worse in after
    ]  # fmt: skip
    return decided + [(one, other, True) for tier in tiers for one, other in combinations(tier, 2)]


def _compare_people(record: LabelledGroupRecord) -> Iterator[tuple[float, float]]:
    """For each pair that two people decided: whether they agree, and the judge's mean against both."""
    decided = [
        {frozenset((better, worse)): better for better, worse, tied in list_ordered_pairs(label, record) if not tied}
        for label in record.labels
    ]
    for one, other in combinations(decided, 2):
        for pair in sorted(one.keys() & other.keys(), key=sorted):
            hits = []
            for chosen in (one[pair], other[pair]):
                (worse,) = pair - {chosen}
                hits.append(_score_gap(record.rewards[chosen] - record.rewards[worse]))
            yield float(one[pair] == other[pair]), sum(hits) / 2


def _score_gap(gap: float) -> float:
    return 0.5 if abs(gap) <= _SAME else float(gap > 0)


def _estimate_mean(rows: Iterable[_Row], bootstrap: Bootstrap) -> AgreementFigure:
    """A weighted mean."""
    above: defaultdict[Hashable, float] = defaultdict(float)
    below: defaultdict[Hashable, float] = defaultdict(float)
    for row in rows:
        above[row.unit] += row.value * row.share
        below[row.unit] += row.share

    def divide(counts: Mapping[Hashable, int]) -> float | None:
        total = sum(below[unit] * count for unit, count in counts.items())
        return sum(above[unit] * count for unit, count in counts.items()) / total if total else None

    return bootstrap.estimate(list(below), divide) if below else AgreementFigure()


def _measure_criterion(criterion: str, items: Sequence[_Item], bootstrap: Bootstrap) -> CriterionAgreement:
    tables: defaultdict[Hashable, list[tuple[int, int, float]]] = defaultdict(list)
    used: set[int] = set()
    for place, item in enumerate(items):
        for label in item.record.labels:
            for rollout_id, said in label.replies.items():
                level, value = said.levels.get(criterion), item.record.levels.get(rollout_id, {}).get(criterion)
                if level is not None and value is not None:
                    tables[item.unit].append((level, round(value * (LEVELS_OF_LABELS - 1)), item.share))
                    used.add(place)
    rows = [row for some in tables.values() for row in some]
    effective = compute_effective_number(items[place].weight for place in used)
    counts = CriterionAgreement(criterion=criterion, groups=len(used), replies=len(rows), effective=effective)
    if effective < FEWEST_EFFECTIVE:
        return counts
    table = build_table(rows)
    people, judge = compute_margins(table, LEVELS_OF_LABELS)

    def kappa(given: Mapping[Hashable, int]) -> float | None:
        again = ((one, other, share * given[unit]) for unit in given for one, other, share in tables[unit])
        return compute_kappa(build_table(again), LEVELS_OF_LABELS)

    equal = [_Row(unit, float(one == other), share) for unit, some in tables.items() for one, other, share in some]
    return counts.model_copy(
        update={
            "kappa": bootstrap.estimate(list(tables), kappa, least=-1.0),
            "agreement": _estimate_mean(equal, bootstrap),
            "pabak": compute_pabak(table, LEVELS_OF_LABELS),
            "ac1": compute_ac1(table, LEVELS_OF_LABELS),
            "bias": compute_bias(table),
            "people": people,
            "judge": judge,
            "constant": max(people),
        }
    )


def _measure_defects(items: Sequence[_Item], bootstrap: Bootstrap) -> DefectAgreement:
    rows: list[tuple[_Item, str, bool]] = []
    used: set[int] = set()
    for place, item in enumerate(items):
        for label in item.record.labels:
            said = [(name, one.defect) for name, one in label.replies.items() if one.defect is not None]
            found = [(item, name, defect) for name, defect in said if name in item.record.rewards]
            rows += found
            used |= {place} if found else set()
    effective = compute_effective_number(items[place].weight for place in used)
    counts = DefectAgreement(groups=len(used), replies=len(rows), effective=effective)
    if effective < FEWEST_EFFECTIVE:
        return counts
    observed = compute_observed_agreement(build_table((int(defect), 1, item.share) for item, _, defect in rows)) or 0.0
    return counts.model_copy(
        update={
            "base_rate": observed,
            "constant": max(observed, 1 - observed),
            "auc": _estimate_auc(rows, bootstrap),
            **_measure_alarm("gate", rows, lambda item, name: name in item.record.gated, bootstrap),
            **_measure_alarm("cap", rows, lambda item, name: name in item.record.capped, bootstrap),
        }
    )


def _measure_alarm(
    alarm: str, rows: Sequence[tuple[_Item, str, bool]], raised: Callable[[_Item, str], bool], bootstrap: Bootstrap
) -> dict[str, AgreementFigure]:
    flagged = [_Row(item.unit, float(defect), item.share) for item, name, defect in rows if raised(item, name)]
    faulty = [_Row(item.unit, float(raised(item, name)), item.share) for item, name, defect in rows if defect]
    return {
        f"{alarm}_precision": _estimate_mean(flagged, bootstrap),
        f"{alarm}_recall": _estimate_mean(faulty, bootstrap),
    }


def _estimate_auc(rows: Sequence[tuple[_Item, str, bool]], bootstrap: Bootstrap) -> AgreementFigure:
    by_unit: defaultdict[Hashable, list[tuple[bool, float, float]]] = defaultdict(list)
    for item, name, defect in rows:
        value = item.record.absolutes.get(name, item.record.rewards[name])
        by_unit[item.unit].append((defect, 0.0 if name in item.record.gated else value, item.share))

    def order(counts: Mapping[Hashable, int]) -> float | None:
        return compute_auc(
            (defect, value, share * count) for unit, count in counts.items() for defect, value, share in by_unit[unit]
        )

    return bootstrap.estimate(list(by_unit), order)
