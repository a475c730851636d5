"""Windows find what a search of the whole text finds."""

import re

import pytest

from app.toolkit.texts import WINDOW, iterate_lines, iterate_matches, iterate_pieces, iterate_words

TAG = re.compile(r"\b<(/?)answer>")


@pytest.mark.parametrize("shift", range(12))
def test_a_match_is_found_wherever_a_window_ends(shift: int) -> None:
    text = ("x" * (WINDOW - shift) + "<answer>x</answer>") * 3
    found = [match.span() for match in iterate_matches(TAG, text, len("</answer>"))]
    assert (found, len(found)) == ([match.span() for match in TAG.finditer(text)], 6)


@pytest.mark.parametrize("pattern", [r"[旅人]|[^\W_旅人]+", r"[旅人]|[^\W_旅人]+|[.!?\n]"])
@pytest.mark.parametrize("shift", range(4))
def test_words_are_found_wherever_a_window_ends(pattern: str, shift: int) -> None:
    text = "x" * (WINDOW - shift) + " 旅a旅人.b_ c!" + "y" * (3 * WINDOW) + "人z" * WINDOW + "é.!_" * WINDOW
    compiled = re.compile(pattern)
    assert list(iterate_words(compiled, text)) == compiled.findall(text)


def test_pieces_are_the_text_and_end_where_it_is_safe() -> None:
    text = "é" * WINDOW + " " + "é" * (2 * WINDOW) + " x"
    pieces = list(iterate_pieces(text, re.compile("[ x]")))
    assert pieces == ["é" * WINDOW, " " + "é" * (2 * WINDOW), " x"]


@pytest.mark.parametrize("text", ["", "\n", "a", "a\r\nb\r\r\n\rc\r", "\r\n\n\r\n", "a\n\nb\n"])
def test_lines_are_those_of_a_split(text: str) -> None:
    assert list(iterate_lines(text)) == text.replace("\r\n", "\n").split("\n")
