"""Work that one replica does at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from app.ports.retention import RetentionStore

TURN_SECONDS: Final = 120.0
"""The turn of a replica that has died is free after so long."""

WorkT = TypeVar("WorkT")


async def work_in_turn(
    store: RetentionStore, job: str, holder: str, work: Callable[[], Awaitable[WorkT]], *, every_seconds: float
) -> WorkT | None:
    """None when it is not time, or another replica has the turn."""

    async def take_turn() -> bool:
        return await store.take_turn(job, holder, every_seconds=every_seconds, seconds=TURN_SECONDS)

    if not await take_turn():
        return None
    working = asyncio.ensure_future(work())
    try:
        while not (await asyncio.wait({working}, timeout=TURN_SECONDS / 3))[0]:
            await take_turn()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    await store.end_turn(job, holder)
    return working.result()
