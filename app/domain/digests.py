"""Digests that identify tasks, texts, rules and judgements."""

import hashlib
import json
from typing import Final

from pydantic import BaseModel

_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: object) -> str:
    """One text per JSON value: sorted keys, no spaces, ASCII only. TypeError or ValueError for what is not JSON."""
    return _CANONICAL.encode(value)


def digest_of_text(text: str) -> str:
    """32 hexadecimal digits of SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def digest(value: object) -> str:
    return digest_of_text(canonical_json(value))


def digest_of_model(model: BaseModel) -> str:
    return digest(model.model_dump(mode="json"))
