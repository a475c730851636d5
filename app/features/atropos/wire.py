"""The JSON messages of Atropos 0.4.0, key by key, and how groups and batches are read and written.

Unknown keys are dropped, as in Atropos. The bytes of a group are parsed once, and only compressed text is kept. The
fast path accepts what `ScoredData` accepts in strict mode, at a third of the cost. Everything else goes to the model:
values that need conversion, unknown or duplicate keys, shapes that do not match, invalid JSON. A batch joins stored
texts, and parses again only groups that were split.
"""

import gzip
import hashlib
import json
import re
import threading
import zlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self, TypeVar, cast

import simdjson
import zstandard
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_serializer,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError, SchemaValidator
from starlette.datastructures import Headers

from app.domain.faults import explain_faults
from app.domain.values import FiniteJson, ModelWords
from app.features.atropos.model import BatchPart, PackedGroup
from app.http.web.bodies import MANY_ERRORS_BYTES, JsonRequest, may_hold_surrogates, parse_json, stop_at_first_error
from app.http.web.problems import RefusedBody
from app.http.web.routes import LazyRoute
from app.toolkit.texts import run_in_turn

_Message = dict[str, FiniteJson]
_Rows = list[list[float]]


def _require_role_and_content(messages: list[list[_Message]]) -> list[list[_Message]]:
    for message in (message for sequence in messages for message in sequence):
        if "role" not in message or "content" not in message:
            raise ValueError("Message must have 'role' and 'content' fields")
    return messages


class ScoredData(BaseModel):
    """A group of N sequences. `tokens` and `masks` are N x T integers, where T differs by sequence; `scores` has N
    numbers; `advantages`, `ref_logprobs` and `inference_logprobs` are N x T; both distillation fields are N x T x K.
    Missing logprobs may be an empty list."""

    model_config = ConfigDict(allow_inf_nan=False, extra="allow")

    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    advantages: _Rows | None = None
    ref_logprobs: _Rows | None = None
    messages: Annotated[
        Annotated[list[list[_Message]], AfterValidator(_require_role_and_content)] | None, ModelWords()
    ] = None
    generation_params: _Message | None = None
    inference_logprobs: _Rows | None = None
    overrides: list[_Message] | None = None
    group_overrides: _Message | None = None
    images: FiniteJson | None = None
    env_id: int | None = None
    distill_token_ids: list[list[list[int]]] | None = None
    distill_logprobs: list[list[list[float]]] | None = None

    @field_serializer("inference_logprobs")
    def _replace_null(self, rows: _Rows | None) -> _Rows:
        """Atropos' `null` makes its own example trainer fail."""
        return rows or []

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        fault = next(_find_faults(self), None)
        if fault is not None:
            field, message = fault
            raise PydanticCustomError("shape", "{field}: {message}", {"field": field, "message": message})
        return self


def _find_faults(group: ScoredData) -> Iterator[tuple[str, str]]:
    """Yields each field whose shape does not match, with the reason."""
    lengths = [len(tokens) for tokens in group.tokens]
    if not lengths:
        yield "tokens", "a group has at least one sequence"
    if 0 in lengths:
        yield f"tokens[{lengths.index(0)}]", "a sequence has at least one token"
    if len(group.scores) != len(lengths):
        yield "scores", f"{len(group.scores)} scores for {len(lengths)} sequences"
    yield from _check_rows("masks", group.masks, lengths)
    for name in ("advantages", "ref_logprobs", "inference_logprobs"):
        rows: _Rows | None = getattr(group, name)
        if rows and any(rows):
            yield from _check_rows(name, rows, lengths)
    for name in ("messages", "overrides"):
        items: Sequence[object] | None = getattr(group, name)
        if items and len(items) != len(lengths):
            yield name, f"{len(items)} items for {len(lengths)} sequences"
    yield from _check_distillation(group, lengths)


def _check_rows(name: str, rows: Sequence[Sequence[object]], lengths: Sequence[int]) -> Iterator[tuple[str, str]]:
    if len(rows) != len(lengths):
        yield name, f"{len(rows)} rows for {len(lengths)} sequences"
    for place, (row, length) in enumerate(zip(rows, lengths, strict=False)):
        if len(row) != length:
            yield f"{name}[{place}]", f"{len(row)} values for {length} tokens"


