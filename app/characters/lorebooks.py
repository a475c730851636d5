"""Lorebooks: which entries a conversation activates, within token budgets; and the word matching of sheets.

Keys are compared in one pass over the text, however many there are: an index finds, at each position, the longest key
with which the text goes on, and from it all shorter ones. Keys that are regular expressions come from strangers, so RE2
compiles them, and every recall has a budget of steps. `recall` has the rules of activation.
"""

import json
import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple, Protocol

from app.domain.errors import InvalidRequest
from app.domain.values import MEBIBYTE, remember
from app.domain.worlds import Lorebook, LoreEntry, is_unsegmented
from app.toolkit.seeded import SeededRandom
from app.toolkit.texts import Pattern, compile_pattern

# Keys that are plain texts

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

    def __init__(self, mode: MatchMode, keys: Iterable[str]) -> None:
        self._mode = mode
        forms = {key: self._normalise_key(key) for key in keys}
        self._keys = sorted({"", *forms.values()})
        numbers = {form: number for number, form in enumerate(self._keys)}
        self.numbers = {key: numbers[form] for key, form in forms.items() if form}
        self._longest = max(map(len, self._keys))
        self._first = {key[0] for key in self._keys if key}
        self._shorter, self._leap = _link_prefixes(self._keys)

    def find_keys(self, text: str) -> set[int]:
        """Numbers of all keys that occur in a normalised text."""
        form, starts = self._prepare_text(self._mode.apply_case(text))
        keys, shorter, leap, first = self._keys, self._shorter, self._leap, self._first
        numbers: set[int] = set()
        for start in starts:
            if form[start] not in first:
                continue
            piece = form[start : start + self._longest]
            # the greatest key that does not come after the piece begins with every key with which the piece begins
            at = bisect_right(keys, piece) - 1
            while not piece.startswith(keys[at]):
                at = shorter[at] if piece.startswith(keys[leap[at]]) else leap[at]
            while at and at not in numbers:
                numbers.add(at)
                at = shorter[at]
        return numbers

    def _normalise_key(self, key: str) -> str:
        form = self._mode.apply_case(normalise_text(key.strip()))
        return _mark_word_edges(form)[0] if form and self._mode.whole_words else form

    def _prepare_text(self, text: str) -> tuple[str, Iterable[int]]:
        """The text to search, and the positions where a key may begin."""
        return _mark_word_edges(text) if self._mode.whole_words else (text, range(len(text)))


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
    """For every one of the sorted keys, of which the first is empty: the number of the longest other key with which it
    begins, and that of a much shorter one, so that each is reached in few steps (Myers 1983, "An applicative
    random-access stack")."""
    shorter, leap, depth = [0], [0], [0]
    for number, key in enumerate(keys[1:], 1):
        at = number - 1
        while not key.startswith(keys[at]):
            at = shorter[at]
        far = leap[at]
        even = depth[at] - depth[far] == depth[far] - depth[leap[far]]
        shorter.append(at)
        leap.append(leap[far] if even else at)
        depth.append(depth[at] + 1)
    return shorter, leap


# Keys that are regular expressions

MOST_PATTERNS: Final = 1000

SLASHED_KEY: Final = re.compile(r"/(.+)/([a-z]*)", re.DOTALL)
_FLAGS: Final = frozenset("ims")
_WITHOUT_MEANING: Final = frozenset("dguvy")
"""JavaScript flags without effect on matching, or always on in RE2."""


def compile_key(key: str) -> Pattern:
    """Compiles a bare pattern or `/pattern/flags`; case-sensitive by default. ValueError with the reason for a pattern
    that RE2 does not support."""
    slashed = SLASHED_KEY.fullmatch(key)
    if slashed is None:
        return compile_pattern(key)
    pattern, flags = slashed.groups()
    unknown = sorted(set(flags) - _FLAGS - _WITHOUT_MEANING)
    if unknown:
        raise ValueError(f"a pattern has no flag {unknown[0]!r}")
    effective = "".join(sorted(_FLAGS.intersection(flags)))
    return compile_pattern(f"(?{effective}){pattern}" if effective else pattern)


