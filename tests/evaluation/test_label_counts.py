"""Plain counts of agreement: against figures of the literature, and never of the newest labels."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.labels import Label, LabelledGroupRecord, ReplyLabel
from app.evaluation.agreement import (
    AgreementCount,
    count_judge_pairs,
    count_levels,
    count_people_pairs,
    keep_whole_blocks,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def label(number: int, order: tuple[tuple[str, ...], ...], levels: int | None = None, who: str = "ada") -> Label:
    said = {} if levels is None else {"a": ReplyLabel(levels={"voice": levels})}
    return Label(
        label_id=f"label_{number}",
        kind="queue",
        labeller=who,
        order=order,
        replies=said,
        created_at=NOON + timedelta(seconds=number),
    )


def record(*labels: Label, first: float = 0.9, second: float = 0.1, voice: float = 1.0) -> LabelledGroupRecord:
    return LabelledGroupRecord(
        task_id="t", labels=labels, rewards={"a": first, "b": second}, levels={"a": {"voice": voice}}
    )


BETTER, WORSE, EQUAL = (("a",), ("b",)), (("b",), ("a",)), (("a", "b"),)


def rounded(count: AgreementCount) -> tuple[int, int, float | None, float | None, float | None]:
    share, kappa, ac1 = (None if one is None else round(one, 3) for one in (count.share, count.kappa, count.ac1))
    return count.items, count.equal, share, kappa, ac1


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([], (0, 0, None, None, None)),
        ([record(label(1, BETTER))] * 9 + [record(label(2, WORSE))], (10, 9, 0.9, 0.8, 0.867)),
        ([record(label(1, EQUAL), second=0.9)] * 3, (3, 3, 1.0, None, 1.0)),
        ([record(label(1, EQUAL)), record(label(2, BETTER))], (2, 1, 0.5, 0.667, 0.256)),
    ],
)
def test_pairs_are_counted_from_both_sides(
    records: list[LabelledGroupRecord], told: tuple[int, int, float | None, float | None, float | None]
) -> None:
    assert rounded(count_judge_pairs(records)) == told


def test_two_people_are_compared_on_the_pairs_of_both() -> None:
    both = record(label(1, BETTER), label(2, WORSE, who="bob"))
    alone = record(label(3, BETTER))
    assert rounded(count_people_pairs([both, both, alone])) == (2, 0, 0.0, -1.0, -0.333)


def test_levels_are_counted_by_criterion() -> None:
    records = [record(label(1, BETTER, level), voice=0.5) for level in (2, 2, 4)]
    (count,) = count_levels(records)
    assert (count.name, *rounded(count)) == ("voice", 3, 2, 0.667, 0.0, 0.642)


def test_only_whole_blocks_of_the_oldest_labels_count() -> None:
    records = [record(label(number, BETTER)) for number in (5, 1, 4, 2, 3)]
    kept = keep_whole_blocks(records, 2)
    assert [one.labels[0].label_id for one in kept] == ["label_1", "label_4", "label_2", "label_3"]
    assert keep_whole_blocks(records, 10) == []
