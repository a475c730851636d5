"""Taking turns on the event loop, so that a thousand small tasks at once do not stop everything else."""

import asyncio
from weakref import WeakKeyDictionary

_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()


def turn() -> asyncio.Lock:
    """To be held around a few milliseconds of work without an `await` in it: whoever else wants a turn gets one in a
    later pass of the loop, after everything that became ready meanwhile."""
    loop = asyncio.get_running_loop()
    lock = _turns.get(loop)
    if lock is None:
        lock = _turns[loop] = asyncio.Lock()
    return lock
