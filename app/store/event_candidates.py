"""Finds candidate events of a search: visible ones, and hidden ones that are near."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sqlalchemy import Connection

from app.store.lineages import Level
from app.store.postings import EVERYBODY, NOT_EVERYBODY, key_of_all, key_of_importance, key_of_term, scope_of
from app.store.seeks import Hits, Seek, count, following, newest

MOST_TERMS: Final = 64
"""Maximum number of terms of a search."""
RAREST: Final = 16
"""Maximum number of terms, rarest first, that find events."""
COMMON: Final = 256
"""From this many events on a term counts as common, and counting stops."""
MOST_HITS: Final = 1000
"""Maximum number of hits of all terms together; the rarest terms come first."""
LEAST_BAD: Final = 4
"""How many terms are used if all of them are common."""
ENOUGH: Final = 64
"""Counting of events per importance level stops here."""
MANY: Final = 1024
"""Counting of all events stops here."""

NEAR: Final = 16
"""Maximum number of hidden events per way of finding them."""
NEAR_BY_TERM: Final = 32
GRAVE: Final = (10, 9, 8)
"""Importance levels at which a hidden event counts as near."""

_IMPORTANCE: Final = range(10, -1, -1)
_HIDDEN: Final = (NOT_EVERYBODY,)
_ALL: Final = (EVERYBODY, NOT_EVERYBODY)


@dataclass(frozen=True)
class Scene:
    """The asker, the terms, and the time of a search in microseconds since 1970."""

    levels: Sequence[Level]
    as_of: int
    names: frozenset[str]
    terms: Sequence[str]

    @property
    def scopes(self) -> tuple[str, ...]:
        return (EVERYBODY, *sorted(scope_of(name) for name in self.names))

    def all_of(self, scopes: Iterable[str], *, later: bool = False) -> list[Seek]:
        return [Seek(key_of_all(world, scope), until) for world, until in self._worlds(later) for scope in scopes]

    def important(self, scopes: Iterable[str], importance: int) -> list[Seek]:
        return [
            Seek(key_of_importance(world, scope, importance), until)
            for world, until in self._worlds(later=False)
            for scope in scopes
        ]

    def about(self, term: str, scopes: Iterable[str], *, later: bool = False) -> list[Seek]:
        return [
            Seek(key_of_term(world, scope, term), until) for world, until in self._worlds(later) for scope in scopes
        ]

    def _worlds(self, later: bool) -> list[tuple[int, int]]:
        return [(level.number, level.until if later else min(level.until, self.as_of)) for level in self.levels]


@dataclass(frozen=True)
class Matches:
    """Matches of the terms. `scores` are of visible events, `hidden` of events that are private or later."""

    frequencies: Mapping[str, int]
    events: int
    scores: Mapping[int, float]
    hidden: Mapping[int, float]
    by_importance: Sequence[int]
    """Lower bounds of the number of events per importance level, 10 first."""


@dataclass(frozen=True)
class Windows:
    """Sequences of the newest and the most important events, best first."""

    newest: Sequence[int]
    important: Sequence[int]


def matches(connection: Connection, scene: Scene) -> Matches:
    """Counts and finds events by terms. Independent of the size of the windows."""
    asked = scene.terms[:MOST_TERMS]
    told = [scene.about(term, scene.scopes) for term in asked]
    secret = [scene.about(term, _HIDDEN) for term in asked]
    levels = [scene.important(scene.scopes, importance) for importance in _IMPORTANCE]
    everything = scene.all_of(scene.scopes)
    mosts = [COMMON] * (2 * len(asked)) + [ENOUGH] * len(levels) + [MANY]
    *counted, there = count(connection, [*told, *secret, *levels, everything], mosts)
    frequencies = {term: min(COMMON, sum(each)) for term, each in zip(asked, counted, strict=False)}
    hidden = {term: min(COMMON, sum(each)) for term, each in zip(asked, counted[len(asked) :], strict=False)}
    events = sum(there)
    weights = {term: _rarity(frequencies[term] + hidden[term], events) for term in asked}
    found = _found(connection, scene, _rarest(frequencies), COMMON, scene.scopes)
    frequencies |= {term: len(sequences) for term, sequences in found.items()}
    secrets = _found(connection, scene, _rarest(hidden), NEAR_BY_TERM, _HIDDEN)
    later = _later(connection, scene, [term for term in asked if frequencies[term] < COMMON])
    return Matches(
        frequencies=frequencies,
        events=events,
        scores=_scores(found.items(), weights),
        hidden=_scores([*secrets.items(), *later.items()], weights),
        by_importance=[max(each, default=0) for each in counted[2 * len(asked) :]],
    )


def windows(connection: Connection, scene: Scene, by_importance: Sequence[int], most: int) -> Windows:
    """The `most` newest and the `most` important events that the asker may know."""
    seeks, enough = [scene.all_of(scene.scopes)], 0
    for importance, there in zip(_IMPORTANCE, by_importance, strict=True):
        if enough < most:
            seeks.append(scene.important(scene.scopes, importance))
        enough += there
    latest, *levels = newest(connection, seeks, most)
    return Windows(newest=_sequences(latest)[:most], important=_sequences(*levels)[:most])


def near(connection: Connection, scene: Scene) -> list[int]:
    """Private or later events that are near by time or importance."""
    seeks = [scene.all_of(_HIDDEN), *(scene.important(_HIDDEN, importance) for importance in GRAVE)]
    secret, *grave = newest(connection, seeks, NEAR)
    coming = following(connection, [scene.all_of(_ALL, later=True)], scene.as_of, NEAR)
    return [sequence for hits in ([secret], grave, coming) for sequence in _sequences(*hits)[:NEAR]]


def _sequences(*hits: Hits) -> list[int]:
    """Distinct sequences, in order."""
    return list(dict.fromkeys(sequence for each in hits for _, sequence in each))


def _rarest(frequencies: Mapping[str, int]) -> list[str]:
    known = sorted((term for term, there in frequencies.items() if there), key=lambda term: frequencies[term])
    found: list[str] = []
    hits = 0
    for term in islice(known, RAREST):
        hits += frequencies[term]
        if found and (frequencies[term] >= COMMON or hits > MOST_HITS):
            break
        found.append(term)
    return found if not found or frequencies[found[0]] < COMMON else known[:LEAST_BAD]


def _rarity(frequency: int, events: int) -> float:
    return math.log(1 + max(0.0, events - frequency + 0.5) / (frequency + 0.5))


def _found(
    connection: Connection, scene: Scene, terms: Sequence[str], most: int, scopes: Sequence[str]
) -> dict[str, set[int]]:
    found = newest(connection, [scene.about(term, scopes) for term in terms], most)
    return {term: {sequence for _, sequence in hits} for term, hits in zip(terms, found, strict=True)}


def _later(connection: Connection, scene: Scene, terms: Sequence[str]) -> dict[str, set[int]]:
    seeks = [scene.about(term, _ALL, later=True) for term in terms]
    found = following(connection, seeks, scene.as_of, NEAR)
    return {term: {sequence for _, sequence in hits} for term, hits in zip(terms, found, strict=True)}


def _scores(found: Iterable[tuple[str, Iterable[int]]], weights: Mapping[str, float]) -> dict[int, float]:
    scores: defaultdict[int, float] = defaultdict(float)
    for term, sequences in found:
        for sequence in sequences:
            scores[sequence] += weights[term]
    return dict(scores)
