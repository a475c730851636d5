"""Validation of lorebooks before storage."""

from collections.abc import Iterator

from app.characters.lorebooks.key_patterns import MOST_PATTERNS, compile_key
from app.domain.errors import InvalidRequest
from app.domain.lorebooks import Lorebook


def refuse_unusable(book: Lorebook) -> None:
    """InvalidRequest naming the field: a pattern that RE2 cannot use, too many patterns, an id twice."""
    seen: set[str] = set()
    for place, entry in enumerate(book.entries):
        if entry.id in seen:
            raise InvalidRequest(f"the id {entry.id!r} occurs more than once", field=f"entries[{place}].id")
        seen.add(entry.id)
    for before, (field, pattern) in enumerate(_iter_patterns(book)):
        if before == MOST_PATTERNS:
            raise InvalidRequest(f"a lorebook has at most {MOST_PATTERNS} keys that are patterns", field=field)
        try:
            compile_key(pattern)
        except ValueError as error:
            raise InvalidRequest(str(error), field=field) from None


def _iter_patterns(book: Lorebook) -> Iterator[tuple[str, str]]:
    """Patterns with their fields."""
    for place, entry in enumerate(book.entries):
        if entry.regex:
            for name, keys in (("keys", entry.keys), ("secondary_keys", entry.secondary_keys)):
                for number, key in enumerate(keys):
                    yield f"entries[{place}].{name}[{number}]", key
