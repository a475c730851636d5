"""The index that events are found by: rows in the order of time, under keys.

A key stands for who may know of an event and for what it is about, so that what may be told is found without passing
over what may not.
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
"""Under which everything stands that is not public, to find what is hidden from somebody."""

MOST_NAMES: Final = 16
"""An event that more names may know of stands under its terms for NOT_EVERYBODY alone, so that none takes more than
some thousand rows; whoever searches looks there too."""


@dataclass(frozen=True)
class Posted:
    """An event in the index."""

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
    """64 bits. Two that meet cost a look at an event in vain: whatever is found is looked at again."""
    digest = blake2b(f"{kind} {value}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
