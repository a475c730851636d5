"""Pairs of which it is known by construction whether they are equal: how many there are, and what we say of them."""

import asyncio
from collections import Counter

import pytest

from tests.toolkit.math_answers.side_by_side import Graded, Pair, format_table, grade_pairs, read_pairs, tally

EQUAL = Pair("halves", "Find it.", "1/2", "$\\boxed{0.5}$", True)
UNEQUAL = Pair("halves", "Find it.", "1/2", "$\\boxed{0.6}$", False)


def test_there_are_many_pairs_of_many_kinds_and_none_comes_twice() -> None:
    pairs = [*read_pairs()]
    counts = Counter((pair.kind, pair.equal) for pair in pairs)
    few = [kind for kind, _ in counts if min(counts[kind, equal] for equal in (True, False)) < 5]
    different = {(pair.kind, pair.gold, pair.reply) for pair in pairs}
    assert (len(pairs), len(counts), few, len(different)) == (3_111, 2 * 104, [], len(pairs))


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
    graded = asyncio.run(grade_pairs([*read_pairs(each=5)], processes=2))
    assert ([one.pair for one in graded if one.ours and not one.pair.equal], tally(graded).is_good) == ([], True)
