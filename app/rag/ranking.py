"""Ranks events by recency, importance and relevance: Park et al. 2023, "Generative Agents" (arXiv 2304.03442), 4.1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.domain.worlds import Event

HOURLY_DECAY: Final = 0.995
"""Decay of recency per hour of game time. The paper counts from a memory's last retrieval; here it is from the event's
time, so that retrievals do not affect each other."""

BM25_SATURATION: Final = 1.2
"""k1 of BM25, term frequency saturation (Robertson and Zaragoza 2009)."""
BM25_LENGTH: Final = 0.75
"""b of BM25, length normalisation."""


@dataclass(frozen=True)
class EventCandidate:
    event: Event
    length: int
    """Length of the searched text, in any unit."""
    counts: Mapping[str, int]
    """Occurrences of each query term; other terms are ignored."""


@dataclass(frozen=True)
class RankingScores:
    """Each scaled to [0, 1] over all candidates; 0 for all if they are equal."""

    recency: float
    importance: float
    relevance: float

    @property
    def score(self) -> float:
        """Rounded, so that the ranking does not depend on the last digits of a platform's mathematics library."""
        return round(self.recency + self.importance + self.relevance, 9)


def rank_events(
    candidates: Sequence[EventCandidate], as_of: datetime, weights: Mapping[str, float]
) -> list[tuple[EventCandidate, RankingScores]]:
    """Best first; ties by newer time, then by id. `weights` holds the query terms with their inverse document
    frequency."""
    recency = _scale_to_unit([_compute_recency(candidate.event, as_of) for candidate in candidates])
    importance = _scale_to_unit([float(candidate.event.importance) for candidate in candidates])
    relevance = _scale_to_unit(_compute_relevance(candidates, weights))
    parts = [RankingScores(*three) for three in zip(recency, importance, relevance, strict=True)]
    return sorted(zip(candidates, parts, strict=True), key=_build_sort_key)


def compute_idf(frequency: int, events: int) -> float:
    """BM25's inverse document frequency of a term that occurs in `frequency` of `events` events, in the form that is
    above 0 for every term."""
    return math.log(1 + (events - frequency + 0.5) / (frequency + 0.5))


def _compute_recency(event: Event, as_of: datetime) -> float:
    return float(HOURLY_DECAY ** ((as_of - event.time).total_seconds() / 3600))


def _compute_relevance(candidates: Sequence[EventCandidate], weights: Mapping[str, float]) -> list[float]:
    """BM25 with the candidates' mean length."""
    mean = sum(candidate.length for candidate in candidates) / max(1, len(candidates))
    return [_compute_bm25(candidate, weights, mean) for candidate in candidates]


def _compute_bm25(candidate: EventCandidate, weights: Mapping[str, float], mean: float) -> float:
    counts = [(weights[term], count) for term, count in sorted(candidate.counts.items()) if term in weights]
    if not counts:
        return 0.0
    against = BM25_SATURATION * (1 - BM25_LENGTH + BM25_LENGTH * candidate.length / mean)
    return sum(weight * count * (BM25_SATURATION + 1) / (count + against) for weight, count in counts)


def _scale_to_unit(values: Sequence[float]) -> list[float]:
    least, most = min(values, default=0.0), max(values, default=0.0)
    return [(value - least) / (most - least) if most > least else 0.0 for value in values]


def _build_sort_key(one: tuple[EventCandidate, RankingScores]) -> tuple[float, float, str]:
    candidate, parts = one
    return -parts.score, -candidate.event.time.timestamp(), candidate.event.id
