"""pass@k, against counting every choice of k attempts."""

from fractions import Fraction
from itertools import combinations

import pytest

from app.evaluation.report import estimate_pass_at, list_reported_k

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
