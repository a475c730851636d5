"""The right reply where no tool fits, or where a request lacks something that a call needs."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from app.envs.tool_calling.tasks.tool_requests import ToolRequest

OPENS: Final = "No tool fits:"
MOST_CHARACTERS: Final = 160
"""Most characters of a refusal: listing everything that could be missing does not count."""
MOST_BESIDE: Final = 1
"""Most words for other things in a refusal: a list of guesses has more."""

INSTRUCTION: Final = (
    "You can call tools. Make exactly the calls that the request needs, with the values that it gives, and leave out "
    "what it does not give. If none of the tools fits the request, or the request lacks something that a call needs, "
    f"make no call: reply with `{OPENS}` followed by one short sentence that says what is missing and what for, and "
    "nothing else."
)

_OPENING: Final = re.compile(r"[\s*_#>`\"'“‘]*no\s+tool\s+fits[*_`\"'”’]*\s*[:.;,!–—-][\s*_`\"'”’]*", re.IGNORECASE)
"""The opening in any case and markup, with another sign than the colon as well."""
_WORD: Final = re.compile(r"\w+")


def write_refusal(request: ToolRequest) -> str:
    """A right refusal for a request that expects no call."""
    purpose = f", for {request.subject[0]}" if request.subject else ""
    return f"{OPENS} what is missing is {request.missing[0] if request.missing else 'a tool for this'}{purpose}."


def is_right_refusal(said: str, request: ToolRequest) -> bool:
    """Whether a reply begins as asked, is short, contains one of the request's words (any word if it has none), one for
    its subject if it has any, and few words that name something else."""
    opening = _OPENING.match(said)
    if opening is None or len(said) > MOST_CHARACTERS:
        return False
    words = _pad_words(said[opening.end() :])
    if not request.missing:
        return words != "  "
    if not _has_any_name(words, request.missing) or (request.subject and not _has_any_name(words, request.subject)):
        return False
    beside = [name for name in map(_normalise_name, request.excluded) if name in words]
    return sum(not any(name != other and name in other for other in beside) for name in beside) <= MOST_BESIDE


def list_absent_names(names: Sequence[str], said: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` that none of these texts contains."""
    words = "\n".join(map(_pad_words, said))
    return tuple(name for name in dict.fromkeys(names) if not _has_any_name(words, [name]))


def _has_any_name(words: str, names: Sequence[str]) -> bool:
    return any(_normalise_name(name) in words for name in names)


@lru_cache(maxsize=4096)
def _normalise_name(name: str) -> str:
    return _pad_words(name)


def _pad_words(text: str) -> str:
    """The words of the text with one space around each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "
