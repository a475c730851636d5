"""Intervals and agreement against values computed by other means."""

import pytest

from app.domain.values import Proportion, compute_intraclass_correlation


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        # roots of (p - share)^2 = z^2 p (1 - p) / n, by bisection in decimal arithmetic of 40 digits
        (36, 40, 0.769482, 0.960420),
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (1, 2, 0.094531, 0.905469),
        (81, 263, 0.255289, 0.366210),
        (7.5, 10, 0.442181, 0.919052),
    ],
)
def test_wilson(hits: float, trials: int, low: float, high: float) -> None:
    assert Proportion(hits, trials).interval == pytest.approx((low, high), abs=2e-6)


def test_nothing_measured() -> None:
    assert (Proportion(0, 0).value, Proportion(0, 0).interval) == (None, None)


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [
        ([(0.0, 0.0), (1.0, 1.0)], 1.0),
        ([(0.0, 1.0), (1.0, 0.0)], -1.0),
        # mean squares of a one-way analysis of variance: 8 and 1/2; 38/3 and 2/3
        ([(1, 2), (3, 4), (5, 6)], 15 / 17),
        ([(1, 1), (2, 4), (6, 6)], 0.9),
        ([(0.5, 0.5), (0.5, 0.5)], None),
        ([(0.5, 0.7)], None),
        ([], None),
    ],
)
def test_intraclass_correlation(repeats: list[tuple[float, float]], expected: float | None) -> None:
    assert compute_intraclass_correlation(repeats) == (None if expected is None else pytest.approx(expected))