def _compile_usable_keys(keys: Iterable[str]) -> dict[str, Pattern]:
    """Valid patterns among the first MOST_PATTERNS keys."""
    made = ((key, _compile_if_usable(key)) for key in islice(keys, MOST_PATTERNS))
    return {key: pattern for key, pattern in made if pattern is not None}


@remember(8 * MEBIBYTE)
def _compile_if_usable(key: str) -> Pattern | None:
    try:
        return compile_key(key)
    except ValueError:
        return None


# Search for keys in messages and in contents of entries

MOST_LETTERS: Final = 100_000
"""Characters scanned at the end of a conversation, and again as many in contents."""

_MOST_STEPS: Final = 30_000_000
"""Budget of `Pattern.steps` per recall: some tenths of a second at worst. A search beyond the budget finds nothing."""


_KeyId = tuple[int, int]
"""A key: the index of its search, and its number there."""


@dataclass(frozen=True)
class _ScannedText:
    """A scanned text. `distance`: messages back from the last one, which is 0; -1 for an entry's content."""

    text: str
    plain: str
    distance: int
    entry: str = ""


class _StepBudget:
    """The remaining step budget of regular expressions."""

    def __init__(self) -> None:
        self._left = _MOST_STEPS

    def try_spend(self, steps: int) -> bool:
        if steps > self._left:
            return False
        self._left -= steps
        return True


class _KeySearch(Protocol):
    def find_keys(self, piece: _ScannedText, effort: _StepBudget) -> Iterable[int]:
        """Numbers of the keys that occur."""


class _PlainKeySearch:
    def __init__(self, index: KeyIndex) -> None:
        self._index = index

    def find_keys(self, piece: _ScannedText, effort: _StepBudget) -> Iterable[int]:
        return self._index.find_keys(piece.plain)


class _PatternKeySearch:
    """Search for patterns, numbered by index."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)

    def find_keys(self, piece: _ScannedText, effort: _StepBudget) -> Iterable[int]:
        return [number for number, pattern in enumerate(self._patterns) if _occurs_within(pattern, piece.text, effort)]


def _occurs_within(pattern: Pattern, text: str, effort: _StepBudget) -> bool:
    try:
        return effort.try_spend(pattern.steps(text)) and pattern.find(text) is not None
    except ValueError:  # a lone surrogate, or too long for a pattern of this size
        return False


class _KeyMatches:
    """Matches of keys: in contents, else in the newest matching message."""

    def __init__(self, searches: Sequence[tuple[_KeySearch, int]]) -> None:
        """Searches, each with its maximum scan depth in messages."""
        self._searches = tuple(searches)
        self._found: dict[_KeyId, _ScannedText] = {}
        self._effort = _StepBudget()
        self._letters_of_contents = MOST_LETTERS

    def scan_messages(self, conversation: Sequence[str]) -> None:
        """Scans messages; the newest is the last."""
        left = MOST_LETTERS
        reach = max((reach for _, reach in self._searches), default=0)
        for distance, message in enumerate(reversed(conversation[-reach:] if reach else ())):
            if left <= 0:
                break
            text = message[-left:]
            compared = normalise_text(text)[-left:]  # which may be longer: one character can become several
            left -= len(compared)
            self._scan(_ScannedText(text, compared, distance))

    def scan_content(self, entry: str, content: str) -> None:
        text = content[: self._letters_of_contents]
        compared = normalise_text(text)[: self._letters_of_contents]
        self._letters_of_contents -= len(compared)
        if compared:
            self._scan(_ScannedText(text, compared, -1, entry))

    def find_match(self, key: _KeyId, depth: int) -> _ScannedText | None:
        """The match in contents or in the last `depth` messages."""
        piece = self._found.get(key)
        return None if piece is None or piece.distance >= depth else piece

    def _scan(self, piece: _ScannedText) -> None:
        for index, (search, reach) in enumerate(self._searches):
            if piece.distance < reach:
                for number in search.find_keys(piece, self._effort):
                    self._note((index, number), piece)

    def _note(self, key: _KeyId, piece: _ScannedText) -> None:
        before = self._found.get(key)
        if before is None or piece.distance < before.distance:
            self._found[key] = piece


# Lorebooks prepared for search

_Kind = MatchMode | None
"""None: regular expressions."""


@dataclass(frozen=True)
class _PreparedEntry:
    """An entry with its effective settings: its own, else its book's."""

    book: str
    entry: LoreEntry
    place: int
    """Index in its book."""
    recursive: bool
    depth: int
    keys: tuple[tuple[str, _KeyId], ...]
    secondary: tuple[_KeyId | None, ...]
    """None for a key that cannot match."""

    def find_trigger(self, heard: _KeyMatches) -> str | None:
        """Description of what activates the entry; None if nothing does."""
        if self.entry.constant:
            return "constant"
        for words, key in self.keys:
            piece = heard.find_match(key, self.depth)
            if piece is not None and self._satisfies_secondary_keys(heard):
                return f'key "{words}"' + (f' in the entry "{piece.entry}"' if piece.entry else "")
        return None

    def _satisfies_secondary_keys(self, heard: _KeyMatches) -> bool:
        if not self.entry.secondary_keys:
            return True
        matched = [key is not None and heard.find_match(key, self.depth) is not None for key in self.secondary]
        match self.entry.logic:
            case "and_any":
                return any(matched)
            case "and_all":
                return all(matched)
            case "not_any":
                return not any(matched)
            case "not_all":
                return not all(matched)


