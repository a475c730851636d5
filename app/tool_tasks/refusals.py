"""The right reply where no tool fits, or where a request lacks what a call needs."""

import re
from typing import Final

from app.tool_tasks.requests import ToolRequest

OPENS: Final = "No tool fits:"
MOST_CHARACTERS: Final = 300
"""Of a refusal. Whoever lists all that could be missing has not said what is."""

INSTRUCTION: Final = (
    "You can call tools. Make exactly the calls that the request needs, with the values that it gives, and leave out "
    "what it does not give. If none of the tools fits the request, or the request lacks something that a call needs, "
    f"make no call: reply with `{OPENS}` followed by one sentence that says what is missing."
)

_WORD: Final = re.compile(r"\w+")


def refusal(request: ToolRequest) -> str:
    """One that is right for `request`, which expects no call."""
    return f"{OPENS} what is missing is {request.missing[0] if request.missing else 'a tool for this'}."


def names_what_is_missing(said: str, request: ToolRequest) -> bool:
    """Whether a reply opens as asked, is short, and has one of the request's words, or any word where it has none."""
    if not said.startswith(OPENS) or len(said) > MOST_CHARACTERS:
        return False
    words = _WORD.findall(said.removeprefix(OPENS).casefold())
    if not request.missing:
        return bool(words)
    plain = f" {' '.join(words)} "
    return any(f" {' '.join(_WORD.findall(name.casefold()))} " in plain for name in request.missing)
