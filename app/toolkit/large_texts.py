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

WINDOW: Final = 8 * 1024
"""Characters. A slow pattern takes 3 ms for them; an answer of the event loop waits for several windows."""

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


def iterate_words(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """As `pattern.findall(text)`, for a pattern without groups that matches runs of characters of one kind, of any
    length, and else single characters."""
    word = ""
    """The last one of a window, which may go on in the next."""
    for start in range(0, len(text), WINDOW):
        found = pattern.findall(text, start, start + WINDOW)
        if word and not _is_run(pattern, text, start):
            yield word
            word = ""
        if found:
            found[0], word = word + found[0], ""
            word = found.pop()
            yield from found
    if word:
        yield word


def _is_run(pattern: re.Pattern[str], text: str, place: int) -> bool:
    """Whether the characters on both sides are of one match."""
    both = pattern.match(text, place - 1, place + 1)
    return both is not None and both.end() == place + 1


def iterate_lines(text: str) -> Iterator[str]:
    """As `text.replace("\\r\\n", "\\n").split("\\n")`."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end].removesuffix("\r")
        start = end + 1
    yield text[start:]


def iterate_pieces(text: str, safe: re.Pattern[str]) -> Iterator[str]:
    """The text cut before characters that match `safe`, after about a window each, or later where there is none."""
    start = 0
    while len(text) - start > WINDOW:
        cut = next((one.start() for one in _search_windows(safe, text, start + WINDOW)), len(text))
        yield text[start:cut]
        start = cut
    yield text[start:]


def _search_windows(pattern: re.Pattern[str], text: str, start: int) -> Iterator[re.Match[str]]:
    for position in range(start, len(text), WINDOW):
        if (match := pattern.search(text, position, position + WINDOW)) is not None:
            yield match
