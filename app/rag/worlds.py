"""The built-in retriever: a world's events and lorebooks, filtered, ranked and cut to the token budget."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.characters.lorebooks.keys import KeyIndex, Manner, plain
from app.characters.lorebooks.opened import OpenBooks, opened
from app.characters.lorebooks.recalling import Recollection, recall_from
from app.domain.errors import InvalidRequest
from app.domain.lorebooks import Lorebook
from app.domain.search_terms import terms
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
from app.domain.token_estimate import tokens
from app.domain.worlds import (
    Event,
    EventSearch,
    Explained,
    Findings,
    Hidden,
    HiddenEvent,
    Obstacle,
    Ranked,
    Recalled,
    Way,
)
from app.rag.asking import asked_about
from app.rag.ranking import Candidate, Parts, ranked, rarity

LORE_SHARE: Final = 0.5
"""Largest share of a query's token budget for lorebooks. Events get everything that lorebooks leave."""

SECRETS: Final[Collection[Obstacle]] = ("future", "not_visible", "not_yet_valid")
"""Reasons for withholding an event as a secret. Outdated events are only left out."""

KEPT_BOOKS: Final = 64

FEWEST: Final = 16
MOST: Final = 64
SHORT_LINE: Final = 20
"""Tokens of a short event."""

_AS_WORDS: Final = Manner(case_sensitive=False, whole_words=True)


class Searched(Protocol):
    """The part of `Events` that is used here."""

    async def search(self, wanted: EventSearch) -> Findings | None: ...


class Shelved(Protocol):
    """The part of `Lorebooks` that is used here."""

    async def of(self, world: str) -> dict[str, Lorebook]: ...


@dataclass(frozen=True)
class _Opened:
    books: Mapping[str, Lorebook]
    ready: OpenBooks


@dataclass(frozen=True)
class _Weighed:
    event: Event
    parts: Parts
    tokens: int
    told: bool


@dataclass(frozen=True)
class _Filled:
    """Search results, and what of them fits the budget."""

    found: Findings
    lore: Sequence[Recollection]
    weighed: Sequence[_Weighed]

    @property
    def context(self) -> Context:
        return _context(self.found, self.lore, self.weighed)


class WorldRetriever:
    """Lore first, by the rules of lorebooks; then events, selected best first within the budget and given in order of
    time. Deterministic for a query and a world."""

    def __init__(self, events: Searched, lorebooks: Shelved) -> None:
        self._events = events
        self._lorebooks = lorebooks
        self._opened: dict[str, _Opened] = {}

    async def retrieve(self, query: ContextQuery) -> Context:
        return (await self._filled(query)).context

    async def explain(self, query: ContextQuery) -> Explained:
        filled = await self._filled(query)
        found = filled.found
        ways = {one.event.id: tuple(sorted(one.ways)) for one in found.visible}
        return Explained(
            as_of=found.as_of,
            events=tuple(_explained(one, ways[one.event.id]) for one in filled.weighed),
            lore=tuple(_named(one) for one in filled.lore),
            hidden=tuple(HiddenEvent(event=one.event, reason=one.reason, by=one.by) for one in found.hidden),
            budget_tokens=query.budget_tokens,
            context=filled.context,
        )

    async def _filled(self, query: ContextQuery) -> _Filled:
        asked = asked_about(query.text)
        names = frozenset({query.character, *query.circles})
        wanted = EventSearch(query.world, query.as_of, names, asked, most=_most(query.budget_tokens))
        found = await self._events.search(wanted)
        if found is None:
            raise InvalidRequest(f"there is no world {query.world!r}: it has no events", field="world")
        lore = await self._recalled(query, await self._lorebooks.of(query.world))
        left = query.budget_tokens - sum(one.tokens for one in lore if one.told)
        return _Filled(found, lore, tuple(_weighed(_ranked(found, asked), left)))

    async def _recalled(self, query: ContextQuery, books: Mapping[str, Lorebook]) -> tuple[Recollection, ...]:
        """Runs in a thread, since books have no size limit."""
        if not books:
            return ()
        known = self._opened.pop(query.world, None)
        if known is None or known.books != books:
            known = _Opened(books, await asyncio.to_thread(opened, books))
        self._opened[query.world] = known
        while len(self._opened) > KEPT_BOOKS:
            del self._opened[next(iter(self._opened))]
        room = int(query.budget_tokens * LORE_SHARE)
        return await asyncio.to_thread(recall_from, known.ready, query.conversation, query.seed, room, tokens)


