"""Who shares the commit after one: those whom it answered, and who came meanwhile."""

import asyncio

import pytest

from app.store import writer as writing
from app.store.database import Database
from tests.store.test_writer import Gate, put, with_database


def test_those_who_are_answered_share_the_next_commit_with_who_came_meanwhile(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PATIENCE_SECONDS", 10.0)
    seconds: list[float] = []

    async def come_again(first: "asyncio.Future[None]", database: Database) -> str:
        await first
        for _ in range(50):  # turns of the event loop in which nothing comes
            await asyncio.sleep(0)
        return await database.write(put("again"))

    async def scenario(database: Database) -> object:
        gate = Gate()
        first = await gate.shut(database)
        meanwhile = asyncio.ensure_future(database.write(put("meanwhile")))
        await asyncio.sleep(0)
        gate.open()
        return await asyncio.gather(come_again(first, database), meanwhile)

    assert (with_database(store_url, scenario, seconds.append), len(seconds)) == (["again", "meanwhile"], 2)


def test_who_came_meanwhile_does_not_wait_for_those_who_stay_away(store_url: str) -> None:
    async def scenario(database: Database) -> object:
        gate = Gate()
        await gate.shut(database)
        meanwhile = asyncio.ensure_future(database.write(put("meanwhile")))
        await asyncio.sleep(0)
        gate.open()
        return await asyncio.wait_for(meanwhile, 10)

    assert with_database(store_url, scenario) == "meanwhile"
