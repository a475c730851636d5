"""Untrusted regular expressions, run by RE2 in linear time."""

from itertools import islice
from typing import Final

import re2

MOST_CHARACTERS = 1000
MOST_STEPS = 10_000_000
"""Maximum of program size times bytes of text: about a tenth of a second at worst."""
_MEMORY = 256 * 1024

_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = _MEMORY
_OPTIONS.log_errors = False

_NOT_IN_RE2 = {
    "invalid perl operator": "it has no look-around, no back-references by name and no atomic groups",
    "invalid escape sequence": "it has no such escape, and no back-references",
}


class Pattern:
    """A compiled pattern, created by `compiled`."""

    def __init__(self, expression: "re2._Regexp") -> None:
        self._expression = expression
        self._size: int = max(1, expression.programsize)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches. ValueError for a text too long for this pattern."""
        return self._expression.fullmatch(self._require_short(text)) is not None

    def find(self, text: str) -> tuple[int, int] | None:
        """Start and end of the first match, in characters. ValueError for a text too long for this pattern."""
        found = self._expression.search(self._require_short(text))
        return None if found is None else found.span()

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
    said = error.args[0]
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    kind = words.partition(":")[0]
    return f"{words}; {_NOT_IN_RE2[kind]}" if kind in _NOT_IN_RE2 else words
