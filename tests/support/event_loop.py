"""One event loop for many short calls."""

import asyncio
import atexit
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _runner() -> asyncio.Runner:
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Does what `asyncio.run` does, which makes a loop for each call, and the threads that the call uses: of thousands
    of scores that was most of the time."""
    return _runner().run(coroutine)
