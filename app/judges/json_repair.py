"""Repairs the one mistake in JSON that leaves no doubt about what was meant: a comma before a closing bracket."""

import re
from typing import Final

_TRAILING_COMMA: Final = re.compile(r",[ \t\r\n]*[}\]]?\Z")
_SYNTAX: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{}\[\]]|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
"""Strings, brackets, and commas before a closing bracket."""
_LONGEST_GAP: Final = 200
"""Blank characters between a comma and the bracket behind it."""


def is_trailing_comma(text: str, position: int) -> bool:
    """Whether a comma before a closing bracket is why `text` could not be decoded at `position`."""
    return _TRAILING_COMMA.search(text, max(0, position - _LONGEST_GAP), position + 1) is not None


def drop_trailing_commas(text: str, start: int) -> tuple[str, int]:
    """The object that begins at `start`, without commas before closing brackets, and where it ends."""
    parts: list[str] = []
    depth, done = 0, start
    for found in _SYNTAX.finditer(text, start):
        sign = found.group()
        depth += (sign in "{[") - (sign in "}]")
        if sign == ",":
            parts.append(text[done : found.start()])
            done = found.end()
        elif depth == 0 and sign in "}]":
            return "".join((*parts, text[done : found.end()])), found.end()
    return "", len(text)
