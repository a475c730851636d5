"""Character sheets in the store, the editions they make up, and what epochs began with."""

import asyncio

import pytest
from sqlalchemy import func, select

from app.main.store import Store
from app.store.database import open_reader
from app.store.tables import sheets
from tests.support.store_cases import stream, using

ODD = '{"name":"\\u0000 \\ud800"}'
HOB, OTTOLINE, EDITED = '{"id":"hob"}', '{"id":"ottoline"}', '{"id":"hob","mood":"sour"}'


def test_an_edition_is_read_as_it_was_kept(store_url: str) -> None:
    async def scenario(store: Store) -> object:
        await store.sheets.keep("npc_arena", "first", [OTTOLINE, HOB, ODD, HOB])
        await store.sheets.keep("npc_arena", "second", [EDITED, OTTOLINE])
        await store.sheets.keep("npc_arena", "none", [])
        asked = (("npc_arena", "first"), ("npc_arena", "second"), ("npc_arena", "none"))
        return [await store.sheets.get(*one) for one in asked]

    assert using(store_url, scenario) == [(OTTOLINE, HOB, ODD, HOB), (EDITED, OTTOLINE), ()]


def test_what_was_never_kept_is_not_found(store_url: str) -> None:
    async def scenario(store: Store) -> object:
        await store.sheets.keep("npc_arena", "first", [HOB])
        asked = (("npc_arena", "second"), ("other", "first"), ("npc_arena", "\x00"), ("\ud800", "first"))
        return [await store.sheets.get(*one) for one in asked]

    assert using(store_url, scenario) == [None, None, None, None]


def test_a_known_edition_is_left_as_it_is_and_a_sheet_is_stored_once(store_url: str) -> None:
    async def scenario(store: Store) -> object:
        again = [store.sheets.keep("npc_arena", "first", [HOB, OTTOLINE]) for _ in range(3)]
        await asyncio.gather(*again, store.sheets.keep("npc_arena", "second", [HOB]))
        await store.sheets.keep("npc_arena", "first", [EDITED])
        return await store.sheets.get("npc_arena", "first")

    kept = using(store_url, scenario)
    engine = open_reader(store_url, connections=1)
    with engine.connect() as connection:
        count = connection.execute(select(func.count()).select_from(sheets)).scalar_one()
    engine.dispose()
    assert (kept, count) == ((HOB, OTTOLINE), 3)


def test_an_epoch_stays_with_what_it_began_with(store_url: str) -> None:
    async def scenario(store: Store) -> object:
        return (
            await store.sheets.begin_epochs(stream(), [0, 1, 1], "first"),
            await store.sheets.begin_epochs(stream(), [1, 2], "second"),
            await store.sheets.begin_epochs(stream(digest="other"), [1], "second"),
            await store.sheets.begin_epochs(stream("other run"), [1], "third"),
            await store.sheets.begin_epochs(stream(), [], "fourth"),
        )

    assert using(store_url, scenario) == (
        {0: "first", 1: "first"},
        {1: "first", 2: "second"},
        {1: "second"},
        {1: "third"},
        {},
    )


@pytest.mark.dialects
def test_replicas_that_begin_an_epoch_at_once_agree(store_url: str) -> None:
    async def scenario(store: Store) -> object:
        begun = await asyncio.gather(*(store.sheets.begin_epochs(stream(), [0], f"d{n}") for n in range(4)))
        return {one[0] for one in begun}

    assert using(store_url, scenario) == {"d0"}
