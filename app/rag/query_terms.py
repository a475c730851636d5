"""Query terms of a line: its words without stop words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.search_terms import extract_terms
from app.toolkit.package_data import read_packaged_data

MOST_TERMS: Final = 64
"""Taken from the end of the text."""

_STOP_WORDS: Final = {
    language: frozenset(words.split())
    for language, words in read_packaged_data(
        Path(__file__).with_name("function_words.yaml"), TypeAdapter(dict[str, str])
    ).items()
}


def extract_query_terms(text: str) -> tuple[str, ...]:
    """Distinct terms, the last first, without stop words: in a small world a stop word may be rarer than the words that
    matter. The stop words are those of the language with most of them in the line, since "war" is one in German but not
    in English. A line of stop words only keeps them."""
    asked = tuple(dict.fromkeys(reversed(extract_terms(text))))[:MOST_TERMS]
    idle = max(_STOP_WORDS.values(), key=lambda words: _count_occurring(words, asked))
    return tuple(term for term in asked if term not in idle) or asked


def _count_occurring(words: frozenset[str], asked: Sequence[str]) -> int:
    return sum(term in words for term in asked)