@dataclass(frozen=True)
class PreparedBooks:
    entries: tuple[_PreparedEntry, ...]
    budgets: Mapping[str, int]
    """Token budgets of books that have one."""
    searches: tuple[tuple[_KeySearch, int], ...]
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

    def classify(self, keys: Iterable[str]) -> Iterator[tuple[_Kind, str]]:
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
    searches, key_ids = _build_searches(candidates)
    budgets = {name: book.token_budget for name, book in books.items() if book.token_budget is not None}
    return PreparedBooks(tuple(_prepare_entry(one, key_ids) for one in candidates), budgets, tuple(searches))


def _build_searches(
    candidates: Sequence[_Candidate],
) -> tuple[list[tuple[_KeySearch, int]], Mapping[_Kind, Mapping[str, _KeyId]]]:
    """One search for each kind of keys with its maximum scan depth, and the places of the keys in them."""
    by_kind: dict[_Kind, dict[str, None]] = defaultdict(dict)
    reaches: dict[_Kind, int] = defaultdict(int)
    for one in candidates:
        for kind, key in one.classify((*one.entry.keys, *one.entry.secondary_keys)):
            by_kind[kind][key] = None
            reaches[kind] = max(reaches[kind], one.depth)
    key_ids: dict[_Kind, Mapping[str, _KeyId]] = {}
    searches: list[tuple[_KeySearch, int]] = []
    for kind, keys in by_kind.items():
        search, numbers = _build_search(kind, tuple(keys))
        key_ids[kind] = {key: (len(searches), number) for key, number in numbers.items()}
        searches.append((search, reaches[kind]))
    return searches, key_ids


def _prepare_entry(candidate: _Candidate, key_ids: Mapping[_Kind, Mapping[str, _KeyId]]) -> _PreparedEntry:
    entry = candidate.entry
    sought = ((key, key_ids[kind].get(key)) for kind, key in candidate.classify(entry.keys))
    return _PreparedEntry(
        book=candidate.book_name,
        entry=entry,
        place=candidate.place,
        recursive=candidate.book.recursive,
        depth=candidate.depth,
        keys=tuple((key, key_id) for key, key_id in sought if key_id is not None),
        secondary=tuple(key_ids[kind].get(key) for kind, key in candidate.classify(entry.secondary_keys)),
    )


