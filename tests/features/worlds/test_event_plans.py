"""Every question about worlds finds its rows through an index, however many events there are."""

from collections.abc import Awaitable, Mapping
from datetime import timedelta

import pytest
from sqlalchemy import insert

from app.domain.worlds import EventSearch, Lorebook, extract_terms
from app.features.worlds.store import EventStore
from app.features.worlds.store_worlds import EarlierTextStore, LorebookStore, worlds
from app.main.store import Store
from tests.features.worlds.test_store import NOON
from tests.features.worlds.test_store import event as told
from tests.store.test_plans import Statement, fill_and_analyze, indexes_of, statements_made
from tests.support.store_cases import using

pytestmark = pytest.mark.dialects

WORLDS = {"uq_worlds_name", "pk_worlds"}
WITHDRAWALS = {"pk_event_withdrawals", "ix_event_withdrawals_sequence"}
"""Either finds few rows."""

SEGMENTS = {"ix_event_segments_world", "pk_event_segments", "pk_event_segment_pages"}

STANDING = {*WORLDS, "ix_events_standing", *WITHDRAWALS, "uq_events_world_event_id"}
WRITTEN = {*WORLDS, "uq_events_world_event_id", "pk_events", *SEGMENTS}
EARLIER = "pk_earlier_texts"
FOUND = {*WRITTEN, "pk_event_successions", *WITHDRAWALS}

EXPECTED: Mapping[str, set[str]] = {
    "tell": {*WORLDS, *SEGMENTS, "uq_events_world_event_id"},
    "search": FOUND,
    "search, newest moment": {*FOUND, "ix_events_standing"},
    "newest": STANDING,
    "worlds": {*STANDING, "SCAN uq_worlds_name"},
    "withdraw": {*WRITTEN, EARLIER},
    "close": STANDING,
    "reopen": STANDING,
    "correct": {*FOUND, "ix_worlds_parent", EARLIER},
    "earlier": {*WORLDS, EARLIER},
    "lorebooks": {*WORLDS, "pk_lorebooks"},
}

READ_ALREADY = {"SCAN pk_k", "SCAN pk_line", "SCAN pk_json_each"}
"""Lists that a statement was given, and what it has found so far."""

ALIASES = {"pk_parents": "pk_worlds", "pk_p": "pk_event_segment_pages"}
"""As SQLite calls them."""


async def statements_of(store: Store, url: str) -> dict[str, list[Statement]]:
    books = store.part(LorebookStore)
    for number in range(20):
        names = (f"person-{number}",)
        crowd = [
            told(f"e{n}", n, f"Word{n % 50} of the bridge.", visibility="public" if n % 2 else names)
            for n in range(100)
        ]
        await store.part(EventStore).add_events(f"w{number}", [*crowd, told("news", 3, supersedes="e1")])
        await store.part(EventStore).branch(f"v{number}", f"w{number}", NOON + timedelta(hours=50))
        await store.part(EventStore).add_events(f"v{number}", [told(f"own{n}", n) for n in range(50)])
        await store.part(EventStore).withdraw(f"v{number}", "e2")
        await books.put(f"w{number}", "book", Lorebook())
    filler = {"depth": 0, "events": 0, "created_at": 0}
    rows = [{"name": f"filler-{number}", **filler} for number in range(4000)]
    fill_and_analyze(url, lambda connection: connection.execute(insert(worlds), rows))
    asked = EventSearch("v3", NOON + timedelta(hours=60), frozenset({"person-3"}), extract_terms("word3 of word4"))
    calls: dict[str, Awaitable[object]] = {
        "tell": store.part(EventStore).add_events("v3", [told("fresh")]),
        "search": store.part(EventStore).search(asked),
        "search, newest moment": store.part(EventStore).search(EventSearch("v3", None, asked.names, asked.terms)),
        "newest": store.part(EventStore).list_newest("v3", 10, (NOON, "e5")),
        "worlds": store.part(EventStore).list_worlds(10, "v5"),
        "withdraw": store.part(EventStore).withdraw("v3", "own1"),
        "correct": store.part(EventStore).correct("w3", told("news", 4, supersedes="e1")),
        "close": store.part(EventStore).close("v7"),
        "reopen": store.part(EventStore).reopen("v7"),
        "earlier": store.part(EarlierTextStore).list_earlier("w3", "event", "e2", 10, 900),
        "lorebooks": books.list_lorebooks("v3"),
    }
    return await statements_made(calls)


def test_hot_queries_use_their_indexes(store_url: str) -> None:
    made = using(store_url, lambda store: statements_of(store, store_url))
    found = {
        name: {ALIASES.get(index, index) for index in indexes - READ_ALREADY}
        for name, indexes in indexes_of(store_url, made).items()
    }
    assert {name: indexes - EXPECTED[name] for name, indexes in found.items()} == {name: set() for name in EXPECTED}
