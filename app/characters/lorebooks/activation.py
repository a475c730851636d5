"""Activation of lorebook entries by a conversation, within token budgets."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.characters.lorebooks.key_search import KeyMatches
from app.characters.lorebooks.prepared_books import PreparedBooks, PreparedEntry, prepare_books
from app.domain.lorebooks import Lorebook, LoreEntry
from app.toolkit.seeded import SeededRandom

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
    heard, room = KeyMatches(books.searches), _TokenBudget(budget_tokens, books.budgets)
    heard.scan_messages(conversation)
    told: list[tuple[PreparedEntry, RecalledEntry]] = []
    left_out: list[RecalledEntry] = []
    waiting = list(books.entries)
    for _ in range(1 + MOST_ROUNDS):
        asked = [(one, one.find_trigger(heard)) for one in waiting]
        new: list[PreparedEntry] = []
        for one, because in sorted(((one, because) for one, because in asked if because), key=_rank_by_priority):
            tokens = count(one.entry.content)
            reason = _explain_missed_chance(one, seed) or room.take_or_explain(one.book, tokens)
            words = because if reason is None else f"{because}; left out: {reason}"
            made = RecalledEntry(one.book, one.entry, words, tokens, told=reason is None)
            if reason is None:
                new.append(one)
                told.append((one, made))
            else:
                left_out.append(made)
        waiting = [one for one, because in asked if because is None and _can_recurse(one)]
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


def _explain_missed_chance(one: PreparedEntry, seed: str) -> str | None:
    chance = one.entry.probability
    if chance == 1:
        return None
    roll = SeededRandom(json.dumps([seed, one.book, one.entry.id])).below(_FINENESS)
    return None if roll < chance * _FINENESS else f"its chance of {chance:g} did not come up"


def _can_recurse(one: PreparedEntry) -> bool:
    return one.recursive and not one.entry.exclude_recursion


def _rank_by_priority(called: tuple[PreparedEntry, str]) -> tuple[int, int, str, int]:
    one, _ = called
    priority = one.entry.order if one.entry.priority is None else one.entry.priority
    return -priority, -one.entry.order, one.book, one.place


def _order_in_prompt(one: PreparedEntry) -> tuple[bool, int, str, int]:
    return one.entry.position == "after_character", one.entry.order, one.book, one.place
