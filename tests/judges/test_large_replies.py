"""Large replies are read in windows, and come out as if they were read at once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.judging import Probes
from app.judges import gate_wordings
from app.judges.gate_wordings import Reply, fold_text, iterate_ngrams, split_words, to_sentences
from app.judges.offline import FaultQuotes, Lexicon, Measures, get_language, quote_faults
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


def measure(text: str) -> tuple[Measures, FaultQuotes]:
    language = get_language("en")
    assert language is not None
    lexicon = Lexicon(language, Probes(must_not_mention=("b c",)), " a b ", frozenset({"a"}), frozenset({"a", "d"}))
    measures = lexicon.measure(text)
    return measures, quote_faults(text, measures)


@given(st.lists(st.sampled_from(["a", "b", "c", "d. ", "as an ai", "\n"]), max_size=60).map(" ".join))
def test_repetition_is_counted_to_the_bit(text: str) -> None:
    measures, quotes = measure(text)
    counts = Counter(iterate_ngrams(Reply(text).words, 4))
    repeated = {run for run, count in counts.items() if count > 1}
    quoted = repeated.intersection(iterate_ngrams(Reply(quotes.repetition).words, 4))
    counted = min(1.0, sum(count - 1 for count in counts.values()) / 6)
    assert (measures.repetition, bool(quoted) or len(quotes.repetition) == 200) == (counted, counted > 0)
