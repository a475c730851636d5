"""The right reply where no tool fits, or where a request lacks something that a call needs."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from app.envs.tool_calling.tasks.requests import ToolRequest

OPENS: Final = "No tool fits:"
MOST_CHARACTERS: Final = 160
"""Most characters of a refusal: listing everything that could be missing does not count."""
MOST_BESIDE: Final = 2
"""Most words for other things in a refusal: a list of guesses has more."""

INSTRUCTION: Final = (
    "You can call tools. Make exactly the calls that the request needs, with the values that it gives, and leave out "
    "what it does not give. If none of the tools fits the request, or the request lacks something that a call needs, "
    f"make no call: reply with `{OPENS}` followed by one short sentence that says what is missing, and nothing else."
)

_WORD: Final = re.compile(r"\w+")


def refusal(request: ToolRequest) -> str:
    """A right refusal for a request that expects no call."""
    return f"{OPENS} what is missing is {request.missing[0] if request.missing else 'a tool for this'}."


def names_what_is_missing(said: str, request: ToolRequest) -> bool:
    """Whether a reply begins as asked, is short, contains one of the request's words (any word if it has none), and few
    words that name something else."""
    if not said.startswith(OPENS) or len(said) > MOST_CHARACTERS:
        return False
    words = _plain(said.removeprefix(OPENS))
    if not request.missing:
        return words != "  "
    if not _has_one(words, request.missing):
        return False
    beside = [name for name in map(_plain_once, request.excluded) if name in words]
    return sum(not any(name != other and name in other for other in beside) for name in beside) <= MOST_BESIDE


def elsewhere(names: Sequence[str], said: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` that none of these texts contains."""
    words = "\n".join(map(_plain, said))
    return tuple(name for name in dict.fromkeys(names) if not _has_one(words, [name]))


def _has_one(words: str, names: Sequence[str]) -> bool:
    return any(_plain_once(name) in words for name in names)


@lru_cache(maxsize=4096)
def _plain_once(name: str) -> str:
    return _plain(name)


def _plain(text: str) -> str:
    """The words of the text with one space around each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "
