"""Strengths, also by label, against what is known and against other ways to compute them."""

import math
import random
from itertools import permutations

import numpy as np
import pytest

from app.evaluation.tournament import (
    LIKELY_SPREAD,
    SPREADS,
    Floats,
    PairReading,
    PooledFits,
    Strengths,
    count_readings,
    find_components,
    fit_strengths,
    pool_strengths,
    resample_strengths,
    weigh_task,
)
from tests.support.evaluations import duel, tournament

FLAT = 1e4
"""A prior that says nothing."""


def test_two_contestants_have_the_odds_of_their_wins() -> None:
    """Seven of ten in each order: the strengths differ by log(7 / 3)."""
    balanced = [PairReading(0, 1, 0), PairReading(1, 0, 2)] * 7 + [PairReading(0, 1, 2), PairReading(1, 0, 0)] * 3
    found = fit_strengths(count_readings(2, balanced), FLAT)
    assert (found.strengths[0] - found.strengths[1], sum(found.strengths), found.position) == pytest.approx(
        (math.log(7 / 3), 0.0, 0.0), abs=1e-6
    )
    assert found.compute_share(0, 1) == pytest.approx(0.7, abs=1e-4)


def iterate_davidson(counts: Floats) -> tuple[list[float], float]:
    """Davidson's own iteration, without a position: worths and the tie parameter from their likelihood equations."""
    count = len(counts)
    wins = np.array([[counts[i, j, 0] + counts[j, i, 2] for j in range(count)] for i in range(count)])
    ties = np.array([[counts[i, j, 1] + counts[j, i, 1] for j in range(count)] for i in range(count)])
    met, worth, tie = wins + wins.T + ties, np.ones(count), 1.0
    points = (2 * wins + ties).sum(axis=1)
    for _ in range(5_000):
        root = np.sqrt(np.outer(worth, worth))
        whole = worth[:, None] + worth[None, :] + tie * root
        np.fill_diagonal(whole, 1.0)
        worth = points / (met * (2 + tie * np.sqrt(worth[None, :] / worth[:, None])) / whole).sum(axis=1)
        worth /= np.exp(np.log(worth).mean())
        root = np.sqrt(np.outer(worth, worth))
        whole = worth[:, None] + worth[None, :] + tie * root
        tie = float(ties.sum() / (met * root / whole).sum())
    return [float(each) for each in np.log(worth)], math.log(tie)


def draw_readings(strengths: tuple[float, ...], tie: float, each: int, seed: int) -> list[PairReading]:
    """Each order of a pair the same number of times, mirrored, so that there is no effect of position."""
    chance = random.Random(seed)
    found = []
    for one, other in permutations(range(len(strengths)), 2):
        for _ in range(each if one < other else 0):
            first, second = strengths[one], strengths[other]
            weights = [math.exp(first), math.exp(tie + (first + second) / 2), math.exp(second)]
            outcome = chance.choices((0, 1, 2), weights)[0]
            found += [PairReading(one, other, outcome), PairReading(other, one, 2 - outcome)]
    return found


def test_strengths_and_ties_are_those_of_davidsons_iteration() -> None:
    counts = count_readings(4, draw_readings((1.0, 0.3, -0.2, -1.1), -0.5, 40, 7))
    found, (worths, tie) = fit_strengths(counts, FLAT), iterate_davidson(counts)
    assert [*found.strengths, found.tie] == pytest.approx([*worths, tie], abs=1e-4)


def test_a_judge_who_likes_what_comes_first_moves_the_position_alone() -> None:
    readings = [PairReading(one, other, 0) for one, other in permutations(range(3), 2)] * 10
    found = fit_strengths(count_readings(3, readings))
    assert found.strengths == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    assert found.position > 2
    assert found.compute_field_share(0, range(3)) == pytest.approx(0.5)


def test_who_never_lost_has_a_finite_strength() -> None:
    readings = [PairReading(0, 1, 0), PairReading(1, 0, 2)] * 20
    found = fit_strengths(count_readings(2, readings))
    assert 2 < found.strengths[0] < 10


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = 0
    for seed in range(40):
        tasks = [count_readings(2, draw_readings((0.4, -0.4), -1.0, 1, 1000 * seed + task)) for task in range(40)]
        drawn = sorted(each.strengths[0] for each in resample_strengths(tasks, seed, 200))
        held += drawn[5] <= 0.4 <= drawn[194]
    assert 34 <= held <= 40


def test_contestants_who_never_met_are_apart() -> None:
    counts = count_readings(5, [PairReading(0, 1, 0), PairReading(1, 2, 0), PairReading(3, 4, 1)])
    assert find_components(counts) == [{0, 1, 2}, {3, 4}]


def test_who_met_nobody_is_nobodys_opponent() -> None:
    """Its strength would be the prior's."""
    duels = [duel(place, 0, 1, "one") for place in range(6)]
    two, three = (tournament(duels, names).standings for names in (("a", "b"), ("a", "b", "c")))
    assert [(row.name, row.share.value) for row in three] == [(row.name, row.share.value) for row in two]


