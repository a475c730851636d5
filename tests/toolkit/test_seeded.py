"""Choices that are the same everywhere, and even."""

from collections import Counter

import pytest

from app.toolkit.seeded import SeededRandom, draw_apart, is_held_out


def test_the_same_seed_makes_the_same_choices() -> None:
    draws = SeededRandom("rain")
    made = [draws.below(1000) for _ in range(5)], draws.some("abcdef", 3), draws.shuffled("abc"), draws.chance(50)
    assert made == ([187, 882, 733, 235, 368], ["c", "b", "e"], ["c", "a", "b"], True)


def test_choices_are_even_however_many_are_made() -> None:
    draws = SeededRandom("long")
    counts = Counter(draws.below(10) for _ in range(20_000))
    assert (len(counts), max(counts.values()) < 2_200, min(counts.values()) > 1_800) == (10, True, True)


def test_some_of_few_are_all_of_them() -> None:
    assert sorted(SeededRandom("few").some([3, 1, 2], 9)) == [1, 2, 3]


def test_what_is_drawn_apart_is_for_training_or_for_testing() -> None:
    def drawn(test: bool) -> set[int]:
        return {draw_apart(f"number {index}", test, lambda draws: draws.below(500), str) for index in range(2_000)}

    kept = {test: {is_held_out(str(number)) for number in drawn(test)} for test in (False, True)}
    assert (kept, len(drawn(False)) > 400) == ({False: {False}, True: {True}}, True)


def test_what_never_comes_apart_is_an_error() -> None:
    wanted = not is_held_out("always")
    with pytest.raises(ValueError, match="nothing drawn from 'seed' is for"):
        draw_apart("seed", wanted, lambda _: "always", str)
