"""Strengths against what is known and against other ways to compute them."""

import math
import random
from itertools import permutations

import numpy as np
import pytest

from app.evaluation.tournament import (
    Floats,
    PairReading,
    count_readings,
    find_components,
    fit_strengths,
    resample_strengths,
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


def test_labels_have_standings_of_their_own_duels() -> None:
    duels = [
        *(duel(place, 0, 1, "other", label="bo") for place in range(30)),
        *(duel(30 + place, 0, 1, "one" if place % 2 else "other", label="al") for place in range(30)),
    ]
    labels = tournament(duels, ("old", "new")).labels
    found = [(one.label, one.tasks, [(row.name, row.won, row.lost) for row in one.standings]) for one in labels]
    alone = tournament([one for one in duels if one.label == "bo"], ("old", "new"))
    assert (found[1], labels[1].standings, {row[:2] for row in found}, alone.labels) == (
        ("bo", 30, [("new", 30, 0), ("old", 0, 30)]),
        alone.standings,
        {("al", 30), ("bo", 30)},
        (),
    )
