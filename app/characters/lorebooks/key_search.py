"""Search for keys in messages and in contents of entries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.characters.lorebooks.key_index import KeyIndex, normalise_text
from app.toolkit.safe_regex import Pattern

MOST_LETTERS: Final = 100_000
"""Characters scanned at the end of a conversation, and again as many in contents."""

MOST_STEPS: Final = 30_000_000
"""Budget of `Pattern.steps` per recall: some tenths of a second at worst. A search beyond the budget finds nothing."""


KeyPlace = tuple[int, int]
"""A key: the index of its search, and its number there."""


@dataclass(frozen=True)
class ScannedText:
    """A scanned text. `distance`: messages back from the last one, which is 0; -1 for an entry's content."""

    text: str
    plain: str
    distance: int
    entry: str = ""


class StepBudget:
    """The remaining step budget of regular expressions."""

    def __init__(self) -> None:
        self._left = MOST_STEPS

    def try_spend(self, steps: int) -> bool:
        if steps > self._left:
            return False
        self._left -= steps
        return True


class KeySearch(Protocol):
    def find_keys(self, piece: ScannedText, effort: StepBudget) -> Iterable[int]:
        """Numbers of the keys that occur."""


class PlainKeySearch:
    def __init__(self, index: KeyIndex) -> None:
        self._index = index

    def find_keys(self, piece: ScannedText, effort: StepBudget) -> Iterable[int]:
        return self._index.find_keys(piece.plain)


class PatternKeySearch:
    """Search for patterns, numbered by index."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)

    def find_keys(self, piece: ScannedText, effort: StepBudget) -> Iterable[int]:
        return [number for number, pattern in enumerate(self._patterns) if _occurs_within(pattern, piece.text, effort)]


def _occurs_within(pattern: Pattern, text: str, effort: StepBudget) -> bool:
    try:
        return effort.try_spend(pattern.steps(text)) and pattern.find(text) is not None
    except ValueError:  # a lone surrogate, or too long for a pattern of this size
        return False


class KeyMatches:
    """Matches of keys: in contents, else in the newest matching message."""

    def __init__(self, searches: Sequence[tuple[KeySearch, int]]) -> None:
        """Searches, each with its maximum scan depth in messages."""
        self._searches = tuple(searches)
        self._found: dict[KeyPlace, ScannedText] = {}
        self._effort = StepBudget()
        self._letters_of_contents = MOST_LETTERS

    def scan_messages(self, conversation: Sequence[str]) -> None:
        """Scans messages; the newest is the last."""
        left = MOST_LETTERS
        reach = max((reach for _, reach in self._searches), default=0)
        for distance, said in enumerate(reversed(conversation[-reach:] if reach else ())):
            if left <= 0:
                break
            text = said[-left:]
            compared = normalise_text(text)[-left:]
            left -= len(compared)
            self._scan(ScannedText(text, compared, distance))

    def scan_content(self, entry: str, content: str) -> None:
        text = content[: self._letters_of_contents]
        compared = normalise_text(text)[: self._letters_of_contents]
        self._letters_of_contents -= len(compared)
        if compared:
            self._scan(ScannedText(text, compared, -1, entry))

    def find_match(self, key: KeyPlace, depth: int) -> ScannedText | None:
        """The match in contents or in the last `depth` messages."""
        piece = self._found.get(key)
        return None if piece is None or piece.distance >= depth else piece

    def _scan(self, piece: ScannedText) -> None:
        for place, (search, reach) in enumerate(self._searches):
            if piece.distance < reach:
                for number in search.find_keys(piece, self._effort):
                    self._note((place, number), piece)

    def _note(self, key: KeyPlace, piece: ScannedText) -> None:
        before = self._found.get(key)
        if before is None or piece.distance < before.distance:
            self._found[key] = piece
