"""What a line is about: its terms without the words that only hold a sentence together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.search_terms import terms
from app.toolkit.package_data import packaged_data

MOST_TERMS: Final = 64
"""Of what was said, from its end."""

_FUNCTION_WORDS: Final = {
    language: frozenset(words.split())
    for language, words in packaged_data(
        Path(__file__).with_name("function_words.yaml"), TypeAdapter(dict[str, str])
    ).items()
}


def asked_about(text: str) -> tuple[str, ...]:
    """The last first, each once. In a small world a word such as "on" may be rarer than what the line turns on, so that
    its rarity says nothing. Of languages the one with most function words in the line counts: a war is none in English,
    though "war" is one in German. A line of nothing else keeps them."""
    asked = tuple(dict.fromkeys(reversed(terms(text))))[:MOST_TERMS]
    idle = max(_FUNCTION_WORDS.values(), key=lambda words: _counted(words, asked))
    return tuple(term for term in asked if term not in idle) or asked


def _counted(words: frozenset[str], asked: Sequence[str]) -> int:
    return sum(term in words for term in asked)
