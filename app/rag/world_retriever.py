"""The built-in retriever: a world's events and lorebooks, filtered, ranked and cut to the token budget."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.characters.lorebooks.activation import RecalledEntry, recall_from
from app.characters.lorebooks.key_index import KeyIndex, MatchMode, normalise_text
from app.characters.lorebooks.prepared_books import PreparedBooks, prepare_books
from app.domain.errors import InvalidRequest
from app.domain.lorebooks import Lorebook
from app.domain.search_terms import extract_terms
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
from app.domain.token_estimate import estimate_tokens
from app.domain.worlds import (
    Event,
    EventSearch,
    HiddenEvent,
    HiddenMatch,
    Obstacle,
    RankedEvent,
    RecalledLore,
    RetrievalExplanation,
    SearchFindings,
    SearchWay,
)
from app.ports.retrieval import WorldListing, suggest_world
from app.rag.query_terms import extract_query_terms
from app.rag.ranking import EventCandidate, RankingScores, compute_idf, rank_events

LORE_SHARE: Final = 0.5
"""Largest share of a query's token budget for lorebooks. Events get everything that lorebooks leave."""

SECRET_REASONS: Final[Collection[Obstacle]] = ("future", "not_visible", "not_yet_valid")
"""Reasons for withholding an event as a secret. Outdated events are only left out."""

KEPT_BOOKS: Final = 64

FEWEST_EVENTS: Final = 16
MAX_EVENTS: Final = 64
SHORT_LINE_TOKENS: Final = 20
"""Tokens of a short event."""

_AS_WORDS: Final = MatchMode(case_sensitive=False, whole_words=True)


class EventSearcher(WorldListing, Protocol):
    """The part of `Events` that is used here."""

    async def search(self, wanted: EventSearch) -> SearchFindings | None: ...


class LorebookSource(Protocol):
    """The part of `Lorebooks` that is used here."""

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
    told: bool


@dataclass(frozen=True)
class _Retrieval:
    """Search results, and what of them fits the budget."""

    found: SearchFindings
    lore: Sequence[RecalledEntry]
    weighed: Sequence[_BudgetedEvent]

    @property
    def context(self) -> Context:
        return _build_context(self.found, self.lore, self.weighed)


class WorldRetriever:
    """Lore first, by the rules of lorebooks; then events, selected best first within the budget and given in order of
    time. Deterministic for a query and a world."""

    def __init__(self, events: EventSearcher, lorebooks: LorebookSource) -> None:
        self._events = events
        self._lorebooks = lorebooks
        self._opened: dict[str, _OpenedBooks] = {}

    async def retrieve(self, query: ContextQuery) -> Context:
        return (await self._retrieve_within_budget(query)).context

    async def explain(self, query: ContextQuery) -> RetrievalExplanation:
        filled = await self._retrieve_within_budget(query)
        found = filled.found
        ways = {one.event.id: tuple(sorted(one.ways)) for one in found.visible}
        return RetrievalExplanation(
            as_of=found.as_of,
            events=tuple(_explain_event(one, ways[one.event.id]) for one in filled.weighed),
            lore=tuple(_explain_lore(one) for one in filled.lore),
            hidden=tuple(HiddenEvent(event=one.event, reason=one.reason, by=one.by) for one in found.hidden),
            budget_tokens=query.budget_tokens,
            context=filled.context,
        )

    async def _retrieve_within_budget(self, query: ContextQuery) -> _Retrieval:
        asked = extract_query_terms(query.text)
        names = frozenset({query.character, *query.circles})
        wanted = EventSearch(query.world, query.as_of, names, asked, most=_compute_event_limit(query.budget_tokens))
        found = await self._events.search(wanted)
        if found is None:
            near = await suggest_world(query.world, self._events)
            raise InvalidRequest(f"there is no world {query.world!r}: it has no events{near}", field="world")
        lore = await self._recall_lore(query, await self._lorebooks.list_lorebooks(query.world))
        left = query.budget_tokens - sum(one.tokens for one in lore if one.told)
        return _Retrieval(found, lore, tuple(_fit_to_budget(_rank_found(found, asked), left)))

    async def _recall_lore(self, query: ContextQuery, books: Mapping[str, Lorebook]) -> tuple[RecalledEntry, ...]:
        """Runs in a thread, since books have no size limit."""
        if not books:
            return ()
        known = self._opened.pop(query.world, None)
        if known is None or known.books != books:
            known = _OpenedBooks(books, await asyncio.to_thread(prepare_books, books))
        self._opened[query.world] = known
        while len(self._opened) > KEPT_BOOKS:
            del self._opened[next(iter(self._opened))]
        room = int(query.budget_tokens * LORE_SHARE)
        return await asyncio.to_thread(recall_from, known.ready, query.conversation, query.seed, room, estimate_tokens)