def _check_distillation(group: ScoredData, lengths: Sequence[int]) -> Iterator[tuple[str, str]]:
    ids, logprobs = group.distill_token_ids, group.distill_logprobs
    for name, rows in (("distill_token_ids", ids), ("distill_logprobs", logprobs)):
        if rows and any(rows):
            yield from _check_rows(name, rows, lengths)
    if (
        ids
        and logprobs
        and [[len(top) for top in row] for row in ids] != [[len(top) for top in row] for row in logprobs]
    ):
        yield "distill_logprobs", "must have the shape of distill_token_ids"


class EnvIdentifier(BaseModel):
    env_id: int


class Root(BaseModel):
    message: str = "AtroposLib API"


class TrainerRegistered(BaseModel):
    uuid: int
    """128 bits, as a JSON number."""


class WaitForTrainer(BaseModel):
    status: str = "wait for trainer to start"


class EnvJoined(BaseModel):
    status: Literal["success"] = "success"
    env_id: int
    wandb_name: str
    checkpoint_dir: str
    starting_step: int
    checkpoint_interval: int
    num_steps: int


class Success(BaseModel):
    status: Literal["success"] = "success"


class Failure(BaseModel):
    status: Literal["failure"] = "failure"
    error: str


class WandbInfo(BaseModel):
    group: str | None
    project: str | None


class Info(BaseModel):
    batch_size: int
    max_token_len: int


class Received(BaseModel):
    status: Literal["received"] = "received"


class ReceivedList(BaseModel):
    status: Literal["received"] = "received"
    groups_processed: int


class Status(BaseModel):
    current_step: int
    queue_size: int


class EnvStatus(BaseModel):
    current_step: int
    queue_size: int
    unallocated_fraction: float
    self_queue_size: int
    max_group_size: int
    env_weight: float


class BatchExplanation(BaseModel):
    """Why there is no batch yet. Not part of Atropos."""

    run: str
    ready: bool
    why: str = Field(examples=["The queue has 8 of the 16 sequences of a batch."])
    notes: tuple[str, ...] = ()
    current_step: int
    queue_size: int
    """Groups that wait or will be sent again."""
    sequences: int
    """Sequences in these groups."""
    mean_lag: float | None
    """Steps since the groups in the queue were posted; null without groups that were posted to a registered trainer."""
    max_lag: int | None
    older_policy: int
    """Groups that were posted at a later step than the present one, as after a restart from an older checkpoint. They
    are in neither figure."""


# Posted groups, validated and packed.

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
    """Of a list in a large body only the first wrong item is named. Of what is no JSON for this parser, the slower one
    mends lone surrogates in messages."""
    try:
        return _parse_body(model, body)
    except ValidationError as error:
        refused = error
    if refused.error_count() == 1 and refused.errors()[0]["type"] == "json_invalid" and may_hold_surrogates(body):
        mended = _mend_messages(body)
        if mended is not None and not may_hold_surrogates(mended):
            return _validate_body(model, mended)
    raise RequestValidationError([*_build_faults(refused.errors(include_url=False), model)])


def _mend_messages(body: bytes) -> bytes | None:
    """None for what is no JSON. RefusedBody names the field of a lone surrogate elsewhere."""
    try:
        return json.dumps(parse_json(body, ScoredData), ensure_ascii=False).encode()
    except RefusedBody as error:
        if error.errors:
            raise
        return None


def _parse_body(model: TypeAdapter[T], body: bytes) -> T:
    if len(body) < MANY_ERRORS_BYTES:
        return model.validate_json(body)
    return cast(T, _STRICT[id(model)].validate_json(body))


def _build_faults(items: Sequence[ErrorDetails], kind: TypeAdapter[T]) -> Iterator[object]:
    """Errors in FastAPI's format. Atropos answers invalid JSON with 422 too, hence the other type."""
    for item in items:
        if item["type"] == "shape":
            context = item.get("ctx", {})
            yield {"type": "shape", "loc": ("body", *item["loc"], str(context["field"])), "msg": context["message"]}
    others = [item for item in items if item["type"] != "shape"]
    for fault in explain_faults(others, kind._type, base=("body",)):
        yield {"type": "value", "loc": fault.location, "msg": fault.words}


