"""Orders of presentation, opaque ids, and the measures of agreement between readings."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.judging import Candidate, JudgeRequest, Probes
from app.judges.aggregation import kendall_tau, normalise_ranks
from app.judges.verdicts import (
    assign_letters,
    build_mirrored_orders,
    derive_opaque_ids,
    list_mirrored_orders,
    name_places,
)
from tests.support.judge_cases import RUBRIC

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
    [
        ((("a",),), {"a": 0.5}),
        ((("a",), ("b",)), {"a": 1.0, "b": 0.0}),
        ((("a", "b"), ("c",)), {"a": 0.75, "b": 0.75, "c": 0.0}),
        ((("a", "b", "c"),), {"a": 0.5, "b": 0.5, "c": 0.5}),
    ],
)
def test_normalised_ranks(tiers: tuple[tuple[str, ...], ...], expected: dict[str, float]) -> None:
    assert normalise_ranks(tiers) == expected


@pytest.mark.parametrize(
    ("one", "other", "tau"),
    [
        ((1.0, 0.5, 0.0), (0.9, 0.2, 0.1), 1.0),
        ((1.0, 0.5, 0.0), (0.0, 0.5, 1.0), -1.0),
        ((1.0, 0.5, 0.0), (0.5, 1.0, 0.0), 1 / 3),
        ((0.5, 0.5), (0.5, 0.5), 1.0),
        ((1.0, 0.0), (0.5, 0.5), 0.0),
        ((0.5,), (0.5,), 1.0),
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
