"""Lorebooks prepared for search."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.characters.lorebooks.key_index import KeyIndex, MatchMode
from app.characters.lorebooks.key_patterns import compile_usable_keys
from app.characters.lorebooks.key_search import KeyMatches, KeyPlace, KeySearch, PatternKeySearch, PlainKeySearch
from app.domain.lorebooks import Lorebook, LoreEntry

Kind = MatchMode | None
"""None: regular expressions."""


@dataclass(frozen=True)
class PreparedEntry:
    """An entry with its effective settings: its own, else its book's."""

    book: str
    entry: LoreEntry
    place: int
    """Index in its book."""
    recursive: bool
    depth: int
    keys: tuple[tuple[str, KeyPlace], ...]
    secondary: tuple[KeyPlace | None, ...]
    """None for a key that cannot match."""

    def find_trigger(self, heard: KeyMatches) -> str | None:
        """Description of what activates the entry; None if nothing does."""
        if self.entry.constant:
            return "constant"
        for words, key in self.keys:
            piece = heard.find_match(key, self.depth)
            if piece is not None and self._satisfies_secondary_keys(heard):
                return f'key "{words}"' + (f' in the entry "{piece.entry}"' if piece.entry else "")
        return None

    def _satisfies_secondary_keys(self, heard: KeyMatches) -> bool:
        if not self.entry.secondary_keys:
            return True
        found = [key is not None and heard.find_match(key, self.depth) is not None for key in self.secondary]
        match self.entry.logic:
            case "and_any":
                return any(found)
            case "and_all":
                return all(found)
            case "not_any":
                return not any(found)
            case "not_all":
                return not all(found)


@dataclass(frozen=True)
class PreparedBooks:
    entries: tuple[PreparedEntry, ...]
    budgets: Mapping[str, int]
    """Token budgets of books that have one."""
    searches: tuple[tuple[KeySearch, int], ...]
    """Searches with their maximum scan depth."""


@dataclass(frozen=True)
class _Candidate:
    """An entry that may be recalled, in its book."""

    book_name: str
    book: Lorebook
    place: int
    entry: LoreEntry

    @property
    def depth(self) -> int:
        return self.book.scan_depth if self.entry.scan_depth is None else self.entry.scan_depth

    def classify(self, keys: Iterable[str]) -> Iterator[tuple[Kind, str]]:
        book, entry = self.book, self.entry
        whole = book.whole_words if entry.whole_words is None else entry.whole_words
        cased = book.case_sensitive if entry.case_sensitive is None else entry.case_sensitive
        plainly = None if entry.regex else MatchMode(cased, False)
        wholly = None if entry.regex else MatchMode(cased, whole)
        return ((wholly if whole and len(key.split()) == 1 else plainly, key) for key in keys)


def prepare_books(books: Mapping[str, Lorebook]) -> PreparedBooks:
    candidates = [
        _Candidate(name, book, place, entry)
        for name, book in books.items()
        for place, entry in enumerate(book.entries)
        if entry.enabled and entry.content.strip() and (entry.constant or entry.keys)
    ]
    searches, known = _build_searches(candidates)
    budgets = {name: book.token_budget for name, book in books.items() if book.token_budget is not None}
    return PreparedBooks(tuple(_prepare_entry(one, known) for one in candidates), budgets, tuple(searches))


def _build_searches(
    candidates: Sequence[_Candidate],
) -> tuple[list[tuple[KeySearch, int]], Mapping[Kind, Mapping[str, KeyPlace]]]:
    """One search for each kind of keys with its maximum scan depth, and the places of the keys in them."""
    wanted: dict[Kind, dict[str, None]] = defaultdict(dict)
    reaches: dict[Kind, int] = defaultdict(int)
    for one in candidates:
        for kind, key in one.classify((*one.entry.keys, *one.entry.secondary_keys)):
            wanted[kind][key] = None
            reaches[kind] = max(reaches[kind], one.depth)
    known: dict[Kind, Mapping[str, KeyPlace]] = {}
    searches: list[tuple[KeySearch, int]] = []
    for kind, keys in wanted.items():
        search, numbers = _build_search(kind, tuple(keys))
        known[kind] = {key: (len(searches), number) for key, number in numbers.items()}
        searches.append((search, reaches[kind]))
    return searches, known


def _prepare_entry(candidate: _Candidate, known: Mapping[Kind, Mapping[str, KeyPlace]]) -> PreparedEntry:
    entry = candidate.entry
    sought = ((key, known[kind].get(key)) for kind, key in candidate.classify(entry.keys))
    return PreparedEntry(
        book=candidate.book_name,
        entry=entry,
        place=candidate.place,
        recursive=candidate.book.recursive,
        depth=candidate.depth,
        keys=tuple((key, place) for key, place in sought if place is not None),
        secondary=tuple(known[kind].get(key) for kind, key in candidate.classify(entry.secondary_keys)),
    )


def _build_search(kind: Kind, keys: Sequence[str]) -> tuple[KeySearch, Mapping[str, int]]:
    """The search, and the numbers of its keys."""
    if kind is None:
        usable = compile_usable_keys(keys)
        return PatternKeySearch(tuple(usable.values())), {key: number for number, key in enumerate(usable)}
    index = KeyIndex(kind, keys)
    return PlainKeySearch(index), index.numbers
