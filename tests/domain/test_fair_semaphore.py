"""Turns in a semaphore: whose is next, and how long the oldest waiting caller has waited."""

import asyncio

from app.domain.access import Caller, work_for
from app.domain.fair_semaphore import FairSemaphore


async def test_keys_take_turns_and_kinds_within_a_key() -> None:
    places, order = FairSemaphore(1), list[str]()

    async def take(key: str, kind: str) -> None:
        with work_for(Caller(key, frozenset())):
            async with places.hold_place(kind):
                order.append(key + kind)

    async with places.hold_place():
        asked = ["a1", "a1", "a1", "a2", "a2", "b1", "b1"]
        waiting = [asyncio.create_task(take(*one)) for one in asked]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order == ["a1", "b1", "a2", "b1", "a1", "a2", "a1"]
