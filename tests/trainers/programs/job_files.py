"""A job is read from the file named first, and what is made of it is written to the file named second."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any


async def in_turns(play: Callable[[Any], Awaitable[Any]], groups: Iterable[Any], at_once: int = 4) -> list[Any]:
    """What `play` makes of each."""
    slots = asyncio.Semaphore(at_once)

    async def play_one(group: Any) -> Any:
        async with slots:
            return await play(group)

    return await asyncio.gather(*map(play_one, groups))


def answer(make: Callable[[Any], Any]) -> None:
    """`make` may be a coroutine function."""
    source, target = map(Path, sys.argv[-2:])
    made = make(json.loads(source.read_text(encoding="utf-8")))
    told = asyncio.run(made) if asyncio.iscoroutine(made) else made
    target.write_text(json.dumps(told), encoding="utf-8")