def _build_search(kind: _Kind, keys: Sequence[str]) -> tuple[_KeySearch, Mapping[str, int]]:
    """The search, and the numbers of its keys."""
    if kind is None:
        usable = _compile_usable_keys(keys)
        return _PatternKeySearch(tuple(usable.values())), {key: number for number, key in enumerate(usable)}
    index = KeyIndex(kind, keys)
    return _PlainKeySearch(index), index.numbers


# Activation of entries by a conversation, within token budgets

MOST_ROUNDS: Final = 10
"""Maximum rounds of recursive activation."""

_FINENESS: Final = 2**32


@dataclass(frozen=True)
class RecalledEntry:
    """An activated entry."""

    book: str
    entry: LoreEntry
    because: str
    """Why it was activated, and why it was left out."""
    tokens: int
    told: bool


def recall(
    books: Mapping[str, Lorebook],
    conversation: Sequence[str],
    seed: str,
    budget_tokens: int,
    count: Callable[[str], int],
) -> tuple[RecalledEntry, ...]:
    """Activates entries. Returns those that are told, in prompt order, then those that are left out.

    1. An enabled entry with content is activated if it is constant, or if one of its keys occurs in the last
       `scan_depth` messages and its secondary keys satisfy its logic. In recursive books, contents of told entries are
       scanned too, round by round, and count as the newest message.
    2. An activated entry passes with its `probability`: a draw seeded with `seed`, the book's name and the entry's id,
       so that all completions of a task get the same result.
    3. In each round, entries are taken by priority, then order (both highest first), then book name and index. The
       first entry beyond its book's budget is left out, with all later ones of that book, smaller ones too. The first
       entry beyond `budget_tokens` ends the recall. Entries of earlier rounds keep their tokens.
    4. In the prompt, `before_character` comes before `after_character`; within each, the lower order comes first."""
    return recall_from(prepare_books(books), conversation, seed, budget_tokens, count)


def recall_from(
    books: PreparedBooks, conversation: Sequence[str], seed: str, budget_tokens: int, count: Callable[[str], int]
) -> tuple[RecalledEntry, ...]:
    """As `recall`, for prepared books."""
    heard, room = _KeyMatches(books.searches), _TokenBudget(budget_tokens, books.budgets)
    heard.scan_messages(conversation)
    told: list[tuple[_PreparedEntry, RecalledEntry]] = []
    left_out: list[RecalledEntry] = []
    waiting = list(books.entries)
    for _ in range(1 + MOST_ROUNDS):
        triggers = [(one, one.find_trigger(heard)) for one in waiting]
        new: list[_PreparedEntry] = []
        for one, because in sorted(((one, because) for one, because in triggers if because), key=_rank_by_priority):
            tokens = count(one.entry.content)
            reason = _explain_missed_chance(one, seed) or room.take_or_explain(one.book, tokens)
            words = because if reason is None else f"{because}; left out: {reason}"
            recalled = RecalledEntry(one.book, one.entry, words, tokens, told=reason is None)
            if reason is None:
                new.append(one)
                told.append((one, recalled))
            else:
                left_out.append(recalled)
        waiting = [one for one, because in triggers if because is None and _can_recurse(one)]
        speaking = [one.entry for one in new if one.recursive and not one.entry.prevent_recursion]
        if room.closed or not speaking or not waiting:
            break
        for entry in speaking:
            heard.scan_content(entry.name or entry.id, entry.content)
    told.sort(key=lambda one: _order_in_prompt(one[0]))
    return (*(recollection for _, recollection in told), *left_out)


