"""Search for many keys in one pass over a text."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from app.domain.search_terms import is_unsegmented

_EDGE: Final = "\0"
_WORD_END: Final = re.compile(f"{_EDGE}.", re.DOTALL)
_QUOTES: Final = str.maketrans("‘’“”", "''\"\"")


def normalise_text(text: str) -> str:
    """Normalises keys and texts: NFKC with straight quotation marks."""
    return unicodedata.normalize("NFKC", text).translate(_QUOTES)


class MatchMode(NamedTuple):
    """Options of key comparison."""

    case_sensitive: bool
    whole_words: bool
    """Match keys without a space as whole words only. Keys with a space, and keys in scripts without spaces, match
    anywhere."""

    def apply_case(self, text: str) -> str:
        return text if self.case_sensitive else text.casefold()


class KeyIndex:
    """An index of numbered keys with the same options; equal keys share a number."""

    def __init__(self, manner: MatchMode, keys: Iterable[str]) -> None:
        self._manner = manner
        forms = {key: self._normalise_key(key) for key in keys}
        self._keys = sorted({"", *forms.values()})
        places = {form: place for place, form in enumerate(self._keys)}
        self.numbers = {key: places[form] for key, form in forms.items() if form}
        self._longest = max(map(len, self._keys))
        self._first = {key[0] for key in self._keys if key}
        self._shorter, self._leap = _link_prefixes(self._keys)

    def find_keys(self, text: str) -> set[int]:
        """Numbers of all keys that occur in a normalised text."""
        form, starts = self._prepare_text(self._manner.apply_case(text))
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

    def _normalise_key(self, key: str) -> str:
        form = self._manner.apply_case(normalise_text(key.strip()))
        return _mark_word_edges(form)[0] if form and self._manner.whole_words else form

    def _prepare_text(self, text: str) -> tuple[str, Iterable[int]]:
        """The text to search, and the positions where a key may begin."""
        return _mark_word_edges(text) if self._manner.whole_words else (text, range(len(text)))


def _mark_word_edges(text: str) -> tuple[str, list[int]]:
    """The text with markers at word ends, so that keys match whole words only, and the positions of word starts."""
    edges = {ord(letter): _EDGE + letter for letter in set(text) if not _is_word_letter(letter)}
    form = text.translate(edges)
    return form + _EDGE, [0, *(end.end() for end in _WORD_END.finditer(form))]


@lru_cache(maxsize=10_000)
def _is_word_letter(letter: str) -> bool:
    """Whether a character joins its neighbours into one word."""
    in_word = letter == "_" or letter.isalnum() or unicodedata.category(letter).startswith("M")
    return in_word and not is_unsegmented(letter)


def _link_prefixes(keys: list[str]) -> tuple[list[int], list[int]]:
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
