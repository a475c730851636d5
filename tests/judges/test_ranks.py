"""Orders of presentation, and standings from comparisons: win rates where all met, a model for what was not read."""

import random
from collections.abc import Sequence
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.judging import Candidate, JudgeRequest, Probes
from app.judges.aggregation import (
    Shares,
    compute_preference,
    compute_win_rates,
    kendall_tau,
    list_pairings,
    normalise_ranks,
    space_as_normal,
)
from app.judges.verdicts import (
    assign_letters,
    build_mirrored_orders,
    derive_opaque_ids,
    list_mirrored_orders,
    name_places,
)
from tests.support.judge_cases import RUBRIC
from tests.support.tables import read_table

COUNTS = st.integers(min_value=2, max_value=12)


@st.composite
def partial_shares(draw: st.DrawFn) -> tuple[int, Shares]:
    count = draw(COUNTS)
    pairs = draw(st.sets(st.sampled_from(list(combinations(range(count), 2)))))
    return count, {pair: draw(st.sampled_from((0.0, 0.25, 0.5, 1.0))) for pair in sorted(pairs)}


def consistent(qualities: list[int]) -> Shares:
    return {
        (low, high): compute_preference(qualities[low], qualities[high]) for low, high in list_pairings(len(qualities))
    }


@pytest.mark.parametrize(
    ("count", "pairs"), [(1, 0), (2, 1), (3, 3), (4, 6), (5, 10), (6, 12), (8, 16), (16, 32), (64, 128)]
)
def test_who_meets(count: int, pairs: int) -> None:
    met = list_pairings(count)
    assert len(set(met)) == len(met) == pairs
    assert all(0 <= low < high < count for low, high in met)


@given(st.integers(min_value=5, max_value=40))
def test_in_a_circle_all_meet_four_others(count: int) -> None:
    met = [place for pair in list_pairings(count) for place in pair]
    assert {met.count(place) for place in range(count)} == {4}


@given(partial_shares())
def test_standings_are_in_range_and_balance(compared: tuple[int, Shares]) -> None:
    rates = compute_win_rates(*compared)
    assert all(0.0 <= rate <= 1.0 for rate in rates)
    assert sum(rates) == pytest.approx(len(rates) / 2)


@given(partial_shares(), st.randoms())
def test_standings_follow_those_who_were_compared(compared: tuple[int, Shares], chance: random.Random) -> None:
    count, shares = compared
    moved = list(range(count))
    chance.shuffle(moved)
    renamed = {
        (min(moved[low], moved[high]), max(moved[low], moved[high])): share if moved[low] < moved[high] else 1.0 - share
        for (low, high), share in shares.items()
    }
    rates, others = compute_win_rates(count, shares), compute_win_rates(count, renamed)
    assert [others[moved[place]] for place in range(count)] == pytest.approx(list(rates))


@given(st.integers(min_value=1, max_value=40))
def test_nothing_but_ties_is_the_same_for_all(count: int) -> None:
    assert compute_win_rates(count, dict.fromkeys(list_pairings(count), 0.5)) == (0.5,) * count


def test_complete_comparisons_are_normalised_ranks() -> None:
    tiers = (("a",), ("b", "c"), ("d",))
    qualities = [3, 2, 2, 1]
    assert compute_win_rates(4, consistent(qualities)) == pytest.approx(list(normalise_ranks(tiers).values()))


@pytest.mark.parametrize("qualities", list(permutations(range(5)))[::7])
def test_five_still_all_meet(qualities: tuple[int, ...]) -> None:
    assert compute_win_rates(5, consistent(list(qualities))) == pytest.approx([quality / 4 for quality in qualities])


def test_whoever_beat_the_strong_stands_above_whoever_beat_the_weak() -> None:
    """0 beat 1, 1 beat 2, 2 beat 3: three won once or never, and yet there is an order."""
    rates = compute_win_rates(4, {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0})
    assert list(rates) == sorted(rates, reverse=True)
    assert len(set(rates)) == 4


@pytest.mark.parametrize(("count", "at_least"), [(6, 0.9), (8, 0.82), (12, 0.74), (16, 0.68), (32, 0.63)])
def test_a_circle_is_near_the_order_of_a_consistent_judge(count: int, at_least: float) -> None:
    """The documentation quotes these means."""
    chance = random.Random(5)
    taus = []
    for _ in range(60):
        qualities = list(range(count))
        chance.shuffle(qualities)
        taus.append(
            kendall_tau(compute_win_rates(count, consistent(qualities)), [float(quality) for quality in qualities])
        )
    assert sum(taus) / len(taus) >= at_least


