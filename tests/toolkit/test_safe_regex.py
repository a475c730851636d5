"""Patterns of strangers."""

from collections.abc import Callable

import pytest

from app.toolkit.texts import MOST_CHARACTERS, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "all_of_it", "place"),
    [
        ("a+b", "aab", True, (0, 3)),
        ("a+b", "xaab", False, (1, 4)),
        ("(?P<year>[0-9]{4})", "in 1984", False, (3, 7)),
        ("(?i)É", "né", False, (1, 2)),
        (r"\pL+", "日本", True, (0, 2)),
        ("", "", True, (0, 0)),
        ("b", "a", False, None),
        ("^(a+)+$", "a" * 100_000 + "b", False, None),
    ],
)
def test_a_pattern(pattern: str, text: str, all_of_it: bool, place: tuple[int, int] | None) -> None:
    made = compile_pattern(pattern)
    assert (made.matches(text), made.find(text)) == (all_of_it, place)


@pytest.mark.parametrize(("text", "most", "count"), [("aXbXa", 9, 2), ("aXbXa", 1, 1), ("b", 9, 0), ("aa", 9, 2)])
def test_matches_are_counted_up_to_a_most(text: str, most: int, count: int) -> None:
    assert compile_pattern("a").count(text, most) == count


NO_LOOKING = "it has no look-around, no back-references by name and no atomic groups"
NO_BACK = "it has no such escape, and no back-references"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)b", f"RE2 cannot use this pattern: invalid perl operator: (?=; {NO_LOOKING}"),
        ("(?<!a)b", f"RE2 cannot use this pattern: invalid perl operator: (?<!; {NO_LOOKING}"),
        ("(?>a)b", f"RE2 cannot use this pattern: invalid perl operator: (?>; {NO_LOOKING}"),
        (r"(a)\1", rf"RE2 cannot use this pattern: invalid escape sequence: \1; {NO_BACK}"),
        ("(", "RE2 cannot use this pattern: missing ): ("),
        ("a**", "RE2 cannot use this pattern: bad repetition operator: **"),
        ("(x{100}){100}", "RE2 cannot use this pattern: invalid repetition size: {100}"),
        (r"[\pL\pN]{200}", "RE2 cannot use this pattern: pattern too large - compile failed"),
        ("\ud800", "a lone surrogate is not text"),
        ("a" * (MOST_CHARACTERS + 1), "a pattern has at most 1000 characters, this one 1001"),
    ],
)
def test_what_cannot_be_used_says_why(pattern: str, reason: str) -> None:
    assert refusal(lambda: compile_pattern(pattern)) == reason


def test_a_text_may_be_too_long_for_a_pattern() -> None:
    costly = compile_pattern("(a?){300}b")
    refused = "the pattern may take more than 10,000,000 steps over 100,000 bytes"
    assert (refusal(lambda: costly.matches("a" * 100_000)), costly.find("a" * 100)) == (refused, None)


def refusal(use: Callable[[], object]) -> str:
    with pytest.raises(ValueError, match=r"pattern|surrogate") as caught:
        use()
    return str(caught.value)
