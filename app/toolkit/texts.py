"""Untrusted texts: patterns of strangers over them, work on large ones that lets others in, and their display.

Patterns run in RE2, whose time is linear. Python runs one thread at a time, so several that work on large texts would
leave the event loop one turn among many, and a single search through 20 MB lets nobody in before its end. So large
texts are worked on in a few threads for each kind of work, and are searched in windows.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Final, Literal, ParamSpec, TypeVar

import re2
from markupsafe import Markup
from pydantic import JsonValue

# Untrusted regular expressions

MOST_CHARACTERS = 1000
MOST_STEPS = 10_000_000
"""Maximum of program size times bytes of text: about a tenth of a second at worst."""
_MEMORY = 256 * 1024
"""Bytes of one pattern, compiled: RE2 refuses what needs more, such as nested repetitions."""

_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = _MEMORY
_OPTIONS.log_errors = False

_NOT_IN_RE2 = {
    "invalid perl operator": "it has no look-around, no back-references by name and no atomic groups",
    "invalid escape sequence": "it has no such escape, and no back-references",
}


class Pattern:
    """A compiled pattern, created by `compile_pattern`."""

    def __init__(self, expression: "re2._Regexp") -> None:
        self._expression = expression
        self._size: int = max(1, expression.programsize)

    def __sizeof__(self) -> int:
        """For caches, since Python sees nothing of what RE2 holds: some 100 bytes an instruction, once it was used."""
        return super().__sizeof__() + 100 * self._size

    def matches(self, text: str) -> bool:
        """Whether the whole text matches. ValueError for a text too long for this pattern."""
        return self._expression.fullmatch(self._require_short(text)) is not None

    def find(self, text: str) -> tuple[int, int] | None:
        """Start and end of the first match, in characters. ValueError for a text too long for this pattern."""
        match = self._expression.search(self._require_short(text))
        return None if match is None else match.span()

    def count(self, text: str, most: int) -> int:
        """Number of matches that do not overlap, up to `most`. ValueError for a text too long for this pattern."""
        return sum(1 for _ in islice(self._expression.finditer(self._require_short(text)), most))

    def steps(self, text: str) -> int:
        """Maximum steps on this text."""
        return len(text.encode("utf-8")) * self._size

    def _require_short(self, text: str) -> str:
        if self.steps(text) > MOST_STEPS:
            size = len(text.encode("utf-8"))
            raise ValueError(f"the pattern may take more than {MOST_STEPS:,} steps over {size:,} bytes")
        return text


def compile_pattern(pattern: str) -> Pattern:
    """Compiles a pattern. ValueError with the reason for invalid or too large patterns."""
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(f"a pattern has at most {MOST_CHARACTERS} characters, this one {len(pattern)}")
    try:
        return Pattern(re2.compile(pattern, _OPTIONS))
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate is not text") from None
    except re2.error as error:
        raise ValueError(f"RE2 cannot use this pattern: {_describe_error(error)}") from None


def _describe_error(error: Exception) -> str:
    reason = error.args[0]
    words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    kind = words.partition(":")[0]
    return f"{words}; {_NOT_IN_RE2[kind]}" if kind in _NOT_IN_RE2 else words


# Work on large texts that lets others in

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")
Work = Literal["answers", "judges", "bodies", "exports", "authors"]

WINDOW: Final = 8 * 1024
"""Characters. A slow pattern takes 3 ms for them; an answer of the event loop waits for several windows."""


class _Threads(Executor):
    """Threads that an end of the process does not wait for, as it would for those of the standard library: what they
    work on may take long, and a thread cannot be ended."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._started = 0
        self._idle = Semaphore(0)
        """Counts threads that wait, as the standard library does."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Called by the event loop, which is one thread."""
        future: Future[Any] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            Thread(target=self._serve, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            future, call = self._calls.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except StopIteration as ended:  # itself it can be in no future of asyncio: whoever waits would for ever
                    future.set_exception(RuntimeError(f"an iterator had ended: {ended!r}"))
                except BaseException as error:  # told to whoever waits
                    future.set_exception(error)
            del future, call  # what they hold is not kept until the next call
            self._idle.release()


_THREADS: Final[Mapping[Work, Executor]] = {
    "answers": _Threads(1, "large-answers"),
    "judges": _Threads(1, "large-judged"),
    "bodies": _Threads(2, "large-bodies"),
    "exports": _Threads(2, "exports"),
    "authors": _Threads(2, "authors"),
}
"""Of each kind its own, so that slow work of one takes the threads of no other, and none of those that all share."""


async def run_in_turn(
    work: Work, function: Callable[ArgumentsT, ResultT], *arguments: ArgumentsT.args, **named: ArgumentsT.kwargs
) -> ResultT:
    """Calls the function in a thread of that work, after what was asked of it before."""
    loop = asyncio.get_running_loop()
    call = partial(copy_context().run, partial(function, *arguments, **named))
    return await loop.run_in_executor(_THREADS[work], call)


def iterate_words(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """As `pattern.findall(text)`, for a pattern without groups that matches runs of characters of one kind, of any
    length, and else single characters."""
    word = ""
    """The last one of a window, which may go on in the next."""
    for start in range(0, len(text), WINDOW):
        words = pattern.findall(text, start, start + WINDOW)
        if word and not _is_run(pattern, text, start):
            yield word
            word = ""
        if words:
            words[0], word = word + words[0], ""
            word = words.pop()
            yield from words
    if word:
        yield word


def _is_run(pattern: re.Pattern[str], text: str, position: int) -> bool:
    """Whether the characters on both sides are of one match."""
    both = pattern.match(text, position - 1, position + 1)
    return both is not None and both.end() == position + 1


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


# Display of untrusted texts and numbers; HTML is escaped by the templates

PALETTE = Path(__file__).with_name("palette.css").read_text(encoding="utf-8")
"""Colours, light and dark, and the ground of every page: the viewer's and the reports'."""
SHOWN_AT_ONCE = 1_500
SHOWN_AT_ALL = 200_000
"""Characters; the JSON of a group has the rest."""

_SIGNS = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)
"""Control characters, direction overrides, fillers, tags, lone surrogates and the like. Joiners (U+200C, U+200D) and
variation selectors are left alone: scripts and emoji need them."""
_FLAG = "\U0001f3f4"
_INVISIBLE = re.compile(_SIGNS)
_INVISIBLE_OR_FLAG = re.compile(f"{_FLAG}[\U000e0030-\U000e007a]{{3,6}}\U000e007f|{_SIGNS}")
"""Flags of regions consist of a black one and tags. To look for them takes five times as long."""


@dataclass(frozen=True)
class Excerpt:
    """`head` is shown at once, `rest` on demand. `length`: characters of the original; `more`: of them in `rest`;
    `omitted`: in neither."""

    head: str
    rest: str
    length: int
    more: int
    omitted: int


def escape_invisible(text: str) -> str:
    """Replaces invisible characters by their code, such as `⟨U+202E⟩`."""
    if text.isascii() and text.isprintable():  # as most names are
        return text
    pattern = _INVISIBLE_OR_FLAG if _FLAG in text else _INVISIBLE
    return pattern.sub(lambda match: match[0] if len(match[0]) > 1 else f"⟨U+{ord(match[0]):04X}⟩", text)


def finalize(value: object) -> object:
    """For Jinja: makes invisible characters visible in every value of a page."""
    return escape_invisible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def cut_excerpt(text: str, at_once: int = SHOWN_AT_ONCE) -> Excerpt:
    """Cuts at the end of a line or word where possible."""
    shown = text[:SHOWN_AT_ALL]
    cut = len(shown) if len(shown) <= at_once + at_once // 4 else _find_cut(shown, at_once)
    return Excerpt(
        escape_invisible(shown[:cut]),
        escape_invisible(shown[cut:]),
        len(text),
        len(shown) - cut,
        len(text) - len(shown),
    )


def _find_cut(text: str, limit: int) -> int:
    for separator in ("\n", " "):
        position = text.rfind(separator, limit // 2, limit)
        if position > 0:
            return position + 1
    return limit


def as_json(value: Mapping[str, JsonValue] | JsonValue) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def format_number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def format_percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def format_p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_bytes(count: float) -> str:
    """In units of a thousand, with three figures."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def format_time(time: datetime | None) -> str:
    """Date and time to the second, in its own zone; empty for None."""
    return "" if time is None else time.replace(tzinfo=None).isoformat(" ", "seconds")


def format_age(time: datetime, now: datetime) -> str:
    """How long ago it was, in the largest unit; after two months, and where it is to come, its date."""
    seconds = (now - time).total_seconds()
    if not -60 <= seconds < 60 * 86_400:
        return f"{time:%Y-%m-%d}"
    for length, unit in ((86_400, "day"), (3_600, "h"), (60, "min")):
        if (count := int(seconds // length)) > 0:
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''} ago"
    return "just now"


def format_signed(value: float, digits: int = 2) -> str:
    """With a real minus sign; `0.00` has none."""
    rounded = f"{abs(value):.{digits}f}"
    sign = "" if float(rounded) == 0 else "+" if value > 0 else "−"
    return sign + rounded


def scale_heat(value: float) -> int:
    """Colour class 0 to 10 of a `value` in [0, 1]."""
    return max(0, min(10, round(value * 10)))
