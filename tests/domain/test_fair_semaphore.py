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


async def test_the_longest_wait_is_that_of_the_oldest_caller_who_still_waits() -> None:
    """As `program_oldest_seconds` tells it, on which operators are alerted."""
    places = FairSemaphore(1)
    waits = [places.longest_wait]

    async def take() -> None:
        async with places.hold_place("a"):
            pass

    async with places.hold_place("a"):
        waiting, left = asyncio.create_task(take()), asyncio.create_task(take())
        await asyncio.sleep(0)  # both wait now
        await asyncio.sleep(0.05)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        waits.append(places.longest_wait)
    await waiting
    before, meanwhile = waits
    assert (before, meanwhile >= 0.05, places.longest_wait) == (0.0, True, 0.0)
