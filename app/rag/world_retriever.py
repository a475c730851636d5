"""The built-in retriever: a world's events and lorebooks, filtered, ranked and cut to the token budget.

The store finds candidate events by several strategies and says which of them the character must not know. Candidates
are ranked by recency, importance and relevance with equal weights (Park et al. 2023, "Generative Agents",
arXiv 2304.03442, section 4.1; decision 0019), relevance being BM25 with the line's terms. Lore comes first, by the
rules of lorebooks, with at most half of the budget; events get the rest, best first. Events that are withheld are
handed over too, with their leak terms, but for those that the passages say themselves.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from pydantic import TypeAdapter

from app.characters.lorebooks import (
    KeyIndex,
    MatchMode,
    PreparedBooks,
    RecalledEntry,
    normalise_text,
    prepare_books,
    recall_from,
)
from app.domain.errors import InvalidRequest
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
from app.domain.values import estimate_tokens
from app.domain.worlds import (
    Event,
    EventSearch,
    HiddenEvent,
    HiddenMatch,
    Lorebook,
    Obstacle,
    RankedEvent,
    RecalledLore,
    RetrievalExplanation,
    SearchFindings,
    SearchWay,
    extract_terms,
)
from app.ports.retrieval import WorldListing, suggest_world
from app.toolkit.templates import read_packaged_data

# Query terms.

MOST_TERMS: Final = 64
"""Taken from the end of the text."""

_STOP_WORDS: Final = {
    language: frozenset(words.split())
    for language, words in read_packaged_data(
        Path(__file__).with_name("function_words.yaml"), TypeAdapter(dict[str, str])
    ).items()
}


def extract_query_terms(text: str) -> tuple[str, ...]:
    """Distinct terms, the last first, without stop words: in a small world a stop word may be rarer than the words that
    matter. The stop words are those of the language with most of them in the line, since "war" is one in German but not
    in English. A line of stop words only keeps them."""
    terms = tuple(dict.fromkeys(reversed(extract_terms(text))))[:MOST_TERMS]
    idle = max(_STOP_WORDS.values(), key=lambda words: _count_occurring(words, terms))
    return tuple(term for term in terms if term not in idle) or terms


def _count_occurring(words: frozenset[str], terms: Sequence[str]) -> int:
    return sum(term in words for term in terms)


# Ranking.

_HOURLY_DECAY: Final = 0.995
"""Decay of recency per hour of game time. The paper counts from a memory's last retrieval; here it is from the event's
time, so that retrievals do not affect each other."""

_BM25_SATURATION: Final = 1.2
"""k1 of BM25, term frequency saturation (Robertson and Zaragoza 2009)."""
_BM25_LENGTH: Final = 0.75
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
    return float(_HOURLY_DECAY ** ((as_of - event.time).total_seconds() / 3600))


def _compute_relevance(candidates: Sequence[EventCandidate], weights: Mapping[str, float]) -> list[float]:
    """BM25 with the candidates' mean length."""
    mean = sum(candidate.length for candidate in candidates) / max(1, len(candidates))
    return [_compute_bm25(candidate, weights, mean) for candidate in candidates]


def _compute_bm25(candidate: EventCandidate, weights: Mapping[str, float], mean: float) -> float:
    counts = [(weights[term], count) for term, count in sorted(candidate.counts.items()) if term in weights]
    if not counts:
        return 0.0
    against = _BM25_SATURATION * (1 - _BM25_LENGTH + _BM25_LENGTH * candidate.length / mean)
    return sum(weight * count * (_BM25_SATURATION + 1) / (count + against) for weight, count in counts)


def _scale_to_unit(values: Sequence[float]) -> list[float]:
    least, most = min(values, default=0.0), max(values, default=0.0)
    return [(value - least) / (most - least) if most > least else 0.0 for value in values]


def _build_sort_key(one: tuple[EventCandidate, RankingScores]) -> tuple[float, float, str]:
    candidate, parts = one
    return -parts.score, -candidate.event.time.timestamp(), candidate.event.id


# Retrieval.

_LORE_SHARE: Final = 0.5
"""Largest share of a query's token budget for lorebooks. Events get everything that lorebooks leave."""

