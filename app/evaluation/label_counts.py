"""Plain counts of how judges and people agree, for who is still labelling: without weights and intervals. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

from app.domain.labels import LEVELS_OF_LABELS, Label, LabelledGroupRecord
from app.evaluation.judge_agreement import list_ordered_pairs
from app.evaluation.weighted_agreement import build_table, compute_ac1, compute_kappa, compute_observed_agreement

_SAME: Final = 1e-9
_ORDERS: Final = 3
Order = Literal[0, 1, 2]
"""Of two replies: the first is better, they are equal, the second is better."""


@dataclass(frozen=True)
class AgreementCount:
    """Two raters. Kappa has quadratic weights: to find equal what the other orders is half as far off. None where it is
    not defined, as where both say the same of everything."""

    name: str
    items: int
    equal: int
    share: float | None
    kappa: float | None
    ac1: float | None


def keep_whole_blocks(records: Sequence[LabelledGroupRecord], size: int) -> list[LabelledGroupRecord]:
    """With the oldest labels alone, a multiple of `size`: what grows with every label would tell what the judge thinks
    of the one that was labelled last."""
    dated = sorted((label.created_at, label.label_id) for record in records for label in record.labels)
    kept = {label_id for _, label_id in dated[: len(dated) // size * size]}
    cut = (
        record.model_copy(update={"labels": tuple(label for label in record.labels if label.label_id in kept)})
        for record in records
    )
    return [record for record in cut if record.labels]


def count_judge_pairs(records: Iterable[LabelledGroupRecord]) -> AgreementCount:
    """A person's order of each pair against the judge's rewards."""
    return _count_pairs(
        "pairs",
        (
            (order, _order_rewards(record.rewards[pair[0]] - record.rewards[pair[1]]))
            for record in records
            for label in record.labels
            for pair, order in _order_each(label, record)
        ),
    )


def count_people_pairs(records: Iterable[LabelledGroupRecord]) -> AgreementCount:
    """Of pairs that two people ordered, blind to each other."""
    return _count_pairs("pairs", (both for record in records for both in _meet(record)))


def count_levels(records: Sequence[LabelledGroupRecord]) -> tuple[AgreementCount, ...]:
    """A person's level of each criterion against the judge's."""
    rows: dict[str, list[tuple[int, int, float]]] = {}
    for record in records:
        for label in record.labels:
            for rollout_id, said in label.replies.items():
                for criterion, level in said.levels.items():
                    value = record.levels.get(rollout_id, {}).get(criterion)
                    if level is not None and value is not None:
                        judged = round(value * (LEVELS_OF_LABELS - 1))
                        rows.setdefault(criterion, []).append((level, judged, 1.0))
    return tuple(_count(name, found, LEVELS_OF_LABELS) for name, found in sorted(rows.items()))


def _meet(record: LabelledGroupRecord) -> Iterator[tuple[Order, Order]]:
    for one, other in combinations([dict(_order_each(label, record)) for label in record.labels], 2):
        yield from ((one[pair], other[pair]) for pair in sorted(one.keys() & other.keys()))


def _order_each(label: Label, record: LabelledGroupRecord) -> Iterator[tuple[tuple[str, str], Order]]:
    for better, worse, tied in list_ordered_pairs(label, record):
        first, second = sorted((better, worse))
        yield (first, second), 1 if tied else 0 if first == better else 2


def _order_rewards(gap: float) -> Order:
    return 1 if abs(gap) <= _SAME else 0 if gap > 0 else 2


def _count_pairs(name: str, orders: Iterable[tuple[Order, Order]]) -> AgreementCount:
    """From both sides, since none of two replies is the first."""
    rows = [row for one, other in orders for row in ((one, other, 0.5), (2 - one, 2 - other, 0.5))]
    return _count(name, rows, _ORDERS)


def _count(name: str, rows: Sequence[tuple[int, int, float]], classes: int) -> AgreementCount:
    table = build_table(rows)
    return AgreementCount(
        name=name,
        items=round(sum(table.values())),
        equal=round(sum(weight for (one, other), weight in table.items() if one == other)),
        share=compute_observed_agreement(table),
        kappa=compute_kappa(table, classes),
        ac1=compute_ac1(table, classes),
    )
