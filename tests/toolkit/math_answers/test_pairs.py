"""Pairs of which it is known by construction whether they are equal: how many there are, and what we say of them."""

import asyncio
from collections import Counter

import pytest

from tests.toolkit.math_answers.side_by_side import grade_pairs, read_pairs, tally


def test_there_are_many_pairs_of_many_kinds_and_none_comes_twice() -> None:
    pairs = [*read_pairs()]
    counts = Counter((pair.kind, pair.equal) for pair in pairs)
    few = [kind for kind, _ in counts if min(counts[kind, equal] for equal in (True, False)) < 5]
    different = {(pair.kind, pair.gold, pair.reply) for pair in pairs}
    assert (len(pairs), len(counts), few, len(different)) == (3_111, 2 * 104, [], len(pairs))


@pytest.mark.slow
def test_no_unequal_pair_is_paid_and_few_equal_ones_are_not() -> None:
    """A third of what the command compares."""
    graded = asyncio.run(grade_pairs([*read_pairs(each=5)], processes=2))
    assert ([one.pair for one in graded if one.ours and not one.pair.equal], tally(graded).is_good) == ([], True)