def _pack_group(env_id: int | None, size: int, text: bytes) -> PackedGroup:
    body = _packer.pack(text)
    digest = hashlib.sha256(body).hexdigest()  # of a third of the bytes; packing is deterministic
    return PackedGroup(env_id=env_id, size=size, digest=digest, body=body)


def unpack_group(body: bytes) -> bytes:
    """The text of a group: a JSON object with all 14 keys. Earlier versions packed with zlib."""
    return zstandard.ZstdDecompressor().decompress(body) if body.startswith(_ZSTD) else zlib.decompress(body)


# The fast path: posted groups checked with simdjson, without creating objects for their numbers.

_Kind = Literal["i", "d"]
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""Skipped by this parser, but not allowed in JSON."""
_MARKS: Final = re.compile(rb'[][{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"')


@dataclass(frozen=True)
class PlainGroup:
    """A valid group whose text can be stored unchanged; `given` are its keys."""

    env_id: int | None
    size: int
    given: frozenset[str]


class _Parser(threading.local):
    """One parser per thread: it reuses its buffer, so a second text cannot be parsed while the first is in use."""

    def __init__(self) -> None:
        self.parse = simdjson.Parser().parse


_parser = _Parser()


def parse_plain_group(text: bytes) -> PlainGroup | None:
    """Checks a group; None if the model has to check it."""
    if text.startswith(_BYTE_ORDER_MARK):
        return None
    try:
        value = _parser.parse(text)
        return _check_group(value) if isinstance(value, simdjson.Object) else None
    except (ValueError, TypeError, KeyError, RuntimeError):  # RuntimeError: nested too deep, or a text still in use
        return None


def split_array(text: bytes) -> list[bytes] | None:
    """The texts of the objects in a JSON array; None for anything else."""
    try:
        value = _parser.parse(text)
        if not isinstance(value, simdjson.Array) or not all(isinstance(item, simdjson.Object) for item in value):
            return None
    except (ValueError, TypeError, RuntimeError):
        return None
    return list(_iterate_objects(text))


def _iterate_objects(text: bytes) -> Iterator[bytes]:
    """The outermost objects of a text that is known to be an array of objects."""
    depth, start = 0, 0
    for mark in _MARKS.finditer(text):
        if mark[0] in b"[{":
            start = mark.start() if depth == 1 else start
            depth += 1
        elif mark[0] in b"]}":
            depth -= 1
            if depth == 1:
                yield text[start : mark.end()]


def _check_group(parsed: simdjson.Object) -> PlainGroup | None:
    """Duplicate keys are left to the model, because only the last value would be checked here."""
    names = list(parsed.keys())
    if len(set(names)) < len(names) or not _READERS.keys() >= set(names):
        return None
    values: dict[str, Any] = {name: _READERS[name](parsed[name]) for name in names}
    group = ScoredData.model_construct(**values)
    if not {"tokens", "masks", "scores"} <= values.keys() or next(_find_faults(group), None) is not None:
        return None
    return PlainGroup(env_id=group.env_id, size=len(group.tokens), given=frozenset(names))


def _count_numbers(row: object, kind: _Kind) -> range:
    """A range as long as the row. TypeError for another kind of number; ValueError for one that is too large."""
    if not isinstance(row, simdjson.Array):
        raise TypeError("no list")
    if len(row):
        row.as_buffer(of_type=kind)
    return range(len(row))


def _count_rows(rows: object, kind: _Kind) -> list[range]:
    if not isinstance(rows, simdjson.Array):
        raise TypeError("no list")
    return [_count_numbers(row, kind) for row in rows]


def _count_nested_rows(rows: object, kind: _Kind) -> list[list[range]]:
    if not isinstance(rows, simdjson.Array):
        raise TypeError("no list")
    return [_count_rows(row, kind) for row in rows]


def _read_env_id(value: object) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError("no integer")
    return value


def _create_field_reader(name: str) -> Callable[[object], object]:
    model = TypeAdapter[object](ScoredData.model_fields[name].rebuild_annotation())
    return lambda value: model.validate_json(_minify_json(value), strict=True)


def _minify_json(value: object) -> str | bytes:
    if isinstance(value, simdjson.Object | simdjson.Array):
        return value.mini
    raise TypeError("no list and no object")


def _allow_null(read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else read(value)


_READERS: Final[dict[str, Callable[[object], object]]] = {
    "tokens": lambda rows: _count_rows(rows, "i"),
    "masks": lambda rows: _count_rows(rows, "i"),
    "scores": lambda row: _count_numbers(row, "d"),
    "advantages": _allow_null(lambda rows: _count_rows(rows, "d")),
    "ref_logprobs": _allow_null(lambda rows: _count_rows(rows, "d")),
    "inference_logprobs": lambda rows: _count_rows(rows, "d"),
    "env_id": _read_env_id,
    "distill_token_ids": _allow_null(lambda rows: _count_nested_rows(rows, "i")),
    "distill_logprobs": _allow_null(lambda rows: _count_nested_rows(rows, "d")),
    **{
        name: _allow_null(_create_field_reader(name))
        for name in ("messages", "generation_params", "overrides", "group_overrides", "images")
    },
}


# The text of a batch.

_GZIP_LEVEL = 1
GZIP_FROM = 1000
"""Bytes from which responses are compressed, as in Atropos."""
_BY_SEQUENCE = (
    "tokens",
    "masks",
    "scores",
    "advantages",
    "ref_logprobs",
    "messages",
    "inference_logprobs",
    "overrides",
    "images",
    "distill_token_ids",
    "distill_logprobs",
)


def build_batch_text(parts: Sequence[BatchPart]) -> bytes:
    return b'{"batch":[' + b",".join(_build_group_text(part) for part in parts) + b"]}"


def _build_group_text(part: BatchPart) -> bytes:
    text = unpack_group(part.body)
    if part.whole:
        return text
    group = json.loads(text)
    count = len(group["tokens"])
    for name in _BY_SEQUENCE:
        value = group[name]
        if isinstance(value, list) and len(value) == count:
            group[name] = value[part.first : part.first + part.size]
    return json.dumps(group, separators=(",", ":"), ensure_ascii=False).encode()


def compress_text(text: bytes) -> bytes:
    return gzip.compress(text, _GZIP_LEVEL, mtime=0)


# Gzip bodies, decompressed up to a limit.

_GZIP = 16 + zlib.MAX_WBITS
_SMALL = 16 * 1024
"""Bytes from which a body is decompressed in a thread."""
NOT_GZIP = "Invalid gzip payload"
"""The message of Atropos' own server."""


