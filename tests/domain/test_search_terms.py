"""What texts are found by."""

import pytest

from app.domain.worlds import MAX_TERM_LENGTH, MAX_TERMS, extract_terms
from tests.support.tables import read_table

FOUND: dict[str, tuple[str, ...]] = {
    **read_table(__file__, "search_terms.yaml", dict[str, tuple[str, ...]]),
    "… !? \x00 \ud800 🐺 _": (),
    "x" * 200: ("x" * MAX_TERM_LENGTH,),
}


@pytest.mark.parametrize("text", FOUND, ids=range(len(FOUND)))
def test_words_are_folded_and_unsegmented_scripts_come_in_pairs(text: str) -> None:
    assert extract_terms(text) == FOUND[text]


@pytest.mark.parametrize("text", ["a " * 10_000, "橋" * 10_000, "ﷺ" * 10_000], ids=["words", "pairs", "ligatures"])
def test_a_text_has_so_many_terms_at_most(text: str) -> None:
    assert len(extract_terms(text)) == MAX_TERMS