def format_event(event: Event) -> str:
    """A line as long as the event's line in a prompt, for counting its tokens."""
    return f"- (0000-00-00 00:00) {event.text}"


def _compute_event_limit(budget: int) -> int:
    """Most events per search strategy. More would hardly fit the budget."""
    return max(FEWEST_EVENTS, min(MAX_EVENTS, budget // SHORT_LINE_TOKENS))


def _rank_found(found: SearchFindings, asked: Sequence[str]) -> list[tuple[EventCandidate, RankingScores]]:
    if found.as_of is None:
        return []
    weights = _compute_weights(found, asked)
    return rank_events([_build_candidate(one.event, weights) for one in found.visible], found.as_of, weights)


def _build_candidate(event: Event, weights: Mapping[str, float]) -> EventCandidate:
    """Most events have none of the terms, which a substring test finds out quickly for ASCII texts."""
    text = event.searchable_text
    folded = text.casefold()
    if text.isascii() and not any(term in folded for term in weights):
        return EventCandidate(event, len(text), {})
    return EventCandidate(event, len(text), Counter(term for term in extract_terms(text) if term in weights))


def _compute_weights(found: SearchFindings, asked: Sequence[str]) -> dict[str, float]:
    """Common terms count only when all terms are common: together they would outweigh a rare one."""
    frequencies = {term: (found.frequencies or {}).get(term, 0) for term in asked}
    known = {term: frequency for term, frequency in frequencies.items() if frequency}
    rare = {term: frequency for term, frequency in known.items() if found.common is None or frequency < found.common}
    return {term: compute_idf(frequency, found.events) for term, frequency in (rare or known).items()}


def _fit_to_budget(events: Iterable[tuple[EventCandidate, RankingScores]], room: int) -> Iterator[_BudgetedEvent]:
    """Best first within the budget. An event that does not fit is skipped; a shorter one may still fit."""
    for candidate, parts in events:
        needed = estimate_tokens(format_event(candidate.event))
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
        told=one.told,
    )


def _explain_lore(one: RecalledEntry) -> RecalledLore:
    return RecalledLore(lorebook=one.book, entry=one.entry.id, because=one.because, tokens=one.tokens, told=one.told)


def _build_context(found: SearchFindings, lore: Sequence[RecalledEntry], events: Sequence[_BudgetedEvent]) -> Context:
    happened = sorted((one.event for one in events if one.told), key=lambda event: (event.time, event.id))
    passages = (
        *(
            Passage(id=one.entry.id, text=one.entry.content, source=f"lorebook/{one.book}", kind="lore")
            for one in lore
            if one.told
        ),
        *(Passage(id=event.id, text=event.text, source="events", time=event.time) for event in happened),
    )
    secrets = [one for one in found.hidden if one.reason in SECRET_REASONS]
    return Context(passages=passages, withheld=_collect_withheld(secrets, passages), as_of=found.as_of)


def _collect_withheld(secrets: Sequence[HiddenMatch], passages: Sequence[Passage]) -> tuple[Withheld, ...]:
    """Without leak terms that occur in the given passages: saying those is no leak."""
    index = KeyIndex(_AS_WORDS, {term for one in secrets for term in one.event.leak_terms})
    told = index.find_keys(normalise_text("\n".join(passage.text for passage in passages)))
    return tuple(
        Withheld(
            id=one.event.id,
            reason=one.reason,
            text=one.event.text,
            leak_terms=tuple(term for term in one.event.leak_terms if index.numbers.get(term) not in told),
        )
        for one in secrets
    )
