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


def prepare_books(books: Mapping[str, Lorebook]) -> PreparedBooks:
    candidates = [
        (name, book, place, entry)
        for name, book in books.items()
        for place, entry in enumerate(book.entries)
        if entry.enabled and entry.content.strip() and (entry.constant or entry.keys)
    ]
    wanted: dict[Kind, dict[str, None]] = defaultdict(dict)
    reaches: dict[Kind, int] = defaultdict(int)
    for _, book, _, entry in candidates:
        for kind, key in _classify_keys(book, entry, (*entry.keys, *entry.secondary_keys)):
            wanted[kind][key] = None
            reaches[kind] = max(reaches[kind], _get_scan_depth(book, entry))
    known: dict[Kind, Mapping[str, KeyPlace]] = {}
    searches: list[tuple[KeySearch, int]] = []
    for kind, keys in wanted.items():
        search, numbers = _build_search(kind, tuple(keys))
        known[kind] = {key: (len(searches), number) for key, number in numbers.items()}
        searches.append((search, reaches[kind]))
    return PreparedBooks(
        entries=tuple(
            PreparedEntry(
                book=name,
                entry=entry,
                place=place,
                recursive=book.recursive,
                depth=_get_scan_depth(book, entry),
                keys=tuple(
                    (key, sought)
                    for kind, key in _classify_keys(book, entry, entry.keys)
                    if (sought := known[kind].get(key)) is not None
                ),
                secondary=tuple(
                    known[kind].get(key) for kind, key in _classify_keys(book, entry, entry.secondary_keys)
                ),
            )
            for name, book, place, entry in candidates
        ),
        budgets={name: book.token_budget for name, book in books.items() if book.token_budget is not None},
        searches=tuple(searches),
    )


def _classify_keys(book: Lorebook, entry: LoreEntry, keys: Iterable[str]) -> Iterator[tuple[Kind, str]]:
    whole = book.whole_words if entry.whole_words is None else entry.whole_words
    cased = book.case_sensitive if entry.case_sensitive is None else entry.case_sensitive
    plainly = None if entry.regex else MatchMode(cased, False)
    wholly = None if entry.regex else MatchMode(cased, whole)
    return ((wholly if whole and len(key.split()) == 1 else plainly, key) for key in keys)


def _get_scan_depth(book: Lorebook, entry: LoreEntry) -> int:
    return book.scan_depth if entry.scan_depth is None else entry.scan_depth


def _build_search(kind: Kind, keys: Sequence[str]) -> tuple[KeySearch, Mapping[str, int]]:
    """The search, and the numbers of its keys."""
    if kind is None:
        usable = compile_usable_keys(keys)
        return PatternKeySearch(tuple(usable.values())), {key: number for number, key in enumerate(usable)}
    index = KeyIndex(kind, keys)
    return PlainKeySearch(index), index.numbers
