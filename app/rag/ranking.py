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

SATURATION: Final = 1.2
"""k1 of BM25, term frequency saturation (Robertson and Zaragoza 2009)."""
LENGTH: Final = 0.75
"""b of BM25, length normalisation."""


@dataclass(frozen=True)
class Candidate:
    event: Event
    length: int
    """Length of the searched text, in any unit."""
    counts: Mapping[str, int]
    """Occurrences of each query term; other terms are ignored."""


@dataclass(frozen=True)
class Parts:
    """Each scaled to [0, 1] over all candidates; 0 for all if they are equal."""

    recency: float
    importance: float
    relevance: float

    @property
    def score(self) -> float:
        """Rounded, so that the ranking does not depend on the last digits of a platform's mathematics library."""
        return round(self.recency + self.importance + self.relevance, 9)


def ranked(
    candidates: Sequence[Candidate], as_of: datetime, weights: Mapping[str, float]
) -> list[tuple[Candidate, Parts]]:
    """Best first; ties by newer time, then by id. `weights` holds the query terms with their inverse document
    frequency."""
    recency = _scaled([_recency(candidate.event, as_of) for candidate in candidates])
    importance = _scaled([float(candidate.event.importance) for candidate in candidates])
    relevance = _scaled(_relevance(candidates, weights))
    parts = [Parts(*three) for three in zip(recency, importance, relevance, strict=True)]
    return sorted(zip(candidates, parts, strict=True), key=_place)


def rarity(frequency: int, events: int) -> float:
    """BM25's inverse document frequency of a term that occurs in `frequency` of `events` events, in the form that is
    above 0 for every term."""
    return math.log(1 + (events - frequency + 0.5) / (frequency + 0.5))


def _recency(event: Event, as_of: datetime) -> float:
    return float(HOURLY_DECAY ** ((as_of - event.time).total_seconds() / 3600))


def _relevance(candidates: Sequence[Candidate], weights: Mapping[str, float]) -> list[float]:
    """BM25 with the candidates' mean length."""
    mean = sum(candidate.length for candidate in candidates) / max(1, len(candidates))
    return [_matching(candidate, weights, mean) for candidate in candidates]


def _matching(candidate: Candidate, weights: Mapping[str, float], mean: float) -> float:
    counts = [(weights[term], count) for term, count in sorted(candidate.counts.items()) if term in weights]
    if not counts:
        return 0.0
    against = SATURATION * (1 - LENGTH + LENGTH * candidate.length / mean)
    return sum(weight * count * (SATURATION + 1) / (count + against) for weight, count in counts)


def _scaled(values: Sequence[float]) -> list[float]:
    least, most = min(values, default=0.0), max(values, default=0.0)
    return [(value - least) / (most - least) if most > least else 0.0 for value in values]


def _place(one: tuple[Candidate, Parts]) -> tuple[float, float, str]:
    candidate, parts = one
    return -parts.score, -candidate.event.time.timestamp(), candidate.event.id
