"""Character sheets in the store, the editions they make up, and what epochs began with."""

import asyncio

import pytest
from sqlalchemy import func, select

from app.main.store import Store
from app.store.database import open_reader
from app.store.tables import sheets
from tests.support.store_cases import stream

ODD = '{"name":"\\u0000 \\ud800"}'
HOB, OTTOLINE, EDITED = '{"id":"hob"}', '{"id":"ottoline"}', '{"id":"hob","mood":"sour"}'


async def test_an_edition_is_read_as_it_was_kept(store: Store) -> None:
    await store.sheets.keep("npc_arena", "first", [OTTOLINE, HOB, ODD, HOB])
    await store.sheets.keep("npc_arena", "second", [EDITED, OTTOLINE])
    await store.sheets.keep("npc_arena", "none", [])
    asked = (("npc_arena", "first"), ("npc_arena", "second"), ("npc_arena", "none"))
    assert [await store.sheets.get(*one) for one in asked] == [(OTTOLINE, HOB, ODD, HOB), (EDITED, OTTOLINE), ()]


async def test_what_was_never_kept_is_not_found(store: Store) -> None:
    await store.sheets.keep("npc_arena", "first", [HOB])
    asked = (("npc_arena", "second"), ("other", "first"), ("npc_arena", "\x00"), ("\ud800", "first"))
    assert [await store.sheets.get(*one) for one in asked] == [None, None, None, None]


async def test_a_known_edition_is_left_as_it_is_and_a_sheet_is_stored_once(store: Store, store_url: str) -> None:
    again = [store.sheets.keep("npc_arena", "first", [HOB, OTTOLINE]) for _ in range(3)]
    await asyncio.gather(*again, store.sheets.keep("npc_arena", "second", [HOB]))
    await store.sheets.keep("npc_arena", "first", [EDITED])
    kept = await store.sheets.get("npc_arena", "first")
    engine = open_reader(store_url, connections=1)
    with engine.connect() as connection:
        count = connection.execute(select(func.count()).select_from(sheets)).scalar_one()
    engine.dispose()
    assert (kept, count) == ((HOB, OTTOLINE), 3)


async def test_an_epoch_stays_with_what_it_began_with(store: Store) -> None:
    assert (
        await store.sheets.begin_epochs(stream(), [0, 1, 1], "first"),
        await store.sheets.begin_epochs(stream(), [1, 2], "second"),
        await store.sheets.begin_epochs(stream(digest="other"), [1], "second"),
        await store.sheets.begin_epochs(stream("other run"), [1], "third"),
        await store.sheets.begin_epochs(stream(), [], "fourth"),
    ) == ({0: "first", 1: "first"}, {1: "first", 2: "second"}, {1: "second"}, {1: "third"}, {})


@pytest.mark.dialects
async def test_replicas_that_begin_an_epoch_at_once_agree(store: Store) -> None:
    begun = await asyncio.gather(*(store.sheets.begin_epochs(stream(), [0], f"d{n}") for n in range(4)))
    assert {one[0] for one in begun} == {"d0"}
