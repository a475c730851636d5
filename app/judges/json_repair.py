"""Reads JSON that a model wrote: without trailing commas, and telling which names an object has twice."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
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


class _DuplicateKey:
    """Marks the value of a duplicate key."""


_DUPLICATE: Final = _DuplicateKey()


def _build_object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        found |= {name: _DUPLICATE for name in found if counts[name] > 1}
    return found


DECODER: Final = json.JSONDecoder(object_pairs_hook=_build_object)


def list_duplicates(found: Mapping[str, object]) -> list[str]:
    """The names that occur more than once in an object that DECODER read."""
    return [name for name, value in found.items() if value is _DUPLICATE]
