"""Keys of the search index of events. Each key lists events in order of time.

A key combines a visibility scope with a term or importance, so that searches read only events that the asker may know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from app.domain.search_terms import terms
from app.domain.worlds import Event

EVERYBODY: Final = "*"
NOT_EVERYBODY: Final = "-"
"""Scope of all non-public events, used to find hidden ones."""

MOST_NAMES: Final = 16
"""An event visible to more names is indexed by terms only under NOT_EVERYBODY, which limits its number of rows.
Searches look there too."""


@dataclass(frozen=True)
class Posted:
    """An event with its index keys."""

    sequence: int
    time: int
    keys: tuple[int, ...]


def scope_of(name: str) -> str:
    return f"={name}"


def key_of_all(world: int, scope: str) -> int:
    return _hash("scope", f"{world} {scope}")


def key_of_importance(world: int, scope: str, importance: int) -> int:
    return key_of_all(world, scope) ^ _hash("importance", str(importance))


def key_of_term(world: int, scope: str, term: str) -> int:
    return key_of_all(world, scope) ^ _hash("term", term)


def posted(sequence: int, time: int, world: int, event: Event) -> Posted:
    names = [] if event.visibility == "public" else sorted({scope_of(name) for name in event.visibility})
    first = EVERYBODY if event.visibility == "public" else NOT_EVERYBODY
    found = dict.fromkeys(terms(event.searched))
    keys = {key_of_term(world, scope, term) for scope in (first, *_with_terms(names)) for term in found}
    for scope in (first, *names):
        keys |= {key_of_all(world, scope), key_of_importance(world, scope, event.importance)}
    return Posted(sequence, time, tuple(keys))


def _with_terms(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) <= MOST_NAMES else ()


@lru_cache(maxsize=65536)
def _hash(kind: str, value: str) -> int:
    """A 64-bit hash. Collisions are harmless: every match is checked again."""
    digest = blake2b(f"{kind} {value}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
