"""Taking turns on the event loop, so that a thousand small tasks at once do not stop everything else."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal
from weakref import WeakKeyDictionary

Work = Literal["gates", "judges"]

_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, defaultdict[Work, asyncio.Lock]]" = WeakKeyDictionary()


@asynccontextmanager
async def turn(work: Work = "judges") -> AsyncIterator[None]:
    """Around a few milliseconds of work, or more with `asyncio.sleep(0)` between its parts. Whoever else wants a turn
    for such work gets one in a later pass of the loop, after everything that became ready meanwhile. A turn at the
    gates holds up no judge: groups already under way are finished before many others are begun."""
    locks = _turns.setdefault(asyncio.get_running_loop(), defaultdict(asyncio.Lock))
    async with locks[work]:
        yield
        await asyncio.sleep(0)
