"""Intervals and tests over tasks, against enumeration and against what they promise."""

import math
import random
from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from statistics import NormalDist, fmean

import pytest

from app.domain.values import Proportion, compute_quantile
from app.evaluation.report import (
    EXACT_UP_TO,
    MeanEstimate,
    Resampler,
    adjust_p_values,
    compute_noticeable,
    estimate_pass_at,
    list_reported_k,
)

SIX = (0.0, 0.25, 0.25, 0.6, 0.9, 1.0)
T_975 = {5: 2.570582, 9: 2.262157, 29: 2.045230, 199: 1.971957}
"""Student's quantile of 0.975 by degrees of freedom, from printed tables."""


def ends(estimate: MeanEstimate) -> tuple[float, float, float]:
    assert estimate.value is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.value, estimate.low, estimate.high


def exact_means(values: tuple[float, ...]) -> tuple[list[float], list[float]]:
    """Every mean that resampling can bring, in order, and how likely one up to it is: all n^n resamples."""
    likely: dict[float, float] = {}
    for chosen in combinations_with_replacement(range(len(values)), len(values)):
        ways = math.factorial(len(values))
        for place in set(chosen):
            ways //= math.factorial(chosen.count(place))
        mean = round(fmean(values[place] for place in chosen), 12)
        likely[mean] = likely.get(mean, 0.0) + ways / len(values) ** len(values)
    means = sorted(likely)
    return means, [math.fsum(likely[each] for each in means[: place + 1]) for place in range(len(means))]


def test_resampled_means_are_spread_as_all_resamples_are() -> None:
    means, shares = exact_means(SIX)
    drawn = Resampler(1, resamples=40_000).resample_means(SIX)
    found = [bisect_right(drawn, mean + 1e-9) / len(drawn) for mean in means]
    apart = max(abs(one - two) for one, two in zip(found, shares, strict=True))
    assert (shares[-1], apart) == pytest.approx((1.0, 0.0), abs=0.008)


def test_an_interval_ends_at_the_quantiles_of_all_resamples() -> None:
    """Expanded as published: the tails are those of the normal at t x sqrt(n / (n - 1))."""
    means, shares = exact_means(SIX)
    tail = NormalDist().cdf(-T_975[5] * math.sqrt(6 / 5))
    low, high = (
        next(mean for mean, share in zip(means, shares, strict=True) if share >= end) for end in (tail, 1 - tail)
    )
    assert ends(Resampler(1, resamples=200_000).estimate(SIX)) == pytest.approx((0.5, low, high), abs=0.02)


def test_with_many_tasks_it_is_what_the_normal_distribution_says() -> None:
    values = [place / 400 for place in range(400)]
    error = 1.96 * math.sqrt(fmean((value - fmean(values)) ** 2 for value in values) / len(values))
    middle = fmean(values)
    assert ends(Resampler(0).estimate(values)) == pytest.approx((middle, middle - error, middle + error), abs=0.002)


Population = tuple[float, Callable[[random.Random], float]]
POPULATIONS: dict[str, Population] = {
    "four attempts, most of which pass": (0.8, lambda chance: _passes(chance, chance.betavariate(4, 1))),
    "tasks that are easy or hopeless": (0.75, lambda chance: _passes(chance, chance.betavariate(0.3, 0.1))),
    "what a judge says": (0.6, lambda chance: round(chance.betavariate(6, 4) * 32) / 32),
}


def _passes(chance: random.Random, rate: float) -> float:
    return sum(chance.random() < rate for _ in range(4)) / 4


@pytest.mark.parametrize("name", POPULATIONS)
def test_nineteen_of_twenty_intervals_hold_the_true_mean(name: str) -> None:
    true, draw = POPULATIONS[name]
    chance = random.Random(name)
    held = 0
    for seed in range(200):
        _, low, high = ends(Resampler(seed, resamples=400).estimate([draw(chance) for _ in range(30)]))
        held += low <= true <= high
    assert held / 200 == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize(
    ("values", "least", "expected"),
    [
        ([1.0] * 20, 0.0, (1.0, *(Proportion(20, 20).interval or ()))),
        ([0.0] * 20, 0.0, (0.0, *(Proportion(0, 20).interval or ()))),
        ([0.5] * 5, 0.0, (0.5, 0.5 - 0.5 * 0.4345, 0.5 + 0.5 * 0.4345)),
        ([0.0] * 20, -1.0, (0.0, -0.1611, 0.1611)),
        ([0.7], 0.0, (0.7, 0.7 - 0.7 * 0.7935, 0.7 + 0.3 * 0.7935)),
    ],
)
def test_equal_values_have_a_width_all_the_same(
    values: list[float], least: float, expected: tuple[float, float, float]
) -> None:
    assert ends(Resampler(0).estimate(values, least)) == pytest.approx(expected, abs=1e-4)


def test_nothing_has_no_mean_and_a_seed_decides() -> None:
    assert (Resampler(0).estimate([]), Resampler(4).estimate(SIX), Resampler(4).estimate(SIX)) == (
        MeanEstimate(),
        Resampler(4, resamples=10_000).estimate(SIX),
        Resampler(4).estimate(list(SIX)),
    )


