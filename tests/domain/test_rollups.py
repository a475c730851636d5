"""A rollup stays small, whatever tasks and rubrics name, and loses nothing."""

import pytest

from app.domain.rollups import (
    MOST_NAMES,
    MeasureMap,
    Rollup,
    RollupKey,
    add_measures,
    add_up,
    list_criteria,
    merge_measures,
    negate,
)
from app.domain.scores import Criterion, Score
from tests.support.store_cases import group

GROUPS = 500
KEY = RollupKey("run", "toy", "a", "train")


def name_criterion(number: int) -> MeasureMap:
    score = Score(outcome="scored", reward=0.5, criteria=(Criterion(name=f"c{number}" * 99, value=0.5, weight=1.0),))
    return list_criteria(group(scores=[score, score]).group)


def test_a_rollup_holds_few_names_and_gives_back_what_is_taken_away() -> None:
    kept: MeasureMap = {}
    sizes = []
    for number in range(GROUPS):
        kept = add_measures(kept, name_criterion(number))
        sizes.append(len(kept))
    [total] = merge_measures([{"all": value} for value in kept.values()]).values()
    longest = max(map(len, kept))
    for number in range(GROUPS):
        kept = add_measures(kept, negate(name_criterion(number)))
    assert (max(sizes), total, longest < 220, kept) == (
        MOST_NAMES + 1,
        [2 * GROUPS, GROUPS << 60, GROUPS, GROUPS << 59],
        True,
        {},
    )


def test_groups_that_were_counted_without_squares_leave_a_sum_without_spread() -> None:
    """Those of an earlier release, which had a number that means something else now."""
    earlier = (add_up([0.0, 0.5]), [2, 0, 7])
    known, former = (Rollup(KEY, merge_measures([{"all": first}, {"all": add_up([1.0])}])) for first in earlier)
    assert known.spread("all") == pytest.approx((2 * 0.25**2 + 1 - 3 * 0.5**2, 1))
    assert (former.measures, former.spread("all")) == ({"all": [3, 1 << 60]}, (0.0, 0))
