"""Compilation of regular expression keys."""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final

from app.toolkit.safe_regex import Pattern, compile_pattern

MOST_PATTERNS: Final = 1000

_SLASHED: Final = re.compile(r"/(.+)/([a-z]*)", re.DOTALL)
_FLAGS: Final = frozenset("ims")
_WITHOUT_MEANING: Final = frozenset("dguvy")
"""JavaScript flags without effect on matching, or always on in RE2."""


def compile_key(key: str) -> Pattern:
    """Compiles a bare pattern or `/pattern/flags`; case-sensitive by default. ValueError with the reason for a pattern
    that RE2 does not support."""
    slashed = _SLASHED.fullmatch(key)
    if slashed is None:
        return compile_pattern(key)
    pattern, flags = slashed.groups()
    unknown = sorted(set(flags) - _FLAGS - _WITHOUT_MEANING)
    if unknown:
        raise ValueError(f"a pattern has no flag {unknown[0]!r}")
    known = "".join(sorted(_FLAGS.intersection(flags)))
    return compile_pattern(f"(?{known}){pattern}" if known else pattern)


def compile_usable_keys(keys: Iterable[str]) -> dict[str, Pattern]:
    """Valid patterns among the first MOST_PATTERNS keys."""
    made = ((key, _compile_if_usable(key)) for key in islice(keys, MOST_PATTERNS))
    return {key: pattern for key, pattern in made if pattern is not None}


@lru_cache(maxsize=4 * MOST_PATTERNS)
def _compile_if_usable(key: str) -> Pattern | None:
    try:
        return compile_key(key)
    except ValueError:
        return None
