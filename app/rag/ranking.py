"""Which events matter most at a moment: Park et al. 2023, "Generative Agents" (arXiv 2304.03442), section 4.1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.domain.worlds import Event

HOURLY_DECAY: Final = 0.995
"""What an hour of game time leaves of an event's recency. The paper counts from the last time that a memory was
retrieved; here it is from the time of the event, so that what one task retrieves changes nothing for the next."""

SATURATION: Final = 1.2
"""k1 of BM25: how soon a term's further occurrences count for little (Robertson and Zaragoza 2009)."""
LENGTH: Final = 0.75
"""b of BM25: how far long texts are marked down."""


@dataclass(frozen=True)
class Candidate:
    event: Event
    length: int
    """Of all that is searched of it, in whatever unit."""
    counts: Mapping[str, int]
    """How often each term occurs in it; others than those that were asked for do not matter."""


@dataclass(frozen=True)
class Parts:
    """Each scaled to [0, 1] over all candidates; 0 for all where they are equal."""

    recency: float
    importance: float
    relevance: float

    @property
    def score(self) -> float:
        """Rounded, so that machines whose libraries differ in a last digit rank alike."""
        return round(self.recency + self.importance + self.relevance, 9)


def ranked(
    candidates: Sequence[Candidate], as_of: datetime, weights: Mapping[str, float]
) -> list[tuple[Candidate, Parts]]:
    """Best first; of equal ones the newer, then by id. `weights`: of the terms that were asked for, as `rarity` has
    them."""
    recency = _scaled([_recency(candidate.event, as_of) for candidate in candidates])
    importance = _scaled([float(candidate.event.importance) for candidate in candidates])
    relevance = _scaled(_relevance(candidates, weights))
    parts = [Parts(*three) for three in zip(recency, importance, relevance, strict=True)]
    return sorted(zip(candidates, parts, strict=True), key=_place)


def rarity(frequency: int, events: int) -> float:
    """What a term weighs that occurs in `frequency` of `events` events: BM25's inverse document frequency, in the form
    that is above 0 for every term."""
    return math.log(1 + (events - frequency + 0.5) / (frequency + 0.5))


def _recency(event: Event, as_of: datetime) -> float:
    return float(HOURLY_DECAY ** ((as_of - event.time).total_seconds() / 3600))


def _relevance(candidates: Sequence[Candidate], weights: Mapping[str, float]) -> list[float]:
    """BM25. Lengths are compared with the mean of the candidates."""
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
