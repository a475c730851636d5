"""Digests that identify tasks, texts, rules and judgements."""

import hashlib
import json
from collections.abc import Iterator
from typing import Final

from pydantic import BaseModel, JsonValue
from pydantic_core import PydanticSerializationError, to_json

_PIECE: Final = 256 * 1024
"""Characters, written in a few milliseconds."""

_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: object) -> str:
    """One text per JSON value: sorted keys, no spaces, ASCII only. TypeError or ValueError for what is not JSON."""
    return _CANONICAL.encode(value)


def digest_of_text(text: str) -> str:
    """32 hexadecimal digits of SHA-256."""
    return begin_digest(text).hexdigest()[:32]


def begin_digest(text: str) -> "hashlib._Hash":
    """For texts that begin alike, with `finish_digest`."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass"))


def finish_digest(begun: "hashlib._Hash", rest: str) -> str:
    """As `digest_of_text` of both together."""
    whole = begun.copy()
    whole.update(rest.encode("utf-8", "surrogatepass"))
    return whole.hexdigest()[:32]


def digest(value: object) -> str:
    return digest_of_text(canonical_json(value))


def digest_of_list(value: list[JsonValue]) -> str:
    """As `digest`, for lists without objects and fractions. ASCII is written the same in a quarter of the time."""
    try:
        written = to_json(value)
    except PydanticSerializationError:  # a lone surrogate
        return digest(value)
    if not written.isascii() or b"\x7f" in written:
        return digest(value)
    return hashlib.sha256(written).hexdigest()[:32]


def digest_in_pieces(value: JsonValue) -> str:
    """As `digest`, for long texts: other threads run between the pieces."""
    hasher = hashlib.sha256()
    for piece in _iterate_canonical_json(value):
        hasher.update(piece.encode("ascii"))
    return hasher.hexdigest()[:32]


def _iterate_canonical_json(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield '"'
        for start in range(0, len(value), _PIECE):
            yield canonical_json(value[start : start + _PIECE])[1:-1]
        yield '"'
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield "," if place else "["
            yield from _iterate_canonical_json(item)
        yield "]" if value else "[]"
    elif isinstance(value, dict):
        for place, name in enumerate(sorted(value)):
            yield f"{',' if place else '{'}{canonical_json(name)}:"
            yield from _iterate_canonical_json(value[name])
        yield "}" if value else "{}"
    else:
        yield canonical_json(value)


def digest_of_model(model: BaseModel) -> str:
    return digest(model.model_dump(mode="json"))
