"""What texts are found by."""

import pytest

from app.domain.worlds import MAX_TERM_LENGTH, MAX_TERMS, extract_terms

FOUND = {
    "The Bridge, the BRIDGE!": ("the", "bridge", "the", "bridge"),
    "Ottoline's well-kept 3rd key": ("ottoline", "s", "well", "kept", "3rd", "key"),
    "Café Cafe\u0301 Straße ﬁre ÅSA": ("cafe", "cafe", "strasse", "fire", "asa"),
    "Ёлка ёлка": ("елка", "елка"),
    "١٢ שָׁלוֹם": ("١٢", "שלום"),
    "हिन्दी": ("हिन्दी",),
    "東京タワー": ("東京", "京タ", "タワ", "ワー"),
    "ﾀﾜｰ": ("タワ", "ワー"),
    "火、山": ("火", "山"),
    "が か": ("が", "か"),
    "the 塔 bell鐘楼": ("the", "塔", "bell", "鐘楼"),
    "กรุงเทพ": ("กร", "รุ", "ุง", "งเ", "เท", "ทพ"),
    "기사가": ("기사", "사가"),
    "": (),
    "… !? \x00 \ud800 🐺 _": (),
    "x" * 200: ("x" * MAX_TERM_LENGTH,),
}


@pytest.mark.parametrize("text", FOUND, ids=range(len(FOUND)))
def test_words_are_folded_and_unsegmented_scripts_come_in_pairs(text: str) -> None:
    assert extract_terms(text) == FOUND[text]


@pytest.mark.parametrize("text", ["a " * 10_000, "橋" * 10_000, "ﷺ" * 10_000], ids=["words", "pairs", "ligatures"])
def test_a_text_has_so_many_terms_at_most(text: str) -> None:
    assert len(extract_terms(text)) == MAX_TERMS