def by_enumeration(differences: list[float]) -> float:
    reached = abs(sum(differences)) - 1e-9
    flips = product((1, -1), repeat=len(differences))
    sums = [sum(sign * each for sign, each in zip(signs, differences, strict=True)) for signs in flips]
    return sum(abs(each) >= reached for each in sums) / len(sums)


@pytest.mark.parametrize(
    "differences",
    [
        [0.5],
        [0.0, 0.0],
        [0.25, 0.25, -0.25, 0.5],
        [0.1, -0.3, 0.2, 0.2, 0.7, 0.05, -0.05, 0.4, 0.1],
        [1.0] * EXACT_UP_TO,
        [place / 20 - 0.2 for place in range(EXACT_UP_TO)],
    ],
)
def test_few_tasks_are_tested_exactly(differences: list[float]) -> None:
    assert Resampler(0).compute_sign_flip_p([*differences, 0.0]) == pytest.approx(by_enumeration(differences))


@pytest.mark.parametrize("shift", [0.0, 0.12, 0.22])
def test_more_tasks_are_tested_by_draws_that_agree(shift: float) -> None:
    differences = [random.Random(place).uniform(-0.5, 0.5) + shift for place in range(EXACT_UP_TO + 3)]
    exact = by_enumeration(differences)
    assert Resampler(0, resamples=50_000).compute_sign_flip_p(differences) == pytest.approx(exact, abs=0.008)


def test_what_no_draw_reached_is_still_not_impossible() -> None:
    assert Resampler(0, resamples=500).compute_sign_flip_p([0.3 + place / 100 for place in range(60)]) == 1 / 501


def test_one_in_twenty_equal_models_is_called_different() -> None:
    chance = random.Random(5)
    ps = [Resampler(seed, 400).compute_sign_flip_p([chance.gauss(0, 0.3) for _ in range(25)]) for seed in range(500)]
    assert sum(p < 0.05 for p in ps) / len(ps) == pytest.approx(0.05, abs=0.02)


def test_four_in_five_see_what_is_noticeable() -> None:
    chance = random.Random(6)
    values = [chance.gauss(0, 0.3) for _ in range(5_000)]
    smallest = (compute_noticeable(values) or 0.0) * math.sqrt(5_000 / 40)
    ps = [
        Resampler(seed, 400).compute_sign_flip_p([chance.gauss(smallest, 0.3) for _ in range(40)])
        for seed in range(600)
    ]
    assert sum(p < 0.05 for p in ps) / len(ps) == pytest.approx(0.8, abs=0.04)


def test_one_value_shows_no_spread() -> None:
    assert (compute_noticeable([]), compute_noticeable([0.4]), compute_noticeable([0.4, 0.4])) == (None, None, 0.0)


@pytest.mark.parametrize(
    ("ps", "expected"),
    [([], ()), ([0.2], (0.2,)), ([0.01, 0.04, 0.03, 0.005], (0.03, 0.06, 0.06, 0.02)), ([0.5, 0.6], (1.0, 1.0))],
)
def test_a_table_of_tests_pays_for_its_length(ps: list[float], expected: tuple[float, ...]) -> None:
    assert adjust_p_values(ps) == pytest.approx(expected)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.25, 2.0), (0.5, 3.0), (0.9, 8.2), (1.0, 10.0)])
def test_a_quantile_lies_between_its_neighbours(share: float, expected: float) -> None:
    assert compute_quantile([1.0, 2.0, 3.0, 5.5, 10.0], share) == pytest.approx(expected)


@pytest.mark.parametrize(("free", "t"), T_975.items())
def test_expansion_follows_students_distribution(free: int, t: float) -> None:
    """The tail of an interval says which t it was made with."""
    count = free + 1
    values = [place / count for place in range(count)]
    tail = NormalDist().cdf(-t * math.sqrt(count / free))
    means = Resampler(2).resample_means(values)
    assert ends(Resampler(2).estimate(values))[1] == pytest.approx(compute_quantile(means, tail), abs=1e-3)


CASES = [
    (k, attempts, passed) for attempts in range(1, 9) for passed in range(attempts + 1) for k in range(1, attempts + 1)
]


def by_counting(k: int, attempts: int, passed: int) -> float:
    choices = list(combinations([place < passed for place in range(attempts)], k))
    return float(Fraction(sum(any(choice) for choice in choices), len(choices)))


def test_it_is_the_share_of_choices_with_a_pass() -> None:
    assert [estimate_pass_at(*case) for case in CASES] == pytest.approx(
        [by_counting(*case) for case in CASES], abs=1e-12
    )


def test_it_stays_in_range_where_binomials_would_not_fit_a_float() -> None:
    assert (estimate_pass_at(1_000, 10_000, 1), estimate_pass_at(5_000, 10_000, 9_000)) == pytest.approx((0.1, 1.0))


@pytest.mark.parametrize("k", [0, 5])
def test_what_cannot_be_told_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="cannot be estimated"):
        estimate_pass_at(k, 4, 2)


@pytest.mark.parametrize(
    ("samples", "expected"), [(1, (1,)), (2, (1, 2)), (5, (1, 2, 4, 5)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))]
)
def test_k_doubles_up_to_all(samples: int, expected: tuple[int, ...]) -> None:
    assert list_reported_k(samples) == expected
