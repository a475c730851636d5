"""One event loop for many short calls, and what is closed at the end of a call."""

import asyncio
import atexit
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    async def close(self) -> object: ...


T = TypeVar("T")
ClosableT = TypeVar("ClosableT", bound=Closable)


@asynccontextmanager
async def closed_after(resource: ClosableT) -> AsyncIterator[ClosableT]:
    """As `contextlib.aclosing`, for what has `close`."""
    try:
        yield resource
    finally:
        await resource.close()


@cache
def _runner() -> asyncio.Runner:
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Does what `asyncio.run` does, which makes a loop for each call, and the threads that the call uses: of thousands
    of scores that was most of the time."""
    return _runner().run(coroutine)
