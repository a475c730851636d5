"""What a person looks for in texts: words, and phrases in quotes, all of which must occur."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from app.domain.search_terms import extract_terms
from app.domain.values import Frozen

MOST_PHRASES: Final = 16
MOST_TERMS: Final = 16
"""Of one phrase."""
_QUOTES: Final = '"\u201c\u201d\u201e'
_PIECE: Final = re.compile(f"[{_QUOTES}]([^{_QUOTES}]*)[{_QUOTES}]?|[^\\s{_QUOTES}]+")


class TextQuery(Frozen):
    """Each phrase is one or more terms that stand side by side. There is at least one."""

    phrases: tuple[tuple[str, ...], ...]


def parse_text_query(text: str) -> TextQuery | None:
    """None where there is no word in it. A word that has several terms, such as `well-met`, is a phrase."""
    phrases = dict.fromkeys(islice(_split_phrases(text), MOST_PHRASES))
    return TextQuery(phrases=tuple(phrases)) if phrases else None


def _split_phrases(text: str) -> Iterator[tuple[str, ...]]:
    for piece in _PIECE.finditer(text):
        quoted = piece.group(1)
        if terms := extract_terms(piece.group() if quoted is None else quoted)[:MOST_TERMS]:
            yield terms


def share_words(texts: Iterable[str], most: int) -> list[tuple[str, ...]]:
    """The terms of each text, at most so many in all. Where there are more, the longest texts lose their ends."""
    found = [extract_terms(text) for text in texts]
    room, left = most, len(found)
    longest = 0
    for length in sorted(map(len, found)):
        longest = max(longest, min(length, room // left))
        room, left = room - min(length, room // left), left - 1
    return [terms[:longest] for terms in found]
