"""The retriever of our own: a world's events and lorebooks, filtered, ranked, and cut to the room there is."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from app.domain.lorebooks import Lorebook
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
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
from app.errors import InvalidRequest
from app.lorebooks.keys import KeyIndex, Manner, plain
from app.lorebooks.opened import OpenBooks, opened
from app.lorebooks.recalling import Recollection, recall_from
from app.rag.ranking import Candidate, Parts, ranked, rarity
from app.terms import terms
from app.tokens import tokens

LORE_SHARE: Final = 0.5
"""What lorebooks may take of a query's budget at most; events get the rest, and what lorebooks leave."""

MOST_TERMS: Final = 64
"""Of what was said, from its end."""

SECRETS: Final[Collection[Obstacle]] = ("future", "not_visible", "not_yet_valid")
"""Why an event is withheld. What is out of date is no secret: it is left out, and that is all."""

KEPT_BOOKS: Final = 64

_AS_WORDS: Final = Manner(case_sensitive=False, whole_words=True)


class Searched(Protocol):
    """Of `Events`, what is needed here."""

    async def search(self, wanted: EventSearch) -> Findings | None: ...


class Shelved(Protocol):
    """Of `Lorebooks`, what is needed here."""

    async def of(self, world: str) -> dict[str, Lorebook]: ...


@dataclass(frozen=True)
class _Opened:
    books: Mapping[str, Lorebook]
    ready: OpenBooks


class WorldRetriever:
    """Lore first, by the rules of lorebooks; then events: taken best first while there is room, told in the order of
    their times. Whoever asks the same of the same world gets the same."""

    def __init__(self, events: Searched, lorebooks: Shelved) -> None:
        self._events = events
        self._lorebooks = lorebooks
        self._opened: dict[str, _Opened] = {}

    async def retrieve(self, query: ContextQuery) -> Context:
        """Of a world without events what its lorebooks have."""
        return (await self.explain(query)).context

    async def explain(self, query: ContextQuery) -> Explained:
        asked = _asked(query)
        found = await self._events.search(
            EventSearch(
                world=query.world,
                as_of=query.as_of,
                names=frozenset({query.character, *query.circles}),
                terms=asked,
            )
        )
        if found is None:
            raise InvalidRequest(f"there is no world {query.world!r}: nothing was told of it", field="world")
        lore = self._recalled(query, await self._lorebooks.of(query.world))
        left = query.budget_tokens - sum(one.tokens for one in lore if one.told)
        events = _told(_ranked(found, asked), left)
        return Explained(
            as_of=found.as_of,
            events=events,
            lore=tuple(_named(one) for one in lore),
            hidden=tuple(HiddenEvent(event=one.event, reason=one.reason, by=one.by) for one in found.hidden),
            budget_tokens=query.budget_tokens,
            context=_context(found, lore, events),
        )

    def _recalled(self, query: ContextQuery, books: Mapping[str, Lorebook]) -> tuple[Recollection, ...]:
        if not books:
            return ()
        known = self._opened.pop(query.world, None)
        if known is None or known.books != books:
            known = _Opened(books, opened(books))
        while len(self._opened) >= KEPT_BOOKS:
            del self._opened[next(iter(self._opened))]
        self._opened[query.world] = known
        return recall_from(known.ready, query.conversation, query.seed, int(query.budget_tokens * LORE_SHARE), tokens)


def line_of(event: Event) -> str:
    """About what a prompt says of it, for counting its tokens."""
    return f"- ({event.time:%Y-%m-%d %H:%M}) {event.text}"


def _asked(query: ContextQuery) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reversed(terms(query.text))))[:MOST_TERMS]


def _ranked(found: Findings, asked: Sequence[str]) -> list[Ranked]:
    """None of them told yet."""
    if found.as_of is None:
        return []
    weights = _weights(found, asked)
    ways = {one.event.id: tuple(sorted(one.ways)) for one in found.visible}
    candidates = [Candidate(one.event, terms(one.event.searched)) for one in found.visible]
    return [
        _explained(candidate.event, parts, ways[candidate.event.id])
        for candidate, parts in ranked(candidates, found.as_of, weights)
    ]


def _weights(found: Findings, asked: Sequence[str]) -> dict[str, float]:
    """Of common terms only where all are: together, they would outweigh a rare one."""
    frequencies = {term: (found.frequencies or {}).get(term, 0) for term in asked}
    known = {term: frequency for term, frequency in frequencies.items() if frequency}
    rare = {term: frequency for term, frequency in known.items() if found.common is None or frequency < found.common}
    return {term: rarity(frequency, found.events) for term, frequency in (rare or known).items()}


def _explained(event: Event, parts: Parts, ways: tuple[Way, ...]) -> Ranked:
    return Ranked(
        event=event,
        recency=parts.recency,
        importance=parts.importance,
        relevance=parts.relevance,
        score=parts.score,
        ways=ways,
        tokens=tokens(line_of(event)),
        told=False,
    )


def _told(events: Sequence[Ranked], room: int) -> tuple[Ranked, ...]:
    """Best first while there is room; one that does not fit is passed over, and a shorter one may still fit."""
    marked = []
    for one in events:
        fits = one.tokens <= room
        room -= one.tokens if fits else 0
        marked.append(one.model_copy(update={"told": fits}))
    return tuple(marked)


def _named(one: Recollection) -> Recalled:
    return Recalled(lorebook=one.book, entry=one.entry.id, because=one.because, tokens=one.tokens, told=one.told)


def _context(found: Findings, lore: Sequence[Recollection], events: Sequence[Ranked]) -> Context:
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
    """Without the terms that stand in what is told: saying those is no leak."""
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
