"""Worlds and lorebooks in the store: telling, withdrawing, branching, looking."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle

import pytest

from app.domain.errors import Conflict, GatewayError, InvalidRequest, NotFound
from app.domain.values import digest_of_model
from app.domain.worlds import Event, EventsAdded, EventSearch, Lorebook, LoreEntry, SearchFindings, World, extract_terms
from app.features.worlds.store import EventStore
from app.features.worlds.store_search import COMMON_TERM_COUNT
from app.features.worlds.store_worlds import MAX_BRANCH_DEPTH, LorebookStore
from app.main.store import Store
from tests.support.store_cases import START, MovableClock, opened

pytestmark = pytest.mark.dialects

NOON = datetime(1302, 5, 1, 12, tzinfo=UTC)


def event(event_id: str, hour: float = 0, text: str = "The bridge fell.", **more: object) -> Event:
    return Event.model_validate({"id": event_id, "time": NOON + timedelta(hours=hour), "text": text, **more})


def about(world: str, text: str = "", *names: str, hour: float | None = 100) -> EventSearch:
    as_of = None if hour is None else NOON + timedelta(hours=hour)
    return EventSearch(world, as_of, frozenset(names), extract_terms(text))


async def searched(store: Store, wanted: EventSearch) -> SearchFindings:
    found = await store.part(EventStore).search(wanted)
    assert found is not None
    return found


def ids(found: SearchFindings) -> list[str]:
    return [one.event.id for one in found.visible]


async def refusal(call: object) -> tuple[type[GatewayError], str | None]:
    with pytest.raises(GatewayError) as caught:
        await call  # type: ignore[misc]
    return type(caught.value), caught.value.field


EVERYTHING = event(
    "all.of-it:1",
    text="Wolves \x00 橋",
    kind="fight",
    actors=("hob", "\x00"),
    location="mill",
    visibility=("hob", "watch"),
    importance=9,
    tags=("night",),
    valid_from=NOON,
    valid_to=NOON + timedelta(days=1),
    supersedes="a",
    leak_terms=("silver",),
)


async def test_events_come_back_as_they_were_told(store: Store) -> None:
    events = store.part(EventStore)
    told = await events.add_events("town", [event("a"), EVERYTHING])
    found = await searched(store, about("town", "wolves", "watch", hour=1))
    seen = told, await events.list_newest("town", 5), found.visible[0].event, [h.event.id for h in found.hidden]
    assert seen == (EventsAdded(new=2, known=0), [EVERYTHING, event("a")], EVERYTHING, ["a"])


async def test_what_is_told_again_is_known_and_other_content_is_refused(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a"), event("b", 1)])
    await events.branch("save", "town", NOON)
    assert (
        await events.add_events("town", [event("a"), event("c"), event("c")]),
        await refusal(events.add_events("town", [event("d"), event("a", text="It stands.")])),
        await refusal(events.add_events("town", [event("d"), event("d", 1)])),
        await refusal(events.add_events("save", [event("a", 1)])),
        await events.add_events("save", [event("a"), event("b", 2)]),
        [one.id for one in await events.list_newest("town", 9)],
        [one.id for one in await events.list_newest("save", 9)],
    ) == (
        EventsAdded(new=1, known=2),
        (Conflict, "events[1].id"),
        (Conflict, "events[1].id"),
        (Conflict, "events[0].id"),
        EventsAdded(new=1, known=1),
        ["b", "c", "a"],
        ["b", "c", "a"],
    )


async def test_what_is_withdrawn_never_happened_there_nor_in_branches(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a"), event("b"), event("c"), event("d", 3)])
    await events.branch("save", "town", NOON)
    await events.branch("later", "save", NOON)
    answers = [
        await events.withdraw("town", "a"),
        await events.withdraw("save", "b"),
        await events.withdraw("save", "b"),
        await events.withdraw("save", "d"),
        await events.withdraw("town", "nothing"),
    ]
    known = await events.add_events("later", [event("a"), event("b")])
    worlds = ("town", "save", "later")
    found = [ids(await searched(store, about(world, "bridge"))) for world in worlds]
    listed = [[one.id for one in await events.list_newest(world, 9)] for world in worlds]
    left = [["d", "c", "b"], ["c"], ["c"]]
    told = answers, known, found, listed, await refusal(events.withdraw("nowhere", "a"))
    assert told == ([True, True, True, False, False], EventsAdded(new=0, known=2), left, left, (NotFound, None))


async def test_a_branch_shares_the_past_whenever_it_is_told(store: Store, clock: MovableClock) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("before"), event("after", 2)])
    branched = [await events.branch("save", "town", NOON + timedelta(hours=1)) for _ in range(2)]
    await events.add_events("town", [event("late", -5)])
    await events.add_events("save", [event("own", 5)])
    moment = NOON + timedelta(hours=1)
    save = World(name="save", parent="town", branched_at=moment, newest=NOON, created_at=START)
    assert (
        branched,
        await events.get_world("save"),
        await events.get_world("town"),
        await events.get_world("none"),
        ids(await searched(store, about("save"))),
        await refusal(events.branch("save", "town", NOON)),
        await refusal(events.branch("new", "nowhere", NOON)),
        await refusal(events.branch("town", "save", NOON)),
        [one.name for one in await events.list_worlds(9, None)],
        [one.name for one in await events.list_worlds(1, "save")],
        await events.search(about("nowhere")),
    ) == (
        [save, save],
        save.model_copy(update={"events": 1, "newest": NOON + timedelta(hours=5)}),
        World(name="town", events=3, newest=NOON + timedelta(hours=2), created_at=START),
        None,
        ["own", "before", "late"],
        (Conflict, None),
        (NotFound, None),
        (Conflict, None),
        ["save", "town"],
        ["town"],
        None,
    )


async def test_a_closed_world_takes_nothing_more_and_its_branches_go_on(store: Store, clock: MovableClock) -> None:
    events, books = store.part(EventStore), store.part(LorebookStore)
    await events.add_events("town", [event("a")])
    await events.branch("save", "town", NOON)
    closed = [await events.close("town") for _ in range(2)]
    refused = [
        await refusal(call)
        for call in (
            events.add_events("town", [event("a")]),
            events.correct("town", event("a", 1)),
            events.withdraw("town", "a"),
            books.put("town", "b", BOOK),
            books.remove("town", "b"),
            events.branch("town", "save", NOON),
            events.branch("new", "town", NOON),
        )
    ]
    unusable = await refusal(events.search(about("town")))
    names = [[one.name for one in await events.list_worlds(9, None, closed=some)] for some in (False, True)]
    again = await events.branch("save", "town", NOON)
    own = await events.add_events("save", [event("b", 1)])
    found = ids(await searched(store, about("save")))
    town = World(name="town", events=1, newest=NOON, created_at=START, closed_at=START)
    reopened = [await events.reopen(name) for name in ("town", "town", "nowhere")]
    added = await events.add_events("town", [event("c", 2)])
    assert (reopened, added) == (
        [*[town.model_copy(update={"closed_at": None})] * 2, None],
        EventsAdded(new=1, known=0),
    )
    assert (closed, refused, unusable, names, again.name, own, found, await events.close("nowhere")) == (
        [town, town],
        [(Conflict, None)] * 7,
        (InvalidRequest, "world"),
        [["save"], ["save", "town"]],
        "save",
        EventsAdded(new=1, known=0),
        ["b", "a"],
        None,
    )


async def test_branches_of_branches_end_somewhere(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("w0", [event("first")])
    for number in range(MAX_BRANCH_DEPTH):
        await events.branch(f"w{number + 1}", f"w{number}", NOON)
    deepest = f"w{MAX_BRANCH_DEPTH}"
    found = ids(await searched(store, about(deepest, "bridge"))), await refusal(events.branch("deeper", deepest, NOON))
    assert found == (["first"], (Conflict, None))


async def test_newest_events_come_in_pages(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event(name, hour) for name, hour in (("a", 1), ("b", 1), ("c", 0), ("B", 1))])
    await events.branch("save", "town", NOON + timedelta(hours=1))
    await events.add_events("save", [event("d", 1)])
    pages: list[list[str]] = []
    before: tuple[datetime, str] | None = None
    while page := await events.list_newest("save", 2, before):
        pages.append([one.id for one in page])
        before = page[-1].time, page[-1].id
    assert (pages, await events.list_newest("nowhere", 2)) == ([["d", "b"], ["a", "B"], ["c"]], [])


async def test_a_common_word_finds_nothing_beside_a_rare_one(store: Store) -> None:
    crowd = [event(f"e{n}", n / 60, f"The bell rang {n} times.") for n in range(600)]
    await store.part(EventStore).add_events("town", [event("odd", -9, "The bell cracked.", importance=0), *crowd])
    found = await searched(store, about("town", "bell cracked"))
    only_common = await searched(store, about("town", "bell"))
    matching = [one.event.id for one in found.visible if "text" in one.ways]
    told = matching, found.frequencies, sum("text" in one.ways for one in only_common.visible)
    assert told == (["odd"], {"bell": COMMON_TERM_COUNT, "cracked": 1}, 64)


async def test_what_is_hidden_near_the_question_is_named_with_its_reason(store: Store) -> None:
    await store.part(EventStore).add_events(
        "town",
        [
            event("secret", 1, "The silver lies under the mill.", visibility=("guild",)),
            event("coming", 30, "A wolf comes."),
            event("offer", 0, "Grain is cheap.", valid_to=NOON + timedelta(hours=2)),
            event("law", 0, "Dogs are taxed.", valid_from=NOON + timedelta(days=9)),
            *(event(f"chat{n}", n / 100, "Guild talk.", visibility=("guild",)) for n in range(50)),
        ],
    )
    found = await searched(store, about("town", "where is the silver", "hob", hour=5))
    reasons = {one.event.id: one.reason for one in found.hidden if not one.event.id.startswith("chat")}
    wanted = {"secret": "not_visible", "coming": "future", "offer": "no_longer_valid", "law": "not_yet_valid"}
    assert (found.hidden[0].event.id, reasons, len(found.hidden), ids(found)) == ("secret", wanted, 15, [])


async def test_an_event_that_very_many_know_is_found_by_its_words(store: Store) -> None:
    events = store.part(EventStore)
    many = tuple(f"person-{n}" for n in range(250))
    await events.add_events("town", [event("feast", -50, "A feast.", visibility=many, importance=0)])
    await events.add_events("town", [event(f"e{n}", n / 60, "Rain.") for n in range(300)])
    knows = await searched(store, about("town", "feast", "person-7"))
    other = await searched(store, about("town", "feast", "hob"))
    ways = [sorted(one.ways) for one in knows.visible if one.event.id == "feast"]
    assert (ways, "feast" in ids(other), [one.event.id for one in other.hidden]) == ([["text"]], False, ["feast"])


async def test_tellers_at_the_same_time_lose_nothing(store: Store) -> None:
    batches = [[event(f"e{n}-{m}", n) for m in range(10)] for n in range(20)]
    told = await asyncio.gather(*(store.part(EventStore).add_events("town", batch) for batch in batches + batches))
    world = await store.part(EventStore).get_world("town")
    assert (sum(one.new for one in told), sum(one.known for one in told), world and world.events) == (200, 200, 200)


BOOK = Lorebook(name="Town", entries=(LoreEntry(id="1", content="\x00 The mill", keys=("mill",)),))


async def test_lorebooks_are_kept_by_world_and_replace_those_of_the_past(store: Store) -> None:
    books = store.part(LorebookStore)
    await books.put("town", "b", Lorebook(name="first"))
    await books.put("town", "b", BOOK)
    await books.put("town", "a", Lorebook(name="a"))
    await store.part(EventStore).branch("save", "town", NOON)
    await books.put("save", "b", Lorebook(name="own"))
    seen = [
        await books.list_lorebooks("town"),
        await books.list_lorebooks("save"),
        await books.list_lorebooks("nowhere"),
    ]
    removed = [await books.remove(*one) for one in (("save", "b"), ("save", "a"), ("nowhere", "a"))]
    town = {"a": Lorebook(name="a"), "b": BOOK}
    found = seen, removed, list((await books.list_lorebooks("save")).items())
    assert found == ([town, {**town, "b": Lorebook(name="own")}, {}], [True, False, False], list(town.items()))


async def test_of_changes_of_a_lorebook_at_once_one_is_stored(store: Store, store_url: str) -> None:
    async def change(stores: Sequence[Store], world: str, based_on: str) -> tuple[int, bool]:
        """How many are refused, and whether the one that is not is stored."""
        books = [Lorebook(name=f"{number}") for number in range(4)]
        tried = [
            store.part(LorebookStore).put(world, "b", book, based_on)
            for store, book in zip(cycle(stores), books, strict=False)
        ]
        done = await asyncio.gather(*tried, return_exceptions=True)
        refused = sum(isinstance(one, Conflict) for one in done)
        return refused, (await stores[0].part(LorebookStore).list_lorebooks(world))["b"] == books[done.index(None)]

    events, books = store.part(EventStore), store.part(LorebookStore)
    await books.put("town", "b", BOOK)
    await events.branch("save", "town", NOON)
    read = digest_of_model(BOOK)
    async with opened(store_url) as other:
        told = [await change((store, other), *one) for one in (("save", read), ("town", read), ("new", ""))]
    refused = [await refusal(books.put(world, "b", BOOK, read)) for world in ("save", "nowhere")]
    found = told, refused, await events.get_world("nowhere")
    assert found == ([(3, True)] * 3, [(Conflict, None)] * 2, None)