def line_of(event: Event) -> str:
    """A line as long as the event's line in a prompt, for counting its tokens."""
    return f"- (0000-00-00 00:00) {event.text}"


def _most(budget: int) -> int:
    """Most events per search strategy. More would hardly fit the budget."""
    return max(FEWEST, min(MOST, budget // SHORT_LINE))


def _ranked(found: Findings, asked: Sequence[str]) -> list[tuple[Candidate, Parts]]:
    if found.as_of is None:
        return []
    weights = _weights(found, asked)
    return ranked([_candidate(one.event, weights) for one in found.visible], found.as_of, weights)


def _candidate(event: Event, weights: Mapping[str, float]) -> Candidate:
    """Most events have none of the terms, which a substring test finds out quickly for ASCII texts."""
    text = event.searched
    folded = text.casefold()
    if text.isascii() and not any(term in folded for term in weights):
        return Candidate(event, len(text), {})
    return Candidate(event, len(text), Counter(term for term in terms(text) if term in weights))


def _weights(found: Findings, asked: Sequence[str]) -> dict[str, float]:
    """Common terms count only when all terms are common: together they would outweigh a rare one."""
    frequencies = {term: (found.frequencies or {}).get(term, 0) for term in asked}
    known = {term: frequency for term, frequency in frequencies.items() if frequency}
    rare = {term: frequency for term, frequency in known.items() if found.common is None or frequency < found.common}
    return {term: rarity(frequency, found.events) for term, frequency in (rare or known).items()}


def _weighed(events: Iterable[tuple[Candidate, Parts]], room: int) -> Iterator[_Weighed]:
    """Best first within the budget. An event that does not fit is skipped; a shorter one may still fit."""
    for candidate, parts in events:
        needed = tokens(line_of(candidate.event))
        fits = needed <= room
        room -= needed if fits else 0
        yield _Weighed(candidate.event, parts, needed, fits)


def _explained(one: _Weighed, ways: tuple[Way, ...]) -> Ranked:
    return Ranked(
        event=one.event,
        recency=one.parts.recency,
        importance=one.parts.importance,
        relevance=one.parts.relevance,
        score=one.parts.score,
        ways=ways,
        tokens=one.tokens,
        told=one.told,
    )


def _named(one: Recollection) -> Recalled:
    return Recalled(lorebook=one.book, entry=one.entry.id, because=one.because, tokens=one.tokens, told=one.told)


def _context(found: Findings, lore: Sequence[Recollection], events: Sequence[_Weighed]) -> Context:
    happened = sorted((one.event for one in events if one.told), key=lambda event: (event.time, event.id))
    passages = (
        *(
            Passage(id=one.entry.id, text=one.entry.content, source=f"lorebook/{one.book}", kind="lore")
            for one in lore
            if one.told
        ),
        *(Passage(id=event.id, text=event.text, source="events", time=event.time) for event in happened),
    )
    secrets = [one for one in found.hidden if one.reason in SECRETS]
    return Context(passages=passages, withheld=_withheld(secrets, passages), as_of=found.as_of)


def _withheld(secrets: Sequence[Hidden], passages: Sequence[Passage]) -> tuple[Withheld, ...]:
    """Without leak terms that occur in the given passages: saying those is no leak."""
    index = KeyIndex(_AS_WORDS, {term for one in secrets for term in one.event.leak_terms})
    told = index.found_in(plain("\n".join(passage.text for passage in passages)))
    return tuple(
        Withheld(
            id=one.event.id,
            reason=one.reason,
            text=one.event.text,
            leak_terms=tuple(term for term in one.event.leak_terms if index.numbers.get(term) not in told),
        )
        for one in secrets
    )
