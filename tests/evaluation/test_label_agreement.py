"""Agreement with people's labels: known accuracies and correlations come back within their intervals."""

import random

import pytest

from app.evaluation.agreement import JudgedLabels, measure_label_agreement
from tests.support.tiers import is_quick


def pairs(accuracy: float, count: int, seed: int) -> list[JudgedLabels]:
    """A judge that prefers the better of two replies with this probability."""
    chance = random.Random(seed)
    return [JudgedLabels((1.0, 0.0), (0.8, 0.3) if chance.random() < accuracy else (0.3, 0.8)) for _ in range(count)]


@pytest.mark.parametrize("accuracy", [0.7, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.5, 0.95))])
def test_a_known_accuracy_comes_back_in_nearly_all_intervals(accuracy: float) -> None:
    seeds = 20 if is_quick() else 40
    found = [measure_label_agreement(pairs(accuracy, 200, seed)).pair_accuracy for seed in range(seeds)]
    inside = sum((one.low or 0) <= accuracy <= (one.high or 0) for one in found)
    assert inside >= 0.85 * seeds  # of 95 %: fewer happen once in 60 times of 20, once in 500 of 40
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
    [
        (JudgedLabels((3, 2, 1), (0.9, 0.5, 0.1)), 1.0, 1.0),
        (JudgedLabels((3, 2, 1), (0.1, 0.5, 0.9)), 0.0, -1.0),
        (JudgedLabels((3, 2, 1), (0.5, 0.5, 0.5)), 0.5, 0.0),
        (JudgedLabels((2, 2, 1), (0.1, 0.9, 0.5)), 0.5, 0.0),
        (JudgedLabels((2, 2, 2), (0.1, 0.9, 0.5)), None, None),
        (JudgedLabels((2, 1), (0.9, 0.5)), 1.0, None),
    ],
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
