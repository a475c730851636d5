"""Windows find what a search of the whole text finds."""

import re

import pytest

from app.toolkit.large_texts import WINDOW, iterate_matches

TAG = re.compile(r"\b<(/?)answer>")


@pytest.mark.parametrize("shift", range(12))
def test_a_match_is_found_wherever_a_window_ends(shift: int) -> None:
    text = ("x" * (WINDOW - shift) + "<answer>x</answer>") * 3
    found = [match.span() for match in iterate_matches(TAG, text, len("</answer>"))]
    assert (found, len(found)) == ([match.span() for match in TAG.finditer(text)], 6)
