"""Word matching that ignores case and punctuation."""

import re
import unicodedata
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def split_words(text: str) -> Sequence[str]:
    """Words of a text; "don't" is one word."""
    return _WORD.findall(text)


def normalise_spelling(text: str) -> str:
    """NFKC and case-folded words, each with a single space around it."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return f" {' '.join(split_words(folded))} "


def mentions(spelled_text: str, term: str) -> bool:
    """Whether the term occurs as whole words; a term without words never does."""
    wanted = normalise_spelling(term)
    return bool(wanted.strip()) and wanted in spelled_text
