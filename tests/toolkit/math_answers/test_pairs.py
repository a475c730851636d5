"""Pairs of which it is known by construction whether they are equal: how many there are, and what we say of them."""

import asyncio
from collections import Counter

import pytest

from tests.toolkit.math_answers.pairs import Pair, Question, draw_pairs
from tests.toolkit.math_answers.side_by_side import EACH, KINDS, SEED, Graded, format_table, grade_pairs, tally

EQUAL = Pair("halves", "Find it.", "1/2", "$\\boxed{0.5}$", True)
UNEQUAL = Pair("halves", "Find it.", "1/2", "$\\boxed{0.6}$", False)


def test_there_are_many_pairs_of_many_kinds_and_none_comes_twice() -> None:
    pairs = draw_pairs(KINDS, SEED, EACH)
    counts = Counter((pair.kind, pair.equal) for pair in pairs)
    few = [kind.__name__ for kind in KINDS if min(counts[kind.__name__, equal] for equal in (True, False)) < 5]
    different = {(pair.kind, pair.gold, pair.reply) for pair in pairs}
    again = draw_pairs(KINDS, SEED, EACH)
    assert (len(pairs) >= 2_500, len(KINDS) >= 50, few, len(different), again) == (True, True, [], len(pairs), pairs)


def test_what_is_called_equal_and_unequal_at_once_is_a_fault_of_its_kind() -> None:
    with pytest.raises(ValueError, match=r"\['0\.5'\] are equal and unequal to 1/2"):
        draw_pairs([lambda draws: Question("1/2", ("0.5",), ("0.5", "2"))], SEED, 1)


def test_the_table_counts_what_each_grades_wrongly() -> None:
    graded = [Graded(EQUAL, ours=True, math_verify=False), Graded(UNEQUAL, ours=False, math_verify=True)]
    assert [*format_table(graded)][2:] == [
        "| halves | 1 | 0 | 1 | 1 | 0 | 1 |",
        "| all | 1 | 0 | 1 | 1 | 0 | 1 |",
        "Of the equal ones unpaid: by us 0.0%, by math-verify 100.0%. "
        "Of the unequal ones paid: by us 0.0%, by math-verify 100.0%.",
    ]


@pytest.mark.parametrize(
    ("ours", "good"),
    [((True, False), True), ((False, False), False), ((True, True), False)],
)
def test_an_unequal_pair_that_is_paid_is_too_much_and_so_are_many_equal_ones_that_are_not(
    ours: tuple[bool, bool], good: bool
) -> None:
    graded = [Graded(pair, paid, math_verify=False) for pair, paid in zip((EQUAL, UNEQUAL), ours, strict=True)]
    assert tally(graded).is_good == good


@pytest.mark.slow
def test_no_unequal_pair_is_paid_and_few_equal_ones_are_not() -> None:
    """A third of what the command compares."""
    graded = asyncio.run(grade_pairs(draw_pairs(KINDS, SEED, EACH // 3), processes=2))
    assert ([one.pair for one in graded if one.ours and not one.pair.equal], tally(graded).is_good) == ([], True)
