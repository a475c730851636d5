"""Search for keys in messages and in contents of entries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.characters.lorebooks.keys import KeyIndex, plain
from app.toolkit.safe_regex import Pattern

MOST_LETTERS: Final = 100_000
"""Characters scanned at the end of a conversation, and again as many in contents."""

MOST_STEPS: Final = 30_000_000
"""Budget of `Pattern.steps` per recall: some tenths of a second at worst. A search beyond the budget finds nothing."""


Sought = tuple[int, int]
"""A key: the index of its search, and its number there."""


@dataclass(frozen=True)
class Piece:
    """A scanned text. `distance`: messages back from the last one, which is 0; -1 for an entry's content."""

    text: str
    plain: str
    distance: int
    entry: str = ""


class Effort:
    """The remaining step budget of regular expressions."""

    def __init__(self) -> None:
        self._left = MOST_STEPS

    def covers(self, steps: int) -> bool:
        if steps > self._left:
            return False
        self._left -= steps
        return True


class Search(Protocol):
    def found_in(self, piece: Piece, effort: Effort) -> Iterable[int]:
        """Numbers of the keys that occur."""


class PlainSearch:
    def __init__(self, index: KeyIndex) -> None:
        self._index = index

    def found_in(self, piece: Piece, effort: Effort) -> Iterable[int]:
        return self._index.found_in(piece.plain)


class PatternSearch:
    """Search for patterns, numbered by index."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)

    def found_in(self, piece: Piece, effort: Effort) -> Iterable[int]:
        return [number for number, pattern in enumerate(self._patterns) if _occurs(pattern, piece.text, effort)]


def _occurs(pattern: Pattern, text: str, effort: Effort) -> bool:
    try:
        return effort.covers(pattern.steps(text)) and pattern.find(text) is not None
    except ValueError:  # a lone surrogate, or too long for a pattern of this size
        return False


class Heard:
    """Matches of keys: in contents, else in the newest matching message."""

    def __init__(self, searches: Sequence[tuple[Search, int]]) -> None:
        """Searches, each with its maximum scan depth in messages."""
        self._searches = tuple(searches)
        self._found: dict[Sought, Piece] = {}
        self._effort = Effort()
        self._letters_of_contents = MOST_LETTERS

    def messages(self, conversation: Sequence[str]) -> None:
        """Scans messages; the newest is the last."""
        left = MOST_LETTERS
        reach = max((reach for _, reach in self._searches), default=0)
        for distance, said in enumerate(reversed(conversation[-reach:] if reach else ())):
            if left <= 0:
                break
            text = said[-left:]
            compared = plain(text)[-left:]
            left -= len(compared)
            self._scan(Piece(text, compared, distance))

    def content(self, entry: str, content: str) -> None:
        text = content[: self._letters_of_contents]
        compared = plain(text)[: self._letters_of_contents]
        self._letters_of_contents -= len(compared)
        if compared:
            self._scan(Piece(text, compared, -1, entry))

    def where(self, key: Sought, depth: int) -> Piece | None:
        """The match in contents or in the last `depth` messages."""
        piece = self._found.get(key)
        return None if piece is None or piece.distance >= depth else piece

    def _scan(self, piece: Piece) -> None:
        for place, (search, reach) in enumerate(self._searches):
            if piece.distance < reach:
                for number in search.found_in(piece, self._effort):
                    self._note((place, number), piece)

    def _note(self, key: Sought, piece: Piece) -> None:
        before = self._found.get(key)
        if before is None or piece.distance < before.distance:
            self._found[key] = piece