class NotGzip(Exception):
    pass


def is_gzip(headers: Headers) -> bool:
    return "gzip" in headers.get("content-encoding", "").lower()


def inflate(body: bytes, limit: int) -> bytes:
    """Raises NotGzip for corrupt or truncated bodies, and RefusedBody with 413 beyond `limit` bytes."""
    whole = bytearray()
    while body:
        stream = zlib.decompressobj(_GZIP)
        try:
            whole += stream.decompress(body, limit + 1 - len(whole))
        except zlib.error as error:
            raise NotGzip from error
        if len(whole) > limit:
            raise RefusedBody(413, f"The body is larger than {limit} bytes after decompression.")
        if not stream.eof:
            raise NotGzip
        body = stream.unused_data
    return bytes(whole)


def create_gzip_route(limit: int) -> type[APIRoute]:
    """A route class that decompresses request bodies to at most `limit` bytes and answers invalid gzip with Atropos'
    400."""

    class InflatedRequest(JsonRequest):
        async def body(self) -> bytes:
            if not hasattr(self, "_inflated"):
                raw = await super().body()
                compressed = raw and is_gzip(self.headers)
                self._inflated = await _inflate_body(raw, limit) if compressed else raw
            return self._inflated

    class InflatingRoute(LazyRoute):
        reads_strictly = True

        def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
            handle = super().get_route_handler()
            reader = self.create_reader()

            async def read_inflated(request: Request) -> Response:
                inflated = InflatedRequest(request.scope, request.receive)
                inflated.reader = reader
                try:
                    await inflated.body()  # here, since FastAPI would make its own 400 of the failure
                except NotGzip:
                    return PlainTextResponse(NOT_GZIP, status_code=400)
                return await handle(inflated)

            return read_inflated

    return InflatingRoute


async def _inflate_body(raw: bytes, limit: int) -> bytes:
    return inflate(raw, limit) if len(raw) < _SMALL else await run_in_turn("bodies", inflate, raw, limit)
