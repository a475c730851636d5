"""Agreement with people's labels: known accuracies and correlations come back within their intervals."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.labels import Label, LabelledGroupRecord, ReplyLabel
from app.evaluation.agreement import (
    AgreementCount,
    JudgedLabels,
    count_judge_pairs,
    count_levels,
    count_people_pairs,
    keep_whole_blocks,
    measure_label_agreement,
)
from tests.support.tables import read_table
from tests.support.tiers import is_quick


def pairs(accuracy: float, count: int, seed: int) -> list[JudgedLabels]:
    """A judge that prefers the better of two replies with this probability."""
    chance = random.Random(seed)
    return [JudgedLabels((1.0, 0.0), (0.8, 0.3) if chance.random() < accuracy else (0.3, 0.8)) for _ in range(count)]


@pytest.mark.parametrize("accuracy", [0.7, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.5, 0.95))])
def test_a_known_accuracy_comes_back_in_nearly_all_intervals(accuracy: float) -> None:
    seeds = 10 if is_quick() else 40
    found = [measure_label_agreement(pairs(accuracy, 200, seed)).pair_accuracy for seed in range(seeds)]
    inside = sum((one.low or 0) <= accuracy <= (one.high or 0) for one in found)
    assert inside >= 0.85 * seeds  # of 95 %: fewer happen once in 10 times of 10, once in 500 of 40
    assert all(one.trials == 200 for one in found)


def test_a_known_correlation_comes_back_for_single_replies_and_groups() -> None:
    """Label and reward share the part of r in a normal variable."""
    chance, r = random.Random(1), 0.6
    points = []
    for _ in range(600):
        label = chance.gauss(0, 1)
        points.append((label, r * label + (1 - r * r) ** 0.5 * chance.gauss(0, 1)))
    alone = measure_label_agreement([JudgedLabels((label,), (reward,), "one") for label, reward in points])
    low, high = alone.correlation.low, alone.correlation.high
    assert low is not None
    assert high is not None
    assert low < r < high
    assert high - low < 0.12
    together = measure_label_agreement(
        [
            JudgedLabels(
                tuple(one for one, _ in points[at : at + 30]), tuple(other for _, other in points[at : at + 30])
            )
            for at in range(0, 600, 30)
        ]
    )
    assert together.correlation.value == pytest.approx(r, abs=0.07)


@pytest.mark.parametrize(
    ("group", "accuracy", "correlation"),
    read_table(__file__, "labelled_group.yaml", list[tuple[JudgedLabels, float | None, float | None]]),
)
def test_one_group(group: JudgedLabels, accuracy: float | None, correlation: float | None) -> None:
    found = measure_label_agreement([group])
    assert (found.pair_accuracy.value, found.correlation.value) == (
        pytest.approx(accuracy) if accuracy is not None else None,
        pytest.approx(correlation) if correlation is not None else None,
    )


def test_single_replies_are_compared_within_their_subset_only() -> None:
    """Between the subsets the order is wrong."""
    groups = [JudgedLabels((label,), (reward,), "a") for label, reward in ((1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4))]
    groups += [
        JudgedLabels((label,), (reward,), "b") for label, reward in ((7, 0.01), (8, 0.02), (9, 0.03), (10, 0.04))
    ]
    assert measure_label_agreement(groups).pair_accuracy.value == 1.0


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
