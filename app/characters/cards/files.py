"""Card and lorebook files from strangers: JSON, PNG or CHARX, detected by content.

Only what holds the card is read: text chunks of an image, which is never decoded, and one member of an archive, which
is never unpacked to disk. Every size is bounded before anything is decoded from it.
"""

import base64
import binascii
import codecs
import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.characters.archives import ZipReader
from app.domain.errors import InvalidRequest, TooLarge
from app.domain.values import MAX_JSON_DEPTH, FiniteJson, Frozen

# JSON, read strictly: no repeated keys, NaN, lone surrogates or deep nesting

MAX_JSON_BYTES: Final = 4 * 1024 * 1024

_json = TypeAdapter[JsonValue](FiniteJson)


class _JsonRefused(ValueError):
    pass


def _parse_json(content: bytes, name: str) -> JsonValue:
    """Parses UTF-8. InvalidRequest or TooLarge naming `name` and the error."""
    if len(content) > MAX_JSON_BYTES:
        raise TooLarge(f"{name}: more than {MAX_JSON_BYTES} bytes of JSON")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name}: not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(text, object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant)
    except _JsonRefused as error:
        raise InvalidRequest(f"{name}: {error}") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{name}: not JSON: {error.msg} in line {error.lineno}") from None
    except RecursionError:
        raise InvalidRequest(f"{name}: nested deeper than {MAX_JSON_DEPTH} levels") from None
    except ValueError as error:
        raise InvalidRequest(f"{name}: not JSON: {' '.join(str(error).split())[:200]}") from None
    return _check_json(value, name)


def _check_json(value: JsonValue, name: str) -> JsonValue:
    """Returns the value. InvalidRequest if a sheet cannot hold it."""
    try:
        if measure_depth(value) <= MAX_JSON_DEPTH:
            return _json.validate_python(value)
    except ValidationError as error:
        reason = str(error.errors(include_url=False, include_input=False)[0]["msg"])
        raise InvalidRequest(f"{name}: {reason.removeprefix('Value error, ')[:300]}") from None
    except RecursionError:
        pass
    raise InvalidRequest(f"{name}: nested deeper than {MAX_JSON_DEPTH} levels")