_SECRET_REASONS: Final[Collection[Obstacle]] = ("future", "not_visible", "not_yet_valid")
"""Reasons for withholding an event as a secret. Outdated events are only left out."""

_KEPT_BOOKS: Final = 64
"""Worlds whose lorebooks are kept prepared, the last used ones."""

_FEWEST_EVENTS: Final = 16
_MAX_EVENTS: Final = 64
_SHORT_LINE_TOKENS: Final = 20
"""Tokens of a short event."""

_AS_WORDS: Final = MatchMode(case_sensitive=False, whole_words=True)


class _EventSearcher(WorldListing, Protocol):
    """The part of `EventStore` that is used here."""

    async def search(self, wanted: EventSearch) -> SearchFindings | None: ...


class _LorebookSource(Protocol):
    """The part of `LorebookStore` that is used here."""

    async def list_lorebooks(self, world: str) -> dict[str, Lorebook]: ...


@dataclass(frozen=True)
class _OpenedBooks:
    books: Mapping[str, Lorebook]
    ready: PreparedBooks


@dataclass(frozen=True)
class _BudgetedEvent:
    event: Event
    parts: RankingScores
    tokens: int
    fits: bool


@dataclass(frozen=True)
class _Retrieval:
    """Search results, and what of them fits the budget."""

    findings: SearchFindings
    lore: Sequence[RecalledEntry]
    weighed: Sequence[_BudgetedEvent]

    @property
    def context(self) -> Context:
        return _build_context(self.findings, self.lore, self.weighed)


class WorldRetriever:
    """Lore first, by the rules of lorebooks; then events, selected best first within the budget and given in order of
    time. Deterministic for a query and a world."""

    def __init__(self, events: _EventSearcher, lorebooks: _LorebookSource) -> None:
        self._events = events
        self._lorebooks = lorebooks
        self._opened: dict[str, _OpenedBooks] = {}

    async def retrieve(self, query: ContextQuery) -> Context:
        return (await self._retrieve_within_budget(query)).context

    async def explain(self, query: ContextQuery) -> RetrievalExplanation:
        filled = await self._retrieve_within_budget(query)
        findings = filled.findings
        ways = {one.event.id: tuple(sorted(one.ways)) for one in findings.visible}
        return RetrievalExplanation(
            as_of=findings.as_of,
            events=tuple(_explain_event(one, ways[one.event.id]) for one in filled.weighed),
            lore=tuple(_explain_lore(one) for one in filled.lore),
            hidden=tuple(HiddenEvent(event=one.event, reason=one.reason, by=one.by) for one in findings.hidden),
            budget_tokens=query.budget_tokens,
            context=filled.context,
        )

    async def _retrieve_within_budget(self, query: ContextQuery) -> _Retrieval:
        terms = extract_query_terms(query.text)
        names = frozenset({query.character, *query.circles})
        search = EventSearch(query.world, query.as_of, names, terms, most=_compute_event_limit(query.budget_tokens))
        findings = await self._events.search(search)
        if findings is None:
            near = await suggest_world(query.world, self._events)
            raise InvalidRequest(f"there is no world {query.world!r}: it has no events{near}", field="world")
        lore = await self._recall_lore(query, await self._lorebooks.list_lorebooks(query.world))
        left = query.budget_tokens - sum(one.tokens for one in lore if one.told)
        return _Retrieval(findings, lore, tuple(_fit_to_budget(rank_found(findings, terms), left)))

    async def _recall_lore(self, query: ContextQuery, books: Mapping[str, Lorebook]) -> tuple[RecalledEntry, ...]:
        """Runs in a thread, since books have no size limit."""
        if not books:
            return ()
        opened = self._opened.pop(query.world, None)  # it goes back as the newest
        if opened is None or opened.books != books:
            opened = _OpenedBooks(books, await asyncio.to_thread(prepare_books, books))
        self._opened[query.world] = opened
        while len(self._opened) > _KEPT_BOOKS:
            del self._opened[next(iter(self._opened))]
        room = int(query.budget_tokens * _LORE_SHARE)
        return await asyncio.to_thread(recall_from, opened.ready, query.conversation, query.seed, room, estimate_tokens)


