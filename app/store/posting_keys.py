"""Keys of the search index of events. Each key lists events in order of time.

A key combines a visibility scope with a term or importance, so that searches read only events that the asker may know.
Both are hashes; how they become one number is the index's own matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from app.domain.search_terms import extract_terms
from app.domain.worlds import Event

PUBLIC_SCOPE: Final = "*"
PRIVATE_SCOPE: Final = "-"
"""Scope of all non-public events, used to find hidden ones."""

MAX_NAMES: Final = 16
"""An event visible to more names is indexed by terms only under PRIVATE_SCOPE, which limits its number of rows.
Searches look there too."""


class PostingKey(NamedTuple):
    """`feature` is the hash of a term or an importance, 0 for the scope itself."""

    scope: int
    feature: int


@dataclass(frozen=True)
class PostedEvent:
    """An event with its index keys."""

    sequence: int
    time: int
    keys: Sequence[tuple[int, int]]
    """As PostingKey."""


def build_scope(name: str) -> str:
    return f"={name}"


def compute_scope_key(world: int, scope: str) -> PostingKey:
    return PostingKey(_hash_scope(world, scope), 0)


def compute_importance_key(world: int, scope: str, importance: int) -> PostingKey:
    return PostingKey(_hash_scope(world, scope), _hash_importance(importance))


def compute_term_key(world: int, scope: str, term: str) -> PostingKey:
    return PostingKey(_hash_scope(world, scope), _hash_term(term))


def index_event(sequence: int, time: int, world: int, event: Event) -> PostedEvent:
    names = () if event.visibility == "public" else sorted({build_scope(name) for name in event.visibility})
    first = PUBLIC_SCOPE if event.visibility == "public" else PRIVATE_SCOPE
    scopes = [_hash_scope(world, scope) for scope in (first, *names)]
    features = [_hash_term(term) for term in dict.fromkeys(extract_terms(event.searchable_text))]
    always = (0, _hash_importance(event.importance))
    with_terms = scopes if len(names) <= MAX_NAMES else scopes[:1]
    keys = [(scope, feature) for scope in with_terms for feature in features]
    return PostedEvent(sequence, time, [*keys, *((scope, feature) for scope in scopes for feature in always)])


@lru_cache(maxsize=65536)
def _hash_term(term: str) -> int:
    return _hash_text(f"term {term}")


@lru_cache(maxsize=65536)
def _hash_scope(world: int, scope: str) -> int:
    return _hash_text(f"scope {world} {scope}")


@lru_cache(maxsize=16)
def _hash_importance(importance: int) -> int:
    return _hash_text(f"importance {importance}")


def _hash_text(text: str) -> int:
    """A 64-bit hash. Collisions are harmless: every match is checked again."""
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
