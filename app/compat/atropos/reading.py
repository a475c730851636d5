"""Posted groups, checked and packed: one parse of the bytes, and nothing kept of it but compressed text."""

import hashlib
import zlib
from typing import TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from app.compat.atropos.wire import ScoredData
from app.domain.trajectories import Packed

T = TypeVar("T")

_GROUP = TypeAdapter(ScoredData)
_GROUPS = TypeAdapter(list[ScoredData])
_FIELDS = set(ScoredData.model_fields)
_ABSENT = {
    name: f',"{name}":{"[]" if name == "inference_logprobs" else "null"}'.encode() for name in ScoredData.model_fields
}


def read_group(body: bytes) -> tuple[Packed, ...]:
    """RequestValidationError naming the field."""
    try:
        group = _GROUP.validate_json(body, strict=True)
    except ValidationError:
        return (_packed(_read(_GROUP, body)),)
    text = _as_sent(group, body)
    return (_packed(group) if text is None else _packed(group, text),)


def read_groups(body: bytes) -> tuple[Packed, ...]:
    return tuple(_packed(group) for group in _read(_GROUPS, body))


def _as_sent(group: ScoredData, body: bytes) -> bytes | None:
    """The text as it came, with the keys that it lacks: writing it anew takes as long as reading it. None where it does
    not say just what was validated: with unknown keys, with the null that is never sent on, or where one key, given
    twice, may hide what is no JSON."""
    nulls = group.inference_logprobs is None and "inference_logprobs" in group.model_fields_set
    if group.model_extra or nulls or b"NaN" in body or b"Infinity" in body:
        return None
    absent = b"".join(text for name, text in _ABSENT.items() if name not in group.model_fields_set)
    return body.strip()[:-1] + absent + b"}"


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


def _packed(group: ScoredData, text: bytes | None = None) -> Packed:
    if text is None:
        text = group.__pydantic_serializer__.to_json(group, include=_FIELDS)
    return Packed(
        env_id=group.env_id,
        size=len(group.tokens),
        digest=hashlib.sha256(text).hexdigest(),
        body=_compressed(text),
    )


def _compressed(text: bytes) -> bytes:
    """Digits hold hardly anything that repeats: looking for it takes half the time again and saves a tenth."""
    stream = zlib.compressobj(level=1, strategy=zlib.Z_HUFFMAN_ONLY)
    return stream.compress(text) + stream.flush()


def unpacked(body: bytes) -> bytes:
    """The text of a group: a JSON object with all 14 keys."""
    return zlib.decompress(body)
