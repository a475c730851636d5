"""Query terms of a line: its words without stop words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.search_terms import terms
from app.toolkit.package_data import packaged_data

MOST_TERMS: Final = 64
"""Taken from the end of the text."""

_FUNCTION_WORDS: Final = {
    language: frozenset(words.split())
    for language, words in packaged_data(
        Path(__file__).with_name("function_words.yaml"), TypeAdapter(dict[str, str])
    ).items()
}


def asked_about(text: str) -> tuple[str, ...]:
    """Distinct terms, the last first, without stop words: in a small world a stop word may be rarer than the words that
    matter. The stop words are those of the language with most of them in the line, since "war" is one in German but not
    in English. A line of stop words only keeps them."""
    asked = tuple(dict.fromkeys(reversed(terms(text))))[:MOST_TERMS]
    idle = max(_FUNCTION_WORDS.values(), key=lambda words: _counted(words, asked))
    return tuple(term for term in asked if term not in idle) or asked


def _counted(words: frozenset[str], asked: Sequence[str]) -> int:
    return sum(term in words for term in asked)
