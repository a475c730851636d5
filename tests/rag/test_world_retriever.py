"""What of a world is told: ranked, cut to the room there is, in the order of time; what is withheld, and why."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.errors import InvalidRequest
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
from app.domain.worlds import (
    Event,
    EventSearch,
    FoundEvent,
    HiddenMatch,
    Lorebook,
    LoreEntry,
    Obstacle,
    RetrievalExplanation,
    SearchFindings,
    World,
)
from app.rag.world_retriever import WorldRetriever

NOON = datetime(1312, 4, 3, 12, tzinfo=UTC)


def event(name: str, text: str, *, hours: float = 0, importance: int = 5, leak_terms: tuple[str, ...] = ()) -> Event:
    return Event(id=name, time=NOON - timedelta(hours=hours), text=text, importance=importance, leak_terms=leak_terms)


@dataclass
class Told:
    """A world in which the search finds the same whatever is asked, and what it was asked."""

    findings: SearchFindings | None
    books: Mapping[str, Lorebook] = field(default_factory=dict)
    asked: list[EventSearch] = field(default_factory=list)

    async def search(self, wanted: EventSearch) -> SearchFindings | None:
        self.asked.append(wanted)
        return self.findings

    async def list_worlds(self, limit: int, after: str | None, *, closed: bool = False) -> list[World]:
        return [World(name="coasts", created_at=NOON)] if after is None else []

    async def list_lorebooks(self, world: str) -> dict[str, Lorebook]:
        return dict(self.books)


def found(*events: Event, hidden: Iterable[HiddenMatch] = (), **frequencies: int) -> SearchFindings:
    visible = tuple(FoundEvent(one, frozenset({"newest"})) for one in events)
    return SearchFindings(NOON, visible, tuple(hidden), frequencies, events=100, common=50)


def explained(told: Told, text: str = "", *, budget: int = 600, said: tuple[str, ...] = ()) -> RetrievalExplanation:
    query = ContextQuery(
        text=text,
        character="hob",
        world="coast",
        as_of=NOON,
        circles=("ferrymen",),
        conversation=(*said, text),
        seed="s",
        budget_tokens=budget,
    )
    retriever = WorldRetriever(told, told)
    why = asyncio.run(retriever.explain(query))
    assert asyncio.run(retriever.retrieve(query)) == why.context
    return why


def ids(context: Context) -> list[str]:
    return [passage.id for passage in context.passages]


ROPE = event("rope", "The ferry's rope broke at dawn.", hours=6, importance=7)
FAIR = event("fair", "The spring fair was announced for the tenth.", hours=30, importance=3)
RAIN = event("rain", "It rained.", hours=1, importance=1)


def test_the_best_are_told_in_the_order_of_their_times() -> None:
    why = explained(Told(found(RAIN, ROPE, FAIR, rope=1, the=100)), "What became of the rope?")
    best = [(one.event.id, one.told, one.ways, one.tokens) for one in why.events]
    assert (best, why.as_of, why.budget_tokens) == (
        [("rope", True, ("newest",), 13), ("rain", True, ("newest",), 8), ("fair", True, ("newest",), 17)],
        NOON,
        600,
    )
    assert why.context == Context(
        passages=tuple(Passage(id=one.id, text=one.text, source="events", time=one.time) for one in (FAIR, ROPE, RAIN)),
        as_of=NOON,
    )


@pytest.mark.parametrize(
    ("budget", "told"), [(0, []), (7, []), (8, ["rain"]), (13, ["rope"]), (29, ["rope", "rain"]), (38, None)]
)
def test_what_does_not_fit_is_passed_over_and_a_shorter_one_may_still_fit(budget: int, told: list[str] | None) -> None:
    why = explained(Told(found(RAIN, ROPE, FAIR, rope=1)), "the rope", budget=budget)
    assert ids(why.context) == (told if told is not None else ["fair", "rope", "rain"])
    assert [one.event.id for one in why.events] == ["rope", "rain", "fair"]


def test_who_asks_for_what_is_asked_of_the_store() -> None:
    told = Told(found())
    explained(told, "The rope, the ROPE! 渡し船")
    assert told.asked[0] == EventSearch(
        world="coast", as_of=NOON, names=frozenset({"hob", "ferrymen"}), terms=("し船", "渡し", "rope"), most=30
    )


def test_events_in_scripts_without_spaces_are_found_by_what_they_say() -> None:
    events = [
        event("ferry", "渡し船の綱が切れた。", hours=48, importance=0),
        event("market", "市場で祭りが開かれた。", hours=48, importance=0),
        event("fog", "霧が出た。", hours=48, importance=0),
    ]
    why = explained(Told(found(*events, 渡し=1, し船=1)), "渡し船はどうなった?")
    assert [(one.event.id, one.relevance) for one in why.events] == [("ferry", 1.0), ("fog", 0.0), ("market", 0.0)]


@pytest.mark.parametrize(
    ("text", "relevance"),
    [
        ("Was there a zeppelin?", {"rope": 0.0, "fair": 0.0}),
        ("The spring, at the ferry?", {"rope": 0.0, "fair": 1.0}),
        ("At the...", {"rope": 1.0, "fair": 0.0}),
    ],
)
def test_common_terms_count_where_all_are_common(text: str, relevance: Mapping[str, float]) -> None:
    why = explained(Told(found(ROPE, FAIR, zeppelin=0, spring=2, the=50, at=50)), text)
    assert {one.event.id: one.relevance for one in why.events} == relevance


def test_what_is_withheld_is_told_to_judges_and_what_is_out_of_date_to_nobody() -> None:
    reasons: dict[str, Obstacle] = {
        "later": "future",
        "sealed": "not_visible",
        "offer": "not_yet_valid",
        "toll": "no_longer_valid",
        "price": "superseded",
    }
    hidden = [
        HiddenMatch(
            event(name, f"About {name}.", leak_terms=(name, "rope", "ferry's", "rop")), reason, "rope" if by else None
        )
        for name, reason in reasons.items()
        for by in [reason == "superseded"]
    ]
    why = explained(Told(found(ROPE, hidden=hidden)))
    assert why.context.withheld == tuple(
        Withheld(id=name, reason=reasons[name], text=f"About {name}.", leak_terms=(name, "rop"))
        for name in ("later", "sealed", "offer")
    )
    assert [(one.event.id, one.reason, one.by) for one in why.hidden] == [
        (name, reason, "rope" if name == "price" else None) for name, reason in reasons.items()
    ]


def test_lore_comes_first_and_takes_half_of_the_room_at_most() -> None:
    book = Lorebook(
        entries=(
            LoreEntry(id="bell", keys=("bell",), content="The bell is older than the ferry. " * 4, order=5),
            LoreEntry(id="ferry", keys=("rope",), content="The ferry runs on a rope.", order=9),
            LoreEntry(id="fish", keys=("fish",), content="Nobody eats eel here."),
        )
    )
    told = Told(found(ROPE, FAIR, rope=1), {"reedgate": book})
    wide, narrow = (explained(told, "the rope", said=("That bell!",), budget=budget) for budget in (100, 60))
    assert {
        "wide": [(passage.id, passage.kind, passage.source) for passage in wide.context.passages],
        "narrow": ids(narrow.context),
        "why": [(one.entry, one.because, one.tokens, one.told) for one in wide.lore],
        "left_out": [one.entry for one in narrow.lore if not one.told],
    } == {
        "wide": [
            ("bell", "lore", "lorebook/reedgate"),
            ("ferry", "lore", "lorebook/reedgate"),
            ("fair", "event", "events"),
            ("rope", "event", "events"),
        ],
        "narrow": ["ferry", "fair", "rope"],
        "why": [("bell", 'key "bell"', 34, True), ("ferry", 'key "rope"', 7, True)],
        "left_out": ["bell"],
    }


def test_a_lorebook_that_was_changed_is_read_again() -> None:
    told = Told(found(), {"a": Lorebook(entries=(LoreEntry(id="one", constant=True, content="One."),))})
    retriever = WorldRetriever(told, told)
    query = ContextQuery(text="", character="hob", world="coast")
    first = asyncio.run(retriever.retrieve(query))
    told.books = {"a": Lorebook(entries=(LoreEntry(id="two", constant=True, content="Two."),))}
    assert (ids(first), ids(asyncio.run(retriever.retrieve(query)))) == (["one"], ["two"])


def test_a_world_without_events_tells_nothing_and_one_that_nobody_named_is_refused() -> None:
    assert explained(Told(SearchFindings(as_of=None))).context == Context()
    with pytest.raises(InvalidRequest, match="no world 'coast': it has no events; did you mean 'coasts'") as refused:
        explained(Told(None))
    assert refused.value.field == "world"
