"""Finds candidate events of a search: visible ones, and hidden ones that are near."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from app.store.posting_index import PostingHits, PostingIndex, PostingQuery, PostingSeek
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


@dataclass(frozen=True)
class SearchCandidates:
    matching: TermMatches
    windows: SearchWindows
    around: Sequence[int]
    """Private or later events that are near by time or importance."""


@dataclass(frozen=True)
class _TermCounts:
    """Lower bounds of how many events have each term, are of each importance level, and are there at all."""

    visible: Mapping[str, int]
    hidden: Mapping[str, int]
    by_importance: Sequence[int]
    events: int


def find_candidates(index: PostingIndex, scene: SearchContext, most: int) -> SearchCandidates:
    """`most` bounds the windows only."""
    counts = _count_terms(index, scene)
    rarest, rarest_hidden = _select_rarest_terms(counts.visible), _select_rarest_terms(counts.hidden)
    later = [term for term, there in counts.visible.items() if there < COMMON_TERM_COUNT or term in rarest]
    sought = {
        "visible": _seek_terms(scene, rarest, scene.scopes, COMMON_TERM_COUNT),
        "hidden": _seek_terms(scene, rarest_hidden, _HIDDEN_SCOPES, MAX_NEAR_PER_TERM),
        "later": _seek_later_terms(scene, later),
        "windows": _seek_windows(scene, counts.by_importance, most),
        "around": _seek_hidden_nearby(scene),
    }
    found = iter(index.find([seek for seeks in sought.values() for seek in seeks]))
    hits = {kind: list(islice(found, len(seeks))) for kind, seeks in sought.items()}
    matching = _match_terms(
        counts,
        {term: _distinct(one) for term, one in zip(rarest, hits["visible"], strict=True)},
        {term: _distinct(one) for term, one in zip(rarest_hidden, hits["hidden"], strict=True)},
        {term: _distinct(one) for term, one in zip(later, hits["later"], strict=True)},
    )
    secret, *grave, coming = hits["around"]
    around = [one for each in ([secret], grave, [coming]) for one in _extract_sequences(*each)[:MAX_NEAR]]
    return SearchCandidates(matching, _list_windows(hits["windows"], most), around)


def find_windows(index: PostingIndex, scene: SearchContext, by_importance: Sequence[int], most: int) -> SearchWindows:
    """The `most` newest and the `most` important events that the asker may know."""
    return _list_windows(index.find(_seek_windows(scene, by_importance, most)), most)


def _count_terms(index: PostingIndex, scene: SearchContext) -> _TermCounts:
    asked = scene.terms[:MAX_SEARCH_TERMS]
    told = _seek_terms(scene, asked, scene.scopes, COMMON_TERM_COUNT)
    secret = _seek_terms(scene, asked, _HIDDEN_SCOPES, COMMON_TERM_COUNT)
    levels = [
        PostingSeek(scene.build_importance_queries(scene.scopes, importance), MAX_COUNT_PER_IMPORTANCE)
        for importance in _IMPORTANCE_LEVELS
    ]
    everything = PostingSeek(scene.build_scope_queries(scene.scopes), MAX_EVENT_COUNT)
    *counted, there = index.count([*told, *secret, *levels, everything])
    totals = [min(COMMON_TERM_COUNT, sum(each)) for each in counted[: 2 * len(asked)]]
    return _TermCounts(
        visible=dict(zip(asked, totals, strict=False)),
        hidden=dict(zip(asked, totals[len(asked) :], strict=True)),
        by_importance=[max(each, default=0) for each in counted[2 * len(asked) :]],
        events=sum(there),
    )


def _match_terms(
    counts: _TermCounts,
    visible: Mapping[str, set[int]],
    hidden: Mapping[str, set[int]],
    later: Mapping[str, set[int]],
) -> TermMatches:
    weights = {
        term: _compute_rarity(there + counts.hidden[term], counts.events) for term, there in counts.visible.items()
    }
    frequencies = {**counts.visible, **{term: len(sequences) for term, sequences in visible.items()}}
    uncommon = [one for one in later.items() if frequencies[one[0]] < COMMON_TERM_COUNT]
    return TermMatches(
        frequencies=frequencies,
        events=counts.events,
        scores=_sum_scores(visible.items(), weights),
        hidden=_sum_scores([*hidden.items(), *uncommon], weights),
        by_importance=counts.by_importance,
    )


def _seek_terms(scene: SearchContext, terms: Sequence[str], scopes: Sequence[str], most: int) -> list[PostingSeek]:
    return [PostingSeek(scene.build_term_queries(term, scopes), most) for term in terms]


def _seek_later_terms(scene: SearchContext, terms: Sequence[str]) -> list[PostingSeek]:
    return [
        PostingSeek(scene.build_term_queries(term, _ALL_SCOPES, later=True), MAX_NEAR, scene.as_of) for term in terms
    ]


def _seek_windows(scene: SearchContext, by_importance: Sequence[int], most: int) -> list[PostingSeek]:
    seeks, enough = [PostingSeek(scene.build_scope_queries(scene.scopes), most)], 0
    for importance, there in zip(_IMPORTANCE_LEVELS, by_importance, strict=True):
        if enough < most:
            seeks.append(PostingSeek(scene.build_importance_queries(scene.scopes, importance), most))
        enough += there
    return seeks


def _seek_hidden_nearby(scene: SearchContext) -> list[PostingSeek]:
    return [
        PostingSeek(scene.build_scope_queries(_HIDDEN_SCOPES), MAX_NEAR),
        *(
            PostingSeek(scene.build_importance_queries(_HIDDEN_SCOPES, importance), MAX_NEAR)
            for importance in HIGH_IMPORTANCE
        ),
        PostingSeek(scene.build_scope_queries(_ALL_SCOPES, later=True), MAX_NEAR, scene.as_of),
    ]


def _list_windows(hits: Sequence[PostingHits], most: int) -> SearchWindows:
    latest, *levels = hits
    return SearchWindows(newest=_extract_sequences(latest)[:most], important=_extract_sequences(*levels)[:most])


def _distinct(hits: PostingHits) -> set[int]:
    return {sequence for _, sequence in hits}


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


def _sum_scores(found: Iterable[tuple[str, Iterable[int]]], weights: Mapping[str, float]) -> dict[int, float]:
    scores: defaultdict[int, float] = defaultdict(float)
    for term, sequences in found:
        for sequence in sequences:
            scores[sequence] += weights[term]
    return dict(scores)
