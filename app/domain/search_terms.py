"""Search terms of a text: folded words, or character pairs for scripts without spaces between words."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import chain, groupby
from typing import Final

MAX_TERMS: Final = 4096
"""Maximum number of terms of one text."""
MAX_TERM_LENGTH: Final = 64
"""Maximum length in characters; longer words are cut off."""

_COMBINING_MARKS: Final = tuple(
    chain(
        range(0x0300, 0x0370),  # accents of Latin, Greek and Cyrillic letters
        range(0x0591, 0x05BE),  # Hebrew points, which most texts leave out
        (0x05BF, 0x05C1, 0x05C2, 0x05C4, 0x05C5, 0x05C7),
        range(0x064B, 0x0660),  # Arabic ones
    )
)
_MARK_REMOVAL: Final = dict.fromkeys(_COMBINING_MARKS)

_UNSEGMENTED_RANGES: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),  # Hangul: words have spaces between them, but also endings that change
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)

_BETWEEN, _WORD, _PAIRS = 0, 1, 2

_ASCII_WORD: Final = re.compile(f"([a-z0-9]{{1,{MAX_TERM_LENGTH}}})[a-z0-9]*")
"""What the general way finds in ASCII texts, at a tenth of its time."""


def extract_terms(text: str) -> tuple[str, ...]:
    """All terms in order, with repetitions, up to MAX_TERMS. Takes linear time."""
    if text.isascii():
        return tuple(_ASCII_WORD.findall(text.lower())[:MAX_TERMS])
    found: list[str] = []
    for kind, characters in groupby(_fold_text(text), _classify_character):
        if kind == _WORD:
            found.append("".join(characters)[:MAX_TERM_LENGTH])
        elif kind == _PAIRS:
            found.extend(_split_into_pairs("".join(characters)))
        if len(found) >= MAX_TERMS:
            break
    return tuple(found[:MAX_TERMS])


def _fold_text(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKD", folded).translate(_MARK_REMOVAL))


def is_unsegmented(character: str) -> bool:
    """Whether the character belongs to a script without spaces between words."""
    return any(first <= ord(character) <= last for first, last in _UNSEGMENTED_RANGES)


@cache
def _classify_character(character: str) -> int:
    if is_unsegmented(character):
        return _PAIRS if unicodedata.category(character)[0] in "LMN" else _BETWEEN
    return _WORD if unicodedata.category(character)[0] in "LMN" else _BETWEEN


def _split_into_pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for place in range(min(len(run) - 1, MAX_TERMS)):
        yield run[place : place + 2]
