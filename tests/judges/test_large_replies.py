"""Large replies are read in windows, and come out as if they were read at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.judges import gate_wordings
from app.judges.gate_wordings import fold_text, split_words, to_sentences
from app.toolkit import texts

ALPHABET = "aAzé ß\u0301\u0323\u0345\u00ad\u200bﾊﾞカ\u3099旅。、각\u1100\u1161\u11a8ﬁ１Σς'’.!?\n\ud800"
TEXTS = st.text(st.sampled_from(ALPHABET), max_size=80)


def read(text: str) -> tuple[str, tuple[str, ...], str]:
    return fold_text(text), split_words(text), to_sentences(text)


@given(TEXTS, st.integers(1, 9))
def test_windows_change_nothing(text: str, window: int) -> None:
    whole = read(text)
    with pytest.MonkeyPatch.context() as patched:
        for module in (texts, gate_wordings):
            patched.setattr(module, "WINDOW", window)
        assert read(text) == whole
