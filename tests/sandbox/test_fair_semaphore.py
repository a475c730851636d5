"""Turns in a semaphore: how long the oldest waiting caller has waited."""

import asyncio

from app.sandbox.fair_semaphore import FairSemaphore


def test_the_longest_wait_is_that_of_the_oldest_caller_who_still_waits() -> None:
    async def play() -> list[float]:
        places = FairSemaphore(1)
        waits = [places.longest_wait]

        async def take() -> None:
            async with places.hold_place("a"):
                pass

        async with places.hold_place("a"):
            waiting = asyncio.create_task(take())
            left = asyncio.create_task(take())
            await asyncio.sleep(0.05)
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)
            waits.append(places.longest_wait)
        await waiting
        return [*waits, places.longest_wait]

    before, meanwhile, after = asyncio.run(play())
    assert (before, meanwhile >= 0.05, after) == (0.0, True, 0.0)
