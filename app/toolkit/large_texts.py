"""Work on large texts that lets others in: in one thread of its own, and in windows.

Python runs one thread at a time. Several that work on large texts would leave the event loop one turn among many, and a
single search through 20 MB lets nobody in before its end."""

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Literal, ParamSpec, TypeVar

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")
Work = Literal["answers", "judges"]

WINDOW: Final = 64 * 1024

_THREADS: Final[dict[Work, ThreadPoolExecutor]] = {
    "answers": ThreadPoolExecutor(1, "large-answers"),
    "judges": ThreadPoolExecutor(1, "large-judged"),
}


async def run_in_turn(
    work: Work, function: Callable[ArgumentsT, ResultT], *arguments: ArgumentsT.args, **named: ArgumentsT.kwargs
) -> ResultT:
    """Calls the function in the thread of that work, after what was asked of it before."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREADS[work], partial(function, *arguments, **named))


def iterate_matches(pattern: re.Pattern[str], text: str, longest: int) -> Iterator[re.Match[str]]:
    """As `pattern.finditer(text)`, for a pattern that matches at most `longest` characters and looks no further."""
    position = 0
    while position < len(text):
        end = position + WINDOW
        match = pattern.search(text, position, end + longest)
        if match is None or match.start() >= end:
            position = end
        else:
            yield match
            position = max(match.end(), match.start() + 1)
