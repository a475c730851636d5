"""Gates and hints on words: what they notice, and what looks like it, in each language that they claim."""

from collections import Counter

import pytest

from app.judges.gates import GATES, WORD_GATE_LANGUAGES
from tests.support.gate_sentences import Sentence, read_sentences

SENTENCES = tuple(read_sentences())
FEWEST = 10
"""Sentences of each kind for each flag and language."""


def label(sentence: Sentence) -> str:
    return f"{sentence.flag}, {sentence.kind}, {sentence.facts.language}: {sentence.text[:40]!a}"


@pytest.mark.parametrize("sentence", SENTENCES, ids=label)
def test_a_sentence_is_noticed_only_if_it_should_be(sentence: Sentence) -> None:
    assert sentence.is_noticed() == sentence.caught


def test_there_are_sentences_for_every_language_that_a_gate_claims() -> None:
    counts = Counter((sentence.flag, sentence.kind, sentence.facts.language) for sentence in SENTENCES)
    claimed = {
        (gate.flag, kind, language)
        for gate in GATES
        if set(WORD_GATE_LANGUAGES) <= set(gate.languages)
        for language in WORD_GATE_LANGUAGES
        for kind in ("caught", "passes")
    }
    assert {key for key in claimed if counts[key] < FEWEST} == set()