def _format_event(event: Event) -> str:
    """A line as long as the event's line in a prompt, for counting its tokens."""
    return f"- (0000-00-00 00:00) {event.text}"


def _compute_event_limit(budget: int) -> int:
    """Most events per search strategy. More would hardly fit the budget."""
    return max(_FEWEST_EVENTS, min(_MAX_EVENTS, budget // _SHORT_LINE_TOKENS))


def rank_found(findings: SearchFindings, terms: Sequence[str]) -> list[tuple[EventCandidate, RankingScores]]:
    """As `rank_events`."""
    if findings.as_of is None:
        return []
    weights = _compute_weights(findings, terms)
    return rank_events([_build_candidate(one.event, weights) for one in findings.visible], findings.as_of, weights)


def _build_candidate(event: Event, weights: Mapping[str, float]) -> EventCandidate:
    """Most events have none of the terms, which a substring test finds out quickly for ASCII texts."""
    text = event.searchable_text
    folded = text.casefold()
    if text.isascii() and not any(term in folded for term in weights):
        return EventCandidate(event, len(text), {})
    return EventCandidate(event, len(text), Counter(term for term in extract_terms(text) if term in weights))


def _compute_weights(findings: SearchFindings, terms: Sequence[str]) -> dict[str, float]:
    """Common terms count only when all terms are common: together they would outweigh a rare one."""
    frequencies = {term: (findings.frequencies or {}).get(term, 0) for term in terms}
    occurring = {term: frequency for term, frequency in frequencies.items() if frequency}
    rare = {
        term: frequency
        for term, frequency in occurring.items()
        if findings.common is None or frequency < findings.common
    }
    return {term: compute_idf(frequency, findings.events) for term, frequency in (rare or occurring).items()}


def _fit_to_budget(events: Iterable[tuple[EventCandidate, RankingScores]], room: int) -> Iterator[_BudgetedEvent]:
    """Best first within the budget. An event that does not fit is skipped; a shorter one may still fit."""
    for candidate, parts in events:
        needed = estimate_tokens(_format_event(candidate.event))
        fits = needed <= room
        room -= needed if fits else 0
        yield _BudgetedEvent(candidate.event, parts, needed, fits)


def _explain_event(one: _BudgetedEvent, ways: tuple[SearchWay, ...]) -> RankedEvent:
    return RankedEvent(
        event=one.event,
        recency=one.parts.recency,
        importance=one.parts.importance,
        relevance=one.parts.relevance,
        score=one.parts.score,
        ways=ways,
        tokens=one.tokens,
        told=one.fits,
    )


def _explain_lore(one: RecalledEntry) -> RecalledLore:
    return RecalledLore(lorebook=one.book, entry=one.entry.id, because=one.because, tokens=one.tokens, told=one.told)


def _build_context(
    findings: SearchFindings, lore: Sequence[RecalledEntry], events: Sequence[_BudgetedEvent]
) -> Context:
    happened = sorted((one.event for one in events if one.fits), key=lambda event: (event.time, event.id))
    passages = (
        *(
            Passage(id=one.entry.id, text=one.entry.content, source=f"lorebook/{one.book}", kind="lore")
            for one in lore
            if one.told
        ),
        *(Passage(id=event.id, text=event.text, source="events", time=event.time) for event in happened),
    )
    secrets = [one for one in findings.hidden if one.reason in _SECRET_REASONS]
    return Context(passages=passages, withheld=_collect_withheld(secrets, passages), as_of=findings.as_of)


def _collect_withheld(secrets: Sequence[HiddenMatch], passages: Sequence[Passage]) -> tuple[Withheld, ...]:
    """Without leak terms that occur in the given passages: saying those is no leak."""
    index = KeyIndex(_AS_WORDS, {term for one in secrets for term in one.event.leak_terms})
    spoken = index.find_keys(normalise_text("\n".join(passage.text for passage in passages)))
    return tuple(
        Withheld(
            id=one.event.id,
            reason=one.reason,
            text=one.event.text,
            leak_terms=tuple(term for term in one.event.leak_terms if index.numbers.get(term) not in spoken),
        )
        for one in secrets
    )
