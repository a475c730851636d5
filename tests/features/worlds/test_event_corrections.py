"""Corrections of told events in the store: which worlds have which text."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.errors import Conflict, NotFound
from app.domain.values import digest_of_model
from app.domain.worlds import Event, KnownEvent
from app.features.worlds.store import EventStore
from app.features.worlds.store_worlds import EarlierTextStore
from app.main.store import Store
from tests.features.worlds.test_store import about, event, ids, refusal, searched

pytestmark = pytest.mark.dialects


async def texts(store: Store, *worlds: str) -> dict[str, list[str]]:
    """What each world lists. Raises unless its search by words finds the same."""
    found = {}
    for world in worlds:
        listed = await store.part(EventStore).list_newest(world, 9)
        by_words = [one.event for one in (await searched(store, about(world, "bridge mill"))).visible]
        assert sorted(one.text for one in listed) == sorted(one.text for one in by_words)
        found[world] = [one.text for one in listed]
    return found


OLD, NEW = "The bridge fell.", "The bridge held."


async def test_a_correction_replaces_what_is_found_and_takes_its_place(store: Store) -> None:
    await store.part(EventStore).add_events("town", [event("a"), event("b", 1, "The mill burned.", supersedes="a")])
    hidden = ids(await searched(store, about("town")))
    known = [await store.part(EventStore).correct("town", event("b", 2, "The mill stands.")) for _ in range(2)]
    back = await store.part(EventStore).correct("town", event("b", 1, "The mill burned.", importance=9))
    world = await store.part(EventStore).get_world("town")
    before, at = [ids(await searched(store, about("town", "mill", hour=hour))) for hour in (0.5, 1)]
    again = await refusal(store.part(EventStore).add_events("town", [event("b", 2, "The mill stands.")]))
    assert (hidden, known, back, world and world.events, before, at, again, await texts(store, "town")) == (
        ["b"],
        [True, True],
        True,
        2,
        ["a"],
        ["b", "a"],
        (Conflict, "events[0].id"),
        {"town": ["The mill burned.", OLD]},
    )


async def test_a_withdrawn_event_comes_back_by_a_correction(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a")])
    await events.branch("save", "town", event("a").time)
    await events.withdraw("town", "a")
    known = await events.correct("town", event("a"))
    await events.branch("later", "town", event("a").time)
    of_branch = await events.correct("save", event("a", text=NEW))
    found = known, of_branch, await texts(store, "town", "save", "later")
    assert found == (True, True, {"town": [OLD], "save": [NEW], "later": [OLD]})


async def test_who_read_an_event_before_it_was_withdrawn_does_not_bring_it_back(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a")])
    read = digest_of_model(await events.find_event("town", "a") or event("a"))
    await events.withdraw("town", "a")
    refused = await refusal(events.correct("town", event("a", text=NEW), read))
    again = digest_of_model(await events.find_event("town", "a") or event("a"))
    brought_back = await events.correct("town", event("a", text=NEW), again)
    assert (refused[0], brought_back, await texts(store, "town")) == (Conflict, True, {"town": [NEW]})


@pytest.mark.parametrize("hour", [-1, 0, 3])
async def test_branches_keep_what_they_branched_from(store: Store, hour: float) -> None:
    """Whether the correction moves the event or not: branches of branches, and those that withdrew it, too."""
    events = store.part(EventStore)
    await events.add_events("town", [event("a"), event("late", 2)])
    await events.branch("save", "town", event("a", 1).time)
    await events.branch("inner", "save", event("a", 1).time)
    await events.branch("earlier", "save", event("a", -0.5).time)
    await events.branch("without", "save", event("a", 1).time)
    await events.withdraw("without", "a")
    kept = ("save", "inner", "earlier", "without")
    before = await texts(store, *kept)
    await events.correct("town", event("a", hour, NEW))
    await events.correct("town", event("late", -0.75, NEW))
    await events.correct("town", event("a", hour, NEW, importance=9))
    await events.branch("after", "town", event("a", 1).time)
    found = before, await texts(store, *kept), await texts(store, "town", "after")
    one = {"save": [OLD], "inner": [OLD], "earlier": [], "without": []}
    after = [NEW] if hour > 1 else [NEW, NEW]
    assert found == (one, one, {"town": [NEW, NEW], "after": after})


async def test_a_branch_corrects_what_it_inherited_and_the_parent_keeps_its_own(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a")])
    await events.branch("save", "town", event("a", 5).time)
    await events.branch("inner", "save", event("a", 5).time)
    await events.branch("bare", "save", event("a", 5).time)
    await events.withdraw("bare", "a")
    for text in (NEW, "The bridge leans."):
        await events.correct("save", event("a", 4, text))
    await events.branch("noon", "save", event("a", 1).time)
    found = await texts(store, "town", "save", "inner", "bare", "noon")
    assert found == {"town": [OLD], "save": ["The bridge leans."], "inner": [OLD], "bare": [], "noon": []}


async def test_only_what_was_told_is_corrected(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a")])
    assert (
        await events.correct("town", event("b")),
        await refusal(events.correct("nowhere", event("a"))),
        await events.get_world("nowhere"),
    ) == (False, (NotFound, None), None)


async def test_nobody_corrects_what_somebody_else_has_changed(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a")])
    read = digest_of_model(KnownEvent(event=event("a"), is_withdrawn=False))
    known = await events.correct("town", event("a", text=NEW), read)
    refused = await refusal(events.correct("town", event("a", text="The bridge leans."), read))
    assert (known, refused, await texts(store, "town")) == (True, (Conflict, None), {"town": [NEW]})


async def test_corrections_at_the_same_time_are_all_kept(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a")])
    for number in range(4):
        await events.branch(f"save{number}", "town", event("a").time)
    corrections: Sequence[Event] = [event("a", text=f"The bridge bears {number} carts.") for number in range(10)]
    calls = [events.correct("town", one) for one in corrections]
    told = [events.add_events(f"save{number}", [event(f"own{number}", 1)]) for number in range(4)]
    await asyncio.gather(*calls, *told)
    earlier = await store.part(EarlierTextStore).list_earlier("town", "event", "a", 20)
    found = len(earlier), await texts(store, *(f"save{n}" for n in range(4)))
    assert found == (10, {f"save{n}": [OLD, OLD] for n in range(4)})