def measure_depth(value: JsonValue) -> int:
    """Nesting depth; 0 for a scalar."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(measure_depth, inside), default=0) if isinstance(value, dict | list) else 0


def _refuse_repeated_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _JsonRefused(f"the key {key[:60]!r} is repeated")
            seen.add(key)
    return members


def _refuse_constant(name: str) -> JsonValue:
    raise _JsonRefused(f"{name} is not a number")


# Cards in PNG and APNG images

_PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS: Final = 10_000
MAX_TEXT: Final = 6 * 1024 * 1024
"""Bytes of one text chunk, compressed or not, before anything is decoded from it."""
_TEXTS: Final = (b"tEXt", b"zTXt", b"iTXt")
_NEWEST_FIRST: Final = ("ccv3", "chara")
_OF_CARDS: Final = ("ccv3", "chara")
"""Keyword prefixes of cards; some cards have assets in chunks called `chara-ext-asset_:<path>`."""


@dataclass(frozen=True)
class _Chunk:
    kind: bytes
    data: bytes

    @property
    def keyword(self) -> str | None:
        """Lower-case keyword of a text chunk."""
        if self.kind not in _TEXTS:
            return None
        word, separator, _ = self.data[:80].partition(b"\0")
        return word.decode("latin-1").casefold() if separator else None


def extract_card_from_image(image: bytes, name: str) -> tuple[str, bytes, tuple[str, ...]]:
    """The keyword and content of the newest card, and the keywords of all other card chunks. InvalidRequest or TooLarge
    naming `name` and the chunk."""
    texts = [(keyword, chunk) for chunk in iter_chunks(image, name) if (keyword := chunk.keyword) is not None]
    for newest in _NEWEST_FIRST:
        for keyword, chunk in texts:
            if keyword == newest:
                others = tuple(word for word, other in texts if other is not chunk and word.startswith(_OF_CARDS))
                return keyword, _decode_base64(_read_text(chunk, name, keyword), name, keyword), others
    raise InvalidRequest(f"{name}: holds no card: no text chunk is called {' or '.join(_NEWEST_FIRST)}")


def embed_card(image: bytes, name: str, keyword: str, card: bytes) -> bytes:
    """The image with its cards replaced by this one. TooLarge beyond the import limit."""
    if len(card) > MAX_JSON_BYTES:
        raise TooLarge(f"{name}: the card would exceed {MAX_JSON_BYTES} bytes")
    others = [chunk for chunk in iter_chunks(image, name) if chunk.keyword not in _NEWEST_FIRST]
    text = _Chunk(b"tEXt", keyword.encode("latin-1") + b"\0" + base64.b64encode(card))
    return _PNG_SIGNATURE + b"".join(map(_encode_chunk, _insert_before_end(others, text)))


def iter_chunks(image: bytes, name: str) -> Iterator[_Chunk]:
    """Chunks up to IEND. Data after it, which some tools add, is ignored."""
    if not image.startswith(_PNG_SIGNATURE):
        raise InvalidRequest(f"{name}: not a PNG image")
    at = len(_PNG_SIGNATURE)
    for _ in range(MAX_CHUNKS):
        if at + 12 > len(image):
            raise InvalidRequest(f"{name}: the image ends early, at byte {at}")
        length, kind = struct.unpack_from(">I4s", image, at)
        if length > len(image) - at - 12:
            raise InvalidRequest(f"{name}: the chunk at byte {at} is truncated: it declares {length} bytes")
        data = image[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from(">I", image, at + 8 + length)
        if zlib.crc32(data, zlib.crc32(kind)) != checksum:
            raise InvalidRequest(f"{name}: the chunk at byte {at} has a wrong checksum")
        yield _Chunk(kind, data)
        if kind == b"IEND":
            return
        at += 12 + length
    raise TooLarge(f"{name}: more than {MAX_CHUNKS} chunks")


def _read_text(chunk: _Chunk, name: str, keyword: str) -> bytes:
    if len(chunk.data) > MAX_TEXT:
        raise TooLarge(f"{name}: the chunk {keyword!r} has more than {MAX_TEXT} bytes", field=keyword)
    text = chunk.data.partition(b"\0")[2]
    if chunk.kind == b"tEXt":
        return text
    if chunk.kind == b"zTXt":
        return _inflate(text[1:], name, keyword)
    compressed, rest = text[:1], text[2:]
    content = rest.partition(b"\0")[2].partition(b"\0")[2]
    return content if compressed == b"\0" else _inflate(content, name, keyword)


def _inflate(packed: bytes, name: str, keyword: str) -> bytes:
    """Decompresses at most MAX_TEXT bytes."""
    stream = zlib.decompressobj()  # `zlib.decompress` has no bound: a kilobyte may unpack to gigabytes
    try:
        text = stream.decompress(packed, MAX_TEXT + 1)
    except zlib.error:
        raise InvalidRequest(f"{name}: the chunk {keyword!r} cannot be decompressed", field=keyword) from None
    if len(text) > MAX_TEXT:
        raise TooLarge(f"{name}: the chunk {keyword!r} unpacks to more than {MAX_TEXT} bytes", field=keyword)
    return text


def _decode_base64(text: bytes, name: str, keyword: str) -> bytes:
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"{name}: the chunk {keyword!r} is not base64", field=keyword) from None


def _insert_before_end(chunks: Sequence[_Chunk], text: _Chunk) -> list[_Chunk]:
    return [*chunks[:-1], text, chunks[-1]]


def _encode_chunk(chunk: _Chunk) -> bytes:
    return (
        struct.pack(">I", len(chunk.data))
        + chunk.kind
        + chunk.data
        + struct.pack(">I", zlib.crc32(chunk.data, zlib.crc32(chunk.kind)))
    )


# Cards in CHARX archives

_CHARX_SIGNATURE: Final = b"PK\x03\x04"
CARD: Final = "card.json"
_MAX_UNPACKED: Final = 1024 * 1024 * 1024


def _extract_card_from_archive(archive: bytes, name: str) -> tuple[bytes, int]:
    """The content of `card.json`, and the number of other members. InvalidRequest or TooLarge naming `name` and the
    member."""
    opened = ZipReader(archive, name, _MAX_UNPACKED)
    cards = [member for member in opened.members if member.filename == CARD]
    if len(cards) != 1:
        raise InvalidRequest(f"{name}: holds {len(cards)} members called {CARD}, not one", field=CARD)
    return opened.read(cards[0], MAX_JSON_BYTES), len(opened.members) - 1


# Files of any of these kinds

MAX_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class CardFile:
    """`container`: JSON, PNG or CHARX. `beside`: descriptions of other contents, which are not read."""

    value: JsonValue
    container: str
    beside: tuple[str, ...] = ()


def read_file(path: Path) -> CardFile:
    """TooLarge beyond MAX_BYTES; InvalidRequest naming the file and the invalid part."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TooLarge(f"{path.name}: larger than {MAX_BYTES} bytes")
    return read_bytes(content, path.name)


