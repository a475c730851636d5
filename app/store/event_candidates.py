"""Finds candidate events of a search: visible ones, and hidden ones that are near."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from app.store.posting_index import PostingHits, PostingIndex, PostingQuery
from app.store.posting_keys import (
    PRIVATE_SCOPE,
    PUBLIC_SCOPE,
    build_scope,
    compute_importance_key,
    compute_scope_key,
    compute_term_key,
)
from app.store.world_branches import LineageLevel

MAX_SEARCH_TERMS: Final = 64
"""Maximum number of terms of a search."""
MAX_RARE_TERMS: Final = 16
"""Maximum number of terms, rarest first, that find events."""
COMMON_TERM_COUNT: Final = 256
"""From this many events on a term counts as common, and counting stops."""
MAX_HITS: Final = 1000
"""Maximum number of hits of all terms together; the rarest terms come first."""
FALLBACK_TERMS: Final = 4
"""How many terms are used if all of them are common."""
MAX_COUNT_PER_IMPORTANCE: Final = 64
"""Counting of events per importance level stops here."""
MAX_EVENT_COUNT: Final = 1024
"""Counting of all events stops here."""

MAX_NEAR: Final = 16
"""Maximum number of hidden events per way of finding them."""
MAX_NEAR_PER_TERM: Final = 32
HIGH_IMPORTANCE: Final = (10, 9, 8)
"""Importance levels at which a hidden event counts as near."""

_IMPORTANCE_LEVELS: Final = range(10, -1, -1)
_HIDDEN_SCOPES: Final = (PRIVATE_SCOPE,)
_ALL_SCOPES: Final = (PUBLIC_SCOPE, PRIVATE_SCOPE)


@dataclass(frozen=True)
class SearchContext:
    """The asker, the terms, and the time of a search in microseconds since 1970."""

    levels: Sequence[LineageLevel]
    as_of: int
    names: frozenset[str]
    terms: Sequence[str]

    @property
    def scopes(self) -> tuple[str, ...]:
        return (PUBLIC_SCOPE, *sorted(build_scope(name) for name in self.names))

    def build_scope_queries(self, scopes: Iterable[str], *, later: bool = False) -> list[PostingQuery]:
        return [
            PostingQuery(world, compute_scope_key(world, scope), until)
            for world, until in self._list_worlds(later)
            for scope in scopes
        ]

    def build_importance_queries(self, scopes: Iterable[str], importance: int) -> list[PostingQuery]:
        return [
            PostingQuery(world, compute_importance_key(world, scope, importance), until)
            for world, until in self._list_worlds(later=False)
            for scope in scopes
        ]

    def build_term_queries(self, term: str, scopes: Iterable[str], *, later: bool = False) -> list[PostingQuery]:
        return [
            PostingQuery(world, compute_term_key(world, scope, term), until)
            for world, until in self._list_worlds(later)
            for scope in scopes
        ]

    def _list_worlds(self, later: bool) -> list[tuple[int, int]]:
        return [(level.number, level.until if later else min(level.until, self.as_of)) for level in self.levels]


@dataclass(frozen=True)
class TermMatches:
    """Matches of the terms. `scores` are of visible events, `hidden` of events that are private or later."""

    frequencies: Mapping[str, int]
    events: int
    scores: Mapping[int, float]
    hidden: Mapping[int, float]
    by_importance: Sequence[int]
    """Lower bounds of the number of events per importance level, 10 first."""


@dataclass(frozen=True)
class SearchWindows:
    """Sequences of the newest and the most important events, best first."""

    newest: Sequence[int]
    important: Sequence[int]


def find_matches(index: PostingIndex, scene: SearchContext) -> TermMatches:
    """Counts and finds events by terms. Independent of the size of the windows."""
    asked = scene.terms[:MAX_SEARCH_TERMS]
    told = [scene.build_term_queries(term, scene.scopes) for term in asked]
    secret = [scene.build_term_queries(term, _HIDDEN_SCOPES) for term in asked]
    levels = [scene.build_importance_queries(scene.scopes, importance) for importance in _IMPORTANCE_LEVELS]
    everything = scene.build_scope_queries(scene.scopes)
    mosts = [COMMON_TERM_COUNT] * (2 * len(asked)) + [MAX_COUNT_PER_IMPORTANCE] * len(levels) + [MAX_EVENT_COUNT]
    *counted, there = index.count([*told, *secret, *levels, everything], mosts)
    frequencies = {term: min(COMMON_TERM_COUNT, sum(each)) for term, each in zip(asked, counted, strict=False)}
    hidden = {term: min(COMMON_TERM_COUNT, sum(each)) for term, each in zip(asked, counted[len(asked) :], strict=False)}
    events = sum(there)
    weights = {term: _compute_rarity(frequencies[term] + hidden[term], events) for term in asked}
    found = _find_by_terms(index, scene, _select_rarest_terms(frequencies), COMMON_TERM_COUNT, scene.scopes)
    frequencies |= {term: len(sequences) for term, sequences in found.items()}
    secrets = _find_by_terms(index, scene, _select_rarest_terms(hidden), MAX_NEAR_PER_TERM, _HIDDEN_SCOPES)
    later = _find_later_events(index, scene, [term for term in asked if frequencies[term] < COMMON_TERM_COUNT])
    return TermMatches(
        frequencies=frequencies,
        events=events,
        scores=_sum_scores(found.items(), weights),
        hidden=_sum_scores([*secrets.items(), *later.items()], weights),
        by_importance=[max(each, default=0) for each in counted[2 * len(asked) :]],
    )


def find_windows(index: PostingIndex, scene: SearchContext, by_importance: Sequence[int], most: int) -> SearchWindows:
    """The `most` newest and the `most` important events that the asker may know."""
    seeks, enough = [scene.build_scope_queries(scene.scopes)], 0
    for importance, there in zip(_IMPORTANCE_LEVELS, by_importance, strict=True):
        if enough < most:
            seeks.append(scene.build_importance_queries(scene.scopes, importance))
        enough += there
    latest, *levels = index.find_newest(seeks, most)
    return SearchWindows(newest=_extract_sequences(latest)[:most], important=_extract_sequences(*levels)[:most])


def find_hidden_events_nearby(index: PostingIndex, scene: SearchContext) -> list[int]:
    """Private or later events that are near by time or importance."""
    seeks = [
        scene.build_scope_queries(_HIDDEN_SCOPES),
        *(scene.build_importance_queries(_HIDDEN_SCOPES, importance) for importance in HIGH_IMPORTANCE),
    ]
    secret, *grave = index.find_newest(seeks, MAX_NEAR)
    coming = index.find_following([scene.build_scope_queries(_ALL_SCOPES, later=True)], scene.as_of, MAX_NEAR)
    return [sequence for hits in ([secret], grave, coming) for sequence in _extract_sequences(*hits)[:MAX_NEAR]]


def _extract_sequences(*hits: PostingHits) -> list[int]:
    """Distinct sequences, in order."""
    return list(dict.fromkeys(sequence for each in hits for _, sequence in each))


def _select_rarest_terms(frequencies: Mapping[str, int]) -> list[str]:
    known = sorted((term for term, there in frequencies.items() if there), key=lambda term: frequencies[term])
    found: list[str] = []
    hits = 0
    for term in islice(known, MAX_RARE_TERMS):
        hits += frequencies[term]
        if found and (frequencies[term] >= COMMON_TERM_COUNT or hits > MAX_HITS):
            break
        found.append(term)
    return found if not found or frequencies[found[0]] < COMMON_TERM_COUNT else known[:FALLBACK_TERMS]


def _compute_rarity(frequency: int, events: int) -> float:
    return math.log(1 + max(0.0, events - frequency + 0.5) / (frequency + 0.5))


def _find_by_terms(
    index: PostingIndex, scene: SearchContext, terms: Sequence[str], most: int, scopes: Sequence[str]
) -> dict[str, set[int]]:
    found = index.find_newest([scene.build_term_queries(term, scopes) for term in terms], most)
    return {term: {sequence for _, sequence in hits} for term, hits in zip(terms, found, strict=True)}


def _find_later_events(index: PostingIndex, scene: SearchContext, terms: Sequence[str]) -> dict[str, set[int]]:
    seeks = [scene.build_term_queries(term, _ALL_SCOPES, later=True) for term in terms]
    found = index.find_following(seeks, scene.as_of, MAX_NEAR)
    return {term: {sequence for _, sequence in hits} for term, hits in zip(terms, found, strict=True)}


def _sum_scores(found: Iterable[tuple[str, Iterable[int]]], weights: Mapping[str, float]) -> dict[int, float]:
    scores: defaultdict[int, float] = defaultdict(float)
    for term, sequences in found:
        for sequence in sequences:
            scores[sequence] += weights[term]
    return dict(scores)
