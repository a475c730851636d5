"""What flips between two scorings, by hand and by the rules of the figures."""

import math
import random

import pytest

from app.evaluation.comparison import MOST_STEP_ROWS, FlipReport, GroupFlips, RescoredGroup, report_flips
from app.evaluation.report import MeanEstimate
from tests.support.rescored import BY_HAND, FLIPS, GROUPS, figures_of


def test_figures_are_those_computed_by_hand() -> None:
    found = report_flips(GROUPS)
    assert figures_of(found) == BY_HAND
    assert found.flips == FLIPS


def test_means_have_intervals_by_group() -> None:
    shares = report_flips(GROUPS).overall.flipped_share
    assert shares.low is not None
    assert shares.high is not None
    assert shares.value is not None
    assert (0 <= shares.low < shares.value < shares.high <= 1, shares.tasks) == (True, 4)


@pytest.mark.parametrize(
    ("groups", "completions", "compared"),
    [([], 0, 0), ([RescoredGroup("g", (1.0, None), (0.5, 0.5))], 1, 0), ([RescoredGroup("g", (), ())], 0, 0)],
)
def test_where_nothing_can_be_compared_figures_are_null(
    groups: list[RescoredGroup], completions: int, compared: int
) -> None:
    found = report_flips(groups)
    assert (found.completions, found.overall.groups, found.overall.flipped_share, found.spearman, found.flips) == (
        completions,
        compared,
        MeanEstimate(),
        None,
        (),
    )


def test_places_are_those_in_the_group_where_a_reward_is_missing() -> None:
    (flips,) = report_flips([RescoredGroup("g", (None, 0.9, 0.1), (0.5, 0.1, 0.9))]).flips
    assert flips == GroupFlips(group_id="g", label=None, step=None, pairs=((1, 2),), best=((1,), (2,)), signs=(1, 2))


def test_many_steps_become_ranges_of_about_as_many_groups() -> None:
    groups = [RescoredGroup(f"g{step}", (0.1, 0.9), (0.1, 0.9), None, step) for step in range(100)]
    rows = report_flips(groups).steps
    assert (len(rows), sum(row.groups for row in rows), rows[0].name) == (MOST_STEP_ROWS, 100, "0 to 8")
    assert {row.groups for row in rows} <= {8, 9}


def test_spearman_is_the_rule_for_ranks_without_ties() -> None:
    chance = random.Random(3)
    one, other = [tuple(chance.random() for _ in range(200)) for _ in range(2)]
    ranks = [{value: rank for rank, value in enumerate(sorted(values))} for values in (one, other)]
    squares = sum((ranks[0][a] - ranks[1][b]) ** 2 for a, b in zip(one, other, strict=True))
    expected = 1 - 6 * squares / (200 * (200**2 - 1))
    found: FlipReport = report_flips([RescoredGroup("g", one, other)])
    for figure in (found.spearman, found.overall.rank_correlation.value):
        assert figure is not None
        assert math.isclose(figure, expected, abs_tol=1e-12)
