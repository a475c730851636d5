"""Posted groups, checked and packed: one parse of the bytes, and nothing kept of it but compressed text."""

import hashlib
import zlib
from collections.abc import Sequence
from typing import TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from app.compat.atropos.wire import ScoredData
from app.domain.trajectories import Packed

T = TypeVar("T")

_GROUP = TypeAdapter(ScoredData)
_GROUPS = TypeAdapter(list[ScoredData])

LEVEL = 1
"""Of zlib: the higher ones take much longer to save little on digits."""


def read_group(body: bytes) -> tuple[Packed, ...]:
    """RequestValidationError naming the field."""
    return (_packed(_read(_GROUP, body)),)


def read_groups(body: bytes) -> tuple[Packed, ...]:
    return tuple(_packed(group) for group in _read(_GROUPS, body))


def _read(model: TypeAdapter[T], body: bytes) -> T:
    try:
        return model.validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    raise RequestValidationError([_fault(item["type"], item["loc"], item["msg"], item.get("ctx")) for item in found])


def _fault(kind: str, location: tuple[int | str, ...], message: str, context: dict[str, object] | None) -> object:
    """As FastAPI reports its own. What is no JSON gets the 422 of the original too, hence the other type."""
    if kind == "shape" and context is not None:
        return {"type": kind, "loc": ("body", *location, str(context["field"])), "msg": context["message"]}
    return {"type": "value", "loc": ("body", *location), "msg": message}


def _packed(group: ScoredData) -> Packed:
    text = group.__pydantic_serializer__.to_json(group)
    return Packed(
        env_id=group.env_id,
        size=len(group.tokens),
        digest=hashlib.sha256(text).hexdigest(),
        body=zlib.compress(text, LEVEL),
    )


def unpacked(body: bytes) -> bytes:
    """The text of a group: a JSON object with all 14 keys."""
    return zlib.decompress(body)


def texts_of(bodies: Sequence[bytes]) -> list[bytes]:
    return [unpacked(body) for body in bodies]