def test_standings_are_spaced_as_in_a_normal_distribution() -> None:
    """By tables of the normal distribution; ties stay ties, and few or equal ones as they are."""
    spaced = space_as_normal([1.0, 0.75, 0.5, 0.25, 0.0])
    assert spaced == pytest.approx([1.0, 0.5 + 0.5244005 / 2.5631031, 0.5, 0.5 - 0.5244005 / 2.5631031, 0.0])
    assert space_as_normal([0.5, 0.9, 0.5]) == pytest.approx([0.5, 0.5 + 0.7279133 / 1.9348432, 0.5])
    assert [space_as_normal(each) for each in ((0.5,), (1.0, 0.0), (0.75, 0.25))] == [(0.5,), (1.0, 0.0), (0.75, 0.25)]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_spacing_keeps_order_range_and_mirror(standings: list[float]) -> None:
    spaced = space_as_normal(standings)
    ordered = [value for _, value in sorted(zip(standings, spaced, strict=True))]
    assert ordered == sorted(spaced)
    assert all(0.0 <= value <= 1.0 for value in spaced)
    assert space_as_normal([1.0 - each for each in standings]) == pytest.approx([1.0 - each for each in spaced])


FIVE = ("alpha one", "beta two", "gamma three", "delta four", "epsilon five")


def test_ids_are_opaque_distinct_and_repeatable() -> None:
    texts = [f"text {number}" for number in range(500)]
    ids = derive_opaque_ids("key", texts)
    assert ids == derive_opaque_ids("key", texts[::-1])
    assert len(set(ids.values())) == 500
    assert set(derive_opaque_ids("other key", texts[:5]).values()).isdisjoint({ids[text] for text in texts[:5]})


@given(st.lists(st.text(), unique=True, min_size=1, max_size=8))
def test_orders_depend_on_the_texts_alone(texts: list[str]) -> None:
    shuffled = sorted(texts, key=lambda text: (len(text), text[::-1]))
    forward, backward = build_mirrored_orders("key", texts, 0)
    assert (forward, backward) == build_mirrored_orders("key", shuffled, 0)
    assert forward == backward[::-1]
    assert sorted(forward) == sorted(texts)


def test_every_text_comes_first_about_equally_often() -> None:
    firsts = [build_mirrored_orders(str(number), FIVE, 0)[0][0] for number in range(1000)]
    assert all(150 < firsts.count(text) < 250 for text in FIVE)


def test_places_have_letters() -> None:
    names = name_places(60)
    assert (names[:3], names[25:28], names[51:54]) == (("A", "B", "C"), ("Z", "AA", "AB"), ("AZ", "BA", "BB"))


def request_of(key: str, order: Sequence[str], *, mirrored: bool) -> JudgeRequest:
    ids = derive_opaque_ids(key, FIVE)
    candidates = tuple(Candidate(id=ids[text], text=text) for text in order)
    return JudgeRequest(rubric=RUBRIC, document={}, probes=Probes(), candidates=candidates, mirrored=mirrored)


def test_a_mirrored_order_gives_each_reply_another_letter() -> None:
    forward, backward = build_mirrored_orders("key", FIVE[:4], 0)
    one, other = (
        dict(zip(order, assign_letters(request_of("key", order, mirrored=True)), strict=True))
        for order in (forward, backward)
    )
    assert ([*one.values()], [one[text] == other[text] for text in FIVE[:4]]) == (["A", "B", "C", "D"], [False] * 4)


def test_without_a_mirror_letters_turn_with_the_task() -> None:
    """Neither a place nor a text has the same letter over many tasks."""
    turned = []
    for number in range(1000):
        order, _ = build_mirrored_orders(str(number), FIVE, 0)
        turned.append((order, assign_letters(request_of(str(number), order, mirrored=False))))
    in_first_place = [letters[0] for _, letters in turned]
    of_first_text = [letters[order.index(FIVE[0])] for order, letters in turned]
    assert {tuple(sorted(letters)) for _, letters in turned} == {("A", "B", "C", "D", "E")}
    assert all(150 < column.count(letter) < 250 for column in (in_first_place, of_first_text) for letter in "ABCDE")


@pytest.mark.parametrize(
    ("tiers", "expected"),
    read_table(__file__, "normalised_ranks.yaml", list[tuple[tuple[tuple[str, ...], ...], dict[str, float]]]),
)
def test_normalised_ranks(tiers: tuple[tuple[str, ...], ...], expected: dict[str, float]) -> None:
    assert normalise_ranks(tiers) == expected


@pytest.mark.parametrize(
    ("one", "other", "tau"),
    [
        *read_table(__file__, "kendall.yaml", list[tuple[Sequence[float], Sequence[float], float]]),
        ((1.0, 0.5, 0.0), (0.5, 1.0, 0.0), 1 / 3),
    ],
)
def test_kendall(one: Sequence[float], other: Sequence[float], tau: float) -> None:
    assert kendall_tau(one, other) == pytest.approx(tau)


@pytest.mark.parametrize(("size", "pairs"), [(2, 1), (3, 3), (4, 6), (5, 6)])
def test_mirrored_orders_do_not_come_again(size: int, pairs: int) -> None:
    for number in range(50):
        found = list_mirrored_orders(str(number), FIVE[:size], 6)
        orders = [order for pair in found for order in pair]
        assert (len(found), len(set(orders))) == (pairs, 2 * pairs)
