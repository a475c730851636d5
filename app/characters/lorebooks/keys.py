"""Which of very many keys occur in a text, in one pass over the text."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from app.domain.search_terms import unsegmented

_EDGE: Final = "\0"
_WORD_END: Final = re.compile(f"{_EDGE}.", re.DOTALL)
_QUOTES: Final = str.maketrans("‘’“”", "''\"\"")


def plain(text: str) -> str:
    """As keys and texts are compared: NFKC with straight quotation marks."""
    return unicodedata.normalize("NFKC", text).translate(_QUOTES)


class Manner(NamedTuple):
    """How keys are compared besides."""

    case_sensitive: bool
    whole_words: bool
    """Of keys without a space: before and after them is no letter, digit or sign that makes one word with them. Keys
    with one are found anywhere, and so are those in scripts without spaces."""

    def cased(self, text: str) -> str:
        return text if self.case_sensitive else text.casefold()


class KeyIndex:
    """Keys that are compared in one manner, known by numbers; keys that are equal in it have the same one."""

    def __init__(self, manner: Manner, keys: Iterable[str]) -> None:
        self._manner = manner
        forms = {key: self._form_of_key(key) for key in keys}
        self._keys = sorted({"", *forms.values()})
        places = {form: place for place, form in enumerate(self._keys)}
        self.numbers = {key: places[form] for key, form in forms.items() if form}
        self._longest = max(map(len, self._keys))
        self._first = {key[0] for key in self._keys if key}
        self._shorter, self._leap = _beginnings(self._keys)

    def found_in(self, text: str) -> set[int]:
        """The numbers of all keys that occur; in a text that is plain already."""
        form, starts = self._form_of_text(self._manner.cased(text))
        keys, shorter, leap, first = self._keys, self._shorter, self._leap, self._first
        found: set[int] = set()
        for start in starts:
            if form[start] not in first:
                continue
            piece = form[start : start + self._longest]
            # the greatest key that does not come after the piece begins with every key with which the piece begins
            at = bisect_right(keys, piece) - 1
            while not piece.startswith(keys[at]):
                at = shorter[at] if piece.startswith(keys[leap[at]]) else leap[at]
            while at and at not in found:
                found.add(at)
                at = shorter[at]
        return found

    def _form_of_key(self, key: str) -> str:
        form = self._manner.cased(plain(key.strip()))
        return _edged(form)[0] if form and self._manner.whole_words else form

    def _form_of_text(self, text: str) -> tuple[str, Iterable[int]]:
        """And where in it a key may begin."""
        return _edged(text) if self._manner.whole_words else (text, range(len(text)))


def _edged(text: str) -> tuple[str, list[int]]:
    """With an edge at whatever ends a word, so that a key that ends with one is found as a whole word alone; and the
    places at which a word may begin."""
    edges = {ord(letter): _EDGE + letter for letter in set(text) if not _joins(letter)}
    form = text.translate(edges)
    return form + _EDGE, [0, *(end.end() for end in _WORD_END.finditer(form))]


@lru_cache(maxsize=10_000)
def _joins(letter: str) -> bool:
    """Whether it makes one word with others like it beside it."""
    in_word = letter == "_" or letter.isalnum() or unicodedata.category(letter).startswith("M")
    return in_word and not unsegmented(letter)


def _beginnings(keys: list[str]) -> tuple[list[int], list[int]]:
    """For every place in the sorted keys, of which the first is empty: that of the longest other key with which it
    begins, and that of a much shorter one, so that each is reached in few steps (Myers 1983, "An applicative
    random-access stack")."""
    shorter, leap, depth = [0], [0], [0]
    for place, key in enumerate(keys[1:], 1):
        at = place - 1
        while not key.startswith(keys[at]):
            at = shorter[at]
        far = leap[at]
        even = depth[at] - depth[far] == depth[far] - depth[leap[far]]
        shorter.append(at)
        leap.append(leap[far] if even else at)
        depth.append(depth[at] + 1)
    return shorter, leap