class _TokenBudget:
    """The remaining token budgets."""

    def __init__(self, tokens: int, of_books: Mapping[str, int]) -> None:
        self.closed = False
        self._tokens, self._of_books = tokens, of_books
        self._left, self._left_of_books = tokens, dict(of_books)
        self._closed_books: set[str] = set()

    def take_or_explain(self, book: str, tokens: int) -> str | None:
        """Takes the tokens, or returns the reason why they do not fit."""
        own = self._left_of_books.get(book)
        if not self.closed and own is not None and (book in self._closed_books or tokens > own):
            self._closed_books.add(book)
            return f"no room in the {self._of_books[book]} tokens of its book"
        if self.closed or tokens > self._left:
            self.closed = True
            return f"no room in {self._tokens} tokens"
        self._left -= tokens
        if own is not None:
            self._left_of_books[book] = own - tokens
        return None


def _explain_missed_chance(one: _PreparedEntry, seed: str) -> str | None:
    chance = one.entry.probability
    if chance == 1:
        return None
    roll = SeededRandom(json.dumps([seed, one.book, one.entry.id])).below(_FINENESS)
    return None if roll < chance * _FINENESS else f"its chance of {chance:g} did not come up"


def _can_recurse(one: _PreparedEntry) -> bool:
    return one.recursive and not one.entry.exclude_recursion


def _rank_by_priority(called: tuple[_PreparedEntry, str]) -> tuple[int, int, str, int]:
    one, _ = called
    priority = one.entry.order if one.entry.priority is None else one.entry.priority
    return -priority, -one.entry.order, one.book, one.place


def _order_in_prompt(one: _PreparedEntry) -> tuple[bool, int, str, int]:
    return one.entry.position == "after_character", one.entry.order, one.book, one.place


# Validation of lorebooks before storage


def refuse_unusable(book: Lorebook) -> None:
    """InvalidRequest naming the field: a pattern that RE2 cannot use, too many patterns, an id twice."""
    seen: set[str] = set()
    for index, entry in enumerate(book.entries):
        if entry.id in seen:
            raise InvalidRequest(f"the id {entry.id!r} occurs more than once", field=f"entries[{index}].id")
        seen.add(entry.id)
    for before, (field, pattern) in enumerate(_iter_patterns(book)):
        if before == MOST_PATTERNS:
            raise InvalidRequest(f"a lorebook has at most {MOST_PATTERNS} keys that are patterns", field=field)
        try:
            compile_key(pattern)
        except ValueError as error:
            raise InvalidRequest(str(error), field=field) from None


def _iter_patterns(book: Lorebook) -> Iterator[tuple[str, str]]:
    """Patterns with their fields."""
    for index, entry in enumerate(book.entries):
        if entry.regex:
            for name, keys in (("keys", entry.keys), ("secondary_keys", entry.secondary_keys)):
                for number, key in enumerate(keys):
                    yield f"entries[{index}].{name}[{number}]", key


# Word matching that ignores case and punctuation

_UNSEGMENTED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts written without spaces, as a class of characters. Each character is a word."""
_LETTER = rf"[^\W_{_UNSEGMENTED}]"
_WORD = re.compile(rf"[{_UNSEGMENTED}]|{_LETTER}+(?:['’]{_LETTER}+)*")
_ONE = re.compile(f"[{_UNSEGMENTED}]")
_SPOKEN_WORD = re.compile(rf"[{_UNSEGMENTED}]|[^\W{_UNSEGMENTED}]+")


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


def spell_spoken(text: str) -> str:
    """The same words with one space around each, so that `in` finds whole phrases."""
    return f" {' '.join(split_spoken_words(text))} "


def normalise_spelling(text: str) -> str:
    """NFKC and case-folded words, each with a single space around it."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return f" {' '.join(split_words(folded))} "


def mentions(spelled_text: str, term: str) -> bool:
    """Whether the term occurs as whole words; a term without words never does."""
    words = normalise_spelling(term)
    return bool(words.strip()) and words in spelled_text
