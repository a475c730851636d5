"""Posted groups, validated and packed: the bytes are parsed once, and only compressed text is kept."""

import hashlib
import threading
import zlib
from typing import TypeVar, cast

import zstandard
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from app.domain.trajectories import PackedGroup
from app.http.compat.atropos.fast_parsing import parse_plain_group, split_array
from app.http.compat.atropos.wire import ScoredData
from app.http.web.bodies import MANY_ERRORS_BYTES, stop_at_first_error

T = TypeVar("T")

_GROUP = TypeAdapter(ScoredData)
_GROUPS = TypeAdapter(list[ScoredData])
_STRICT = {
    id(model): SchemaValidator(stop_at_first_error(model.core_schema), _use_prebuilt=False)
    for model in (_GROUP, _GROUPS)
}
_FIELDS = set(ScoredData.model_fields)
_ABSENT = {
    name: f',"{name}":{"[]" if name == "inference_logprobs" else "null"}'.encode() for name in ScoredData.model_fields
}
_ZSTD = b"\x28\xb5\x2f\xfd"
_PACKING = zstandard.ZstdCompressionParameters(compression_level=1, min_match=7)
"""Masks repeat the tokens; digits have few other repetitions, so a higher level costs time and saves little. Matches of
fewer than 7 bytes are accidental, and searching them takes a fifth of the time."""


class _Packer(threading.local):
    """One compressor per thread: it reuses its buffers."""

    def __init__(self) -> None:
        self.pack = zstandard.ZstdCompressor(compression_params=_PACKING).compress


_packer = _Packer()


def read_group(body: bytes) -> tuple[PackedGroup, ...]:
    """Raises RequestValidationError naming the field."""
    return (_pack_as_sent(body) or _pack_model(_validate_body(_GROUP, body)),)


def read_groups(body: bytes) -> tuple[PackedGroup, ...]:
    """The same of a JSON array."""
    sent = [_pack_as_sent(text) for text in split_array(body) or ()]
    if sent and None not in sent:
        return tuple(group for group in sent if group is not None)
    return tuple(_pack_model(group) for group in _validate_body(_GROUPS, body))


def _pack_as_sent(body: bytes) -> PackedGroup | None:
    """Packs the received text with the missing keys added: serialising it again takes as long as parsing it."""
    group = parse_plain_group(body)
    if group is None:
        return None
    absent = (text for name, text in _ABSENT.items() if name not in group.given)
    return _pack_group(group.env_id, group.size, b"".join((memoryview(body.strip())[:-1], *absent, b"}")))


def _pack_model(group: ScoredData) -> PackedGroup:
    return _pack_group(group.env_id, len(group.tokens), group.__pydantic_serializer__.to_json(group, include=_FIELDS))


def _validate_body(model: TypeAdapter[T], body: bytes) -> T:
    """Of a list in a large body only the first wrong item is named."""
    try:
        if len(body) < MANY_ERRORS_BYTES:
            return model.validate_json(body)
        return cast(T, _STRICT[id(model)].validate_json(body))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    raise RequestValidationError(
        [_build_fault(item["type"], item["loc"], item["msg"], item.get("ctx")) for item in found]
    )


def _build_fault(kind: str, location: tuple[int | str, ...], message: str, context: dict[str, object] | None) -> object:
    """An error in FastAPI's format. Atropos answers invalid JSON with 422 too, hence the other type."""
    if kind == "shape" and context is not None:
        return {"type": kind, "loc": ("body", *location, str(context["field"])), "msg": context["message"]}
    return {"type": "value", "loc": ("body", *location), "msg": message}


def _pack_group(env_id: int | None, size: int, text: bytes) -> PackedGroup:
    body = _packer.pack(text)
    digest = hashlib.sha256(body).hexdigest()  # of a third of the bytes; packing is deterministic
    return PackedGroup(env_id=env_id, size=size, digest=digest, body=body)


def unpack_group(body: bytes) -> bytes:
    """The text of a group: a JSON object with all 14 keys. Earlier versions packed with zlib."""
    return zstandard.ZstdDecompressor().decompress(body) if body.startswith(_ZSTD) else zlib.decompress(body)
