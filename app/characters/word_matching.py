"""Word matching that ignores case and punctuation."""

import re
import unicodedata
from collections.abc import Sequence

UNSEGMENTED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts written without spaces, as a class of characters. Each character is a word."""
_LETTER = rf"[^\W_{UNSEGMENTED}]"
_WORD = re.compile(rf"[{UNSEGMENTED}]|{_LETTER}+(?:['’]{_LETTER}+)*")
_ONE = re.compile(f"[{UNSEGMENTED}]")
_SPOKEN_WORD = re.compile(rf"[{UNSEGMENTED}]|[^\W{UNSEGMENTED}]+")


def split_words(text: str) -> Sequence[str]:
    """Words of a text; "don't" is one word."""
    return _WORD.findall(text)


def count_words(text: str) -> int:
    """Length in words. A character of a script without spaces counts half, as for gates."""
    words = split_words(text)
    single = sum(_ONE.match(word) is not None for word in words)
    return len(words) - single // 2


def split_spoken_words(text: str) -> Sequence[str]:
    """Words of folded text, in the form that conditions of scenes are matched in."""
    return _SPOKEN_WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def normalise_spelling(text: str) -> str:
    """NFKC and case-folded words, each with a single space around it."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return f" {' '.join(split_words(folded))} "


def mentions(spelled_text: str, term: str) -> bool:
    """Whether the term occurs as whole words; a term without words never does."""
    wanted = normalise_spelling(term)
    return bool(wanted.strip()) and wanted in spelled_text
