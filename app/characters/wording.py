"""Words of texts that authors wrote: enough to find a term again however it is capitalised or punctuated."""

import re
import unicodedata
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words(text: str) -> Sequence[str]:
    """As one would count them: "don't" is one."""
    return _WORD.findall(text)


def spelled(text: str) -> str:
    """NFKC, case folded, words apart by one space, with one around the whole."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return f" {' '.join(words(folded))} "


def mentions(spelled_text: str, term: str) -> bool:
    """Whether the term occurs as whole words; one without words never does."""
    wanted = spelled(term)
    return bool(wanted.strip()) and wanted in spelled_text
