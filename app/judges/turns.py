"""Fair use of the event loop: a thousand small tasks at once do not block everything else."""

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
    """Wraps a few milliseconds of work, or more with `asyncio.sleep(0)` between its parts. The next holder runs in a
    later pass of the loop, after everything else that is ready. Gates and judges take turns separately, so started
    groups finish before many others begin."""
    locks = _turns.setdefault(asyncio.get_running_loop(), defaultdict(asyncio.Lock))
    async with locks[work]:
        yield
        await asyncio.sleep(0)
