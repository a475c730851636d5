"""Intervals and agreement against values computed by other means."""

import pytest

from app.domain.values import Proportion, compute_intraclass_correlation
from tests.support.tables import read_table


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"), read_table(__file__, "wilson.yaml", list[tuple[float, int, float, float]])
)
def test_wilson(hits: float, trials: int, low: float, high: float) -> None:
    assert Proportion(hits, trials).interval == pytest.approx((low, high), abs=2e-6)


def test_nothing_measured() -> None:
    assert (Proportion(0, 0).value, Proportion(0, 0).interval) == (None, None)


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [
        *read_table(__file__, "correlations.yaml", list[tuple[list[tuple[float, float]], float | None]]),
        ([(1, 2), (3, 4), (5, 6)], 15 / 17),
    ],
)
def test_intraclass_correlation(repeats: list[tuple[float, float]], expected: float | None) -> None:
    assert compute_intraclass_correlation(repeats) == (None if expected is None else pytest.approx(expected))
