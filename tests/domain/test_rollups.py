"""A rollup stays small, whatever tasks and rubrics name, and loses nothing."""

from app.domain.rollups import MOST_NAMES, MeasureMap, add_measures, list_criteria, merge_measures, negate
from app.domain.scores import Criterion, Score
from tests.support.store_cases import group

GROUPS = 500


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
    assert (max(sizes), total, longest < 220, kept) == (MOST_NAMES + 1, [2 * GROUPS, GROUPS << 60], True, {})
