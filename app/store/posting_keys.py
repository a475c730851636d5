"""Keys of the search index of events. Each key lists events in order of time.

A key combines a visibility scope with a term or importance, so that searches read only events that the asker may know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from app.domain.search_terms import extract_terms
from app.domain.worlds import Event

PUBLIC_SCOPE: Final = "*"
PRIVATE_SCOPE: Final = "-"
"""Scope of all non-public events, used to find hidden ones."""

MAX_NAMES: Final = 16
"""An event visible to more names is indexed by terms only under NOT_EVERYBODY, which limits its number of rows.
Searches look there too."""


@dataclass(frozen=True)
class PostedEvent:
    """An event with its index keys."""

    sequence: int
    time: int
    keys: tuple[int, ...]


def build_scope(name: str) -> str:
    return f"={name}"


def compute_scope_key(world: int, scope: str) -> int:
    return _hash_key("scope", f"{world} {scope}")


def compute_importance_key(world: int, scope: str, importance: int) -> int:
    return compute_scope_key(world, scope) ^ _hash_key("importance", str(importance))


def compute_term_key(world: int, scope: str, term: str) -> int:
    return compute_scope_key(world, scope) ^ _hash_key("term", term)


def index_event(sequence: int, time: int, world: int, event: Event) -> PostedEvent:
    names = [] if event.visibility == "public" else sorted({build_scope(name) for name in event.visibility})
    first = PUBLIC_SCOPE if event.visibility == "public" else PRIVATE_SCOPE
    found = dict.fromkeys(extract_terms(event.searchable_text))
    keys = {compute_term_key(world, scope, term) for scope in (first, *_limit_names(names)) for term in found}
    for scope in (first, *names):
        keys |= {compute_scope_key(world, scope), compute_importance_key(world, scope, event.importance)}
    return PostedEvent(sequence, time, tuple(keys))


def _limit_names(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) <= MAX_NAMES else ()


@lru_cache(maxsize=65536)
def _hash_key(kind: str, value: str) -> int:
    """A 64-bit hash. Collisions are harmless: every match is checked again."""
    digest = blake2b(f"{kind} {value}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