def read_bytes(content: bytes, name: str) -> CardFile:
    if content.startswith(_PNG_SIGNATURE):
        return _read_image(content, name)
    if content.startswith(_CHARX_SIGNATURE):
        card, others = _extract_card_from_archive(content, name)
        beside = (f"{others} more members of the archive",) if others else ()
        return CardFile(_parse_json(card, f"{name}: {CARD}"), "CHARX", beside)
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start and start not in b"[{" and not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidRequest(f"{name}: this is no card: neither a PNG image, a CHARX archive nor JSON")
    return CardFile(_parse_json(content, name), "JSON")


def _read_image(content: bytes, name: str) -> CardFile:
    """Reads the newer card of an image with two."""
    keyword, card, others = extract_card_from_image(content, name)
    older = [f"the other card in the chunk {other}" for other in others if other in _NEWEST_FIRST]
    assets = len(others) - len(older)
    beside = ["the image itself", *older, *([f"{assets} assets in other chunks"] if assets else [])]
    return CardFile(_parse_json(card, f"{name}: {keyword}"), "PNG", tuple(beside))


# Checked access to fields of untrusted JSON objects; errors name the field

Object = Mapping[str, JsonValue]


@dataclass(frozen=True)
class JsonFields:
    """An object and its path. Null counts as absent, since tools write it for unset fields."""

    values: Object
    path: str = ""

    def build_path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def get_text(self, name: str) -> str:
        """Empty if absent."""
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise build_refusal(self.build_path(name), "must be text")
        return value

    def get_texts(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise build_refusal(self.build_path(name), "must be a list of texts")
        for position, item in enumerate(value):
            if not isinstance(item, str):
                raise build_refusal(f"{self.build_path(name)}.{position}", "must be text")
        return tuple(item for item in value if isinstance(item, str))

    def get_number(self, name: str) -> int | float | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise build_refusal(self.build_path(name), "must be a number")
        return value

    def get_number_or_none(self, name: str) -> int | float | None:
        """None for any other type, for fields of other tools."""
        value = self.values.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def get_flag_or_none(self, name: str) -> bool | None:
        """None for any other type, for fields of other tools."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else None

    def get_flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise build_refusal(self.build_path(name), "must be true or false")
        return value

    def get_part(self, name: str) -> "JsonFields":
        """Empty if absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise build_refusal(self.build_path(name), "must be an object")
        return JsonFields(value or {}, self.build_path(name))

    def iter_parts(self, name: str) -> "Iterator[JsonFields]":
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            raise build_refusal(self.build_path(name), "must be a list")
        for position, item in enumerate(value or []):
            if not isinstance(item, dict):
                raise build_refusal(f"{self.build_path(name)}.{position}", "must be an object")
            yield JsonFields(item, f"{self.build_path(name)}.{position}")


def build_refusal(field: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {why}", field=field)


# The version of a card, and its fields

Version = Literal["V1", "V2", "V3"]

SPECS: Final[dict[Version, tuple[str, str]]] = {"V2": ("chara_card_v2", "2.0"), "V3": ("chara_card_v3", "3.0")}
_V1_FIELDS: Final = ("name", "description", "personality", "scenario", "first_mes", "mes_example")


@dataclass(frozen=True)
class ParsedCard:
    """`document` is the whole file, `fields` the object with the card's fields."""

    version: Version
    document: Object
    fields: JsonFields
    newer: str | None = None
    """The declared version if it is unknown."""

    @property
    def outside(self) -> tuple[str, ...]:
        """Names of unspecified top-level fields."""
        specified = _V1_FIELDS if self.version == "V1" else ("spec", "spec_version", "data")
        return tuple(name for name in self.document if name not in specified)


def parse_card(value: JsonValue) -> ParsedCard | None:
    """None if it is not a card, such as a lorebook. InvalidRequest naming the field of an invalid card."""
    if not isinstance(value, dict):
        raise build_refusal("the document", "must be a JSON object")
    spec = value.get("spec")
    if isinstance(spec, str) and spec.startswith("chara_card_v"):
        version: Version = "V2" if spec == "chara_card_v2" else "V3"
        if not isinstance(value.get("data"), dict):
            raise build_refusal("data", "must be an object: the card's fields")
        declared = str(value.get("spec_version", SPECS[version][1]))[:20]
        known = (spec, declared) in SPECS.values()
        return ParsedCard(
            version, value, JsonFields(value).get_part("data"), None if known else f"{spec[:40]} {declared}"
        )
    if spec is None and "entries" not in value and any(name in value for name in _V1_FIELDS):
        return ParsedCard("V1", value, JsonFields({name: value[name] for name in _V1_FIELDS if name in value}))
    return None


# Import reports: mapped fields, kept fields and assumptions


class MappedField(Frozen):
    """A field that was converted. `times` counts lorebook entries, which are reported together: `entries[].keys`."""

    field: str
    to: str
    times: int = 1


class KeptField(Frozen):
    """A field that is kept for export but not used, or used differently; `why` explains it."""

    field: str
    why: str
    times: int = 1


class ImportReport(Frozen):
    source: str
    """Format of the file: `character card V2`, `lorebook V3` …"""
    mapped: tuple[MappedField, ...] = ()
    kept: tuple[KeptField, ...] = ()
    assumed: tuple[str, ...] = ()
    """Values that the file lacks and the import chose."""


class ImportNotes:
    """Collects a report while a file is read."""

    def __init__(self) -> None:
        self._mapped: Counter[tuple[str, str]] = Counter()
        self._kept: Counter[tuple[str, str]] = Counter()
        self._assumed: list[str] = []

    def add_mapped(self, field: str, to: str) -> None:
        self._mapped[field, to] += 1

    def add_kept(self, field: str, why: str) -> None:
        self._kept[field, why] += 1

    def add_assumed(self, what: str) -> None:
        self._assumed.append(what)

    def build_report(self, source: str) -> ImportReport:
        return ImportReport(
            source=source,
            mapped=tuple(MappedField(field=field, to=to, times=times) for (field, to), times in self._mapped.items()),
            kept=tuple(KeptField(field=field, why=why, times=times) for (field, why), times in self._kept.items()),
            assumed=tuple(dict.fromkeys(self._assumed)),
        )