def settle(better: int) -> Floats:
    """A task of two replies, on which both orders agree."""
    return count_readings(2, [PairReading(0, 1, 2 * better), PairReading(1, 0, 2 - 2 * better)])


def pool(*labels: tuple[int, int]) -> PooledFits:
    """Of how many tasks the first and the second won, by label. No ties, so that the odds alone count."""
    tasks = [[settle(0)] * won + [settle(1)] * lost for won, lost in labels]
    whole = fit_strengths(np.sum([task for each in tasks for task in each], axis=0))
    centre = Strengths(whole.strengths, -30.0, 0.0)
    return pool_strengths(centre, [centre], tasks, 0)


def integrate(*labels: tuple[int, int]) -> list[float]:
    """Half the expected difference of two strengths by label. Of two strengths with a deviation each, the difference
    has twice the variance of one."""
    strengths = fit_strengths(np.sum([settle(0) * won + settle(1) * lost for won, lost in labels], axis=0)).strengths
    middle = strengths[0] - strengths[1]
    differences = np.linspace(-25, 25, 20_001)
    evidence, means = np.zeros(len(SPREADS)), np.zeros((len(labels), len(SPREADS)))
    for place, (won, lost) in enumerate(labels):
        for each, spread in enumerate(SPREADS):
            likely = np.exp(-won * np.log1p(np.exp(-differences)) - lost * np.log1p(np.exp(differences)))
            likely *= np.exp(-((differences - middle) ** 2) / (4 * spread**2)) / spread
            evidence[each] += math.log(likely.sum())
            means[place, each] = (differences * likely).sum() / likely.sum()
    weights = np.exp(evidence - evidence.max() - (SPREADS / LIKELY_SPREAD) ** 2 / 2)
    return [float(each) / 2 for each in means @ weights / weights.sum()]


TASKS = (1, 2, 3, 5, 8, 12, 20, 40)
LABELS = ((12, 4), (3, 9), (1, 0), (7, 7), (0, 2))


def test_pooled_strengths_are_those_of_integrals() -> None:
    found = [each.fit.strengths[0] for each in pool(*LABELS).labels]
    assert found == pytest.approx(integrate(*LABELS), abs=0.05)


def test_few_duels_say_little_and_many_say_all() -> None:
    few, many = (pool((times, 0), (10, 10), (8, 12), (12, 8), (9, 11)).labels[0] for times in (1, 200))
    ends = [sorted(each.strengths[0] for each in fit.drawn)[25] for fit in (few, many)]
    assert (few.fit.strengths[0] < 0.2, ends[0] < 0 < ends[1]) == (True, True)
    opposite = [each.fit.strengths[0] for each in pool((300, 100), (100, 300)).labels]
    assert opposite == pytest.approx([math.log(3) / 2, -math.log(3) / 2], abs=0.02)


def test_labels_that_differ_have_a_larger_spread() -> None:
    assert pool((20, 20), (21, 19), (19, 21)).spread < 0.5 < pool((38, 2), (2, 38), (20, 20)).spread


def test_a_task_counts_as_one_reading_for_each_reply_but_one() -> None:
    three = [PairReading(*order, 1) for order in ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1))]
    assert [float(weigh_task(count_readings(3, readings)).sum()) for readings in (three, three[:2], [])] == [2, 1, 0]


def test_pooled_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = 0
    for seed in range(8):
        chance = random.Random(seed)
        truths = [0.2 + chance.gauss(0, 0.5) for _ in range(8)]
        won = [
            sum(chance.random() < 1 / (1 + math.exp(-2 * truth)) for _ in range(tasks))
            for truth, tasks in zip(truths, TASKS, strict=True)
        ]
        pooled = pool(*((each, of - each) for each, of in zip(won, TASKS, strict=True)))
        for truth, fit in zip(truths, pooled.labels, strict=True):
            drawn = sorted(each.strengths[0] for each in fit.drawn)
            held += drawn[25] <= truth <= drawn[974]
    assert 56 <= held <= 64


def test_labels_are_told_by_how_far_the_newest_is_ahead() -> None:
    duels = [
        *(duel(place, 0, 1, "other", label="bo") for place in range(30)),
        *(duel(30 + place, 0, 1, "one" if place % 2 else "other", label="al") for place in range(30)),
        duel(60, 0, 1, "one", label="cy"),
    ]
    report = tournament(duels, ("old", "new"))
    newest = report.profiles[0]
    rows = [(row.label, row.tasks, row.standing.won, row.standing.lost, row.verdict) for row in newest.rows]
    assert ([each.name for each in report.profiles], rows) == (
        ["new", "old"],
        [("bo", 30, 30, 0, "better"), ("al", 30, 15, 15, "worse"), ("cy", 1, 0, 1, "undecided")],
    )
    lost_once = newest.rows[2].standing.strength
    assert (lost_once.low or 0) < 0 < (lost_once.high or 0)
    assert tournament([one.model_copy(update={"label": "bo"}) for one in duels], ("old", "new")).profiles == ()
