"""What is expected of tasks by what a policy did so far."""

from itertools import pairwise

import pytest

from app.domain.rollups import (
    HALF_LIFE_GROUPS,
    MAX_TASKS,
    TASK_PRIOR,
    ExpectedRate,
    PassRates,
    TaskOutcome,
    find_nearest,
)


def outcome(index: int, passed: float, tried: int = 8, label: str | None = None) -> TaskOutcome:
    return TaskOutcome(sequence=1, index=index, label=label, tried=tried, passed=passed)


def counted(*outcomes: TaskOutcome) -> PassRates:
    rates = PassRates()
    for one in outcomes:
        rates.add_outcome(one)
    return rates


def test_nothing_known_is_expected_at_a_half() -> None:
    assert PassRates().estimate(3, "hard") == ExpectedRate(0.5, 0.25 / (TASK_PRIOR + 1))


def test_a_task_is_expected_by_its_own_groups_and_a_little_by_all() -> None:
    found = counted(outcome(1, 6), outcome(2, 2)).estimate(1, None)
    of_all = (6 * 0.99 + 2 + 1) / (8 * 0.99 + 8 + 2)
    fading = 0.5 ** (1 / HALF_LIFE_GROUPS)
    rate = (6 * fading + of_all * TASK_PRIOR) / (8 * fading + TASK_PRIOR)
    variance = rate * (1 - rate) / (8 * fading + TASK_PRIOR + 1)
    assert [found.rate, found.variance] == pytest.approx([rate, variance])


def test_a_task_that_was_never_tried_is_expected_as_others_with_its_label() -> None:
    rates = counted(*(outcome(index, 8 if index % 2 else 0, label=("even", "odd")[index % 2]) for index in range(40)))
    odd, even, unknown = (rates.estimate(99, label).rate for label in ("odd", "even", "other"))
    assert [even < 0.1, 0.4 < unknown < 0.6, odd > 0.9] == [True, True, True]


def test_newer_groups_of_a_task_count_for_more() -> None:
    rising, falling = counted(outcome(1, 0), outcome(1, 8)), counted(outcome(1, 8), outcome(1, 0))
    assert falling.estimate(1, None).rate < 0.5 < rising.estimate(1, None).rate


def test_what_was_seen_of_a_task_fades_while_others_are_tried() -> None:
    rates = counted(outcome(1, 0))
    found = [rates.estimate(1, "other")]
    for _ in range(2):
        for _ in range(2 * HALF_LIFE_GROUPS):
            rates.add_outcome(outcome(2, 4))
        found.append(rates.estimate(1, "other"))
    assert [one.rate < other.rate and one.variance < other.variance for one, other in pairwise(found)] == [True, True]


def test_a_group_without_a_score_says_nothing() -> None:
    assert counted(outcome(1, 4), outcome(1, 0, tried=0)) == counted(outcome(1, 4))


def test_the_tasks_that_were_longest_not_tried_are_forgotten() -> None:
    rates = counted(*(outcome(index, 4) for index in range(MAX_TASKS)), outcome(0, 4), outcome(MAX_TASKS, 4))
    assert (len(rates.tasks), 0 in rates.tasks, 1 in rates.tasks) == (MAX_TASKS, True, False)


@pytest.mark.parametrize(
    ("target", "chosen"), [(0.5, "known to be near"), (0.0, "known to be hard"), (0.9, "known to be easy")]
)
def test_the_nearest_is_near_and_known(target: float, chosen: str) -> None:
    names = ["unknown", "known to be hard", "known to be near", "known to be easy"]
    rates = counted(outcome(1, 0), outcome(2, 4), outcome(3, 8))
    assert names[find_nearest(target, {index: rates.estimate(index, None) for index in range(4)})] == chosen


def test_of_a_tie_the_first_is_nearest() -> None:
    low, high = ExpectedRate(0.25, 0.01), ExpectedRate(0.75, 0.01)
    assert (find_nearest(0.5, {7: high, 3: low}), find_nearest(0.5, {3: low, 7: high})) == (7, 3)


def test_what_is_unknown_comes_before_what_is_known_to_teach_nothing() -> None:
    rates = counted(outcome(1, 0), outcome(2, 8))
    assert find_nearest(0.5, {index: rates.estimate(index, None) for index in (1, 2, 3)}) == 3
