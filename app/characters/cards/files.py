"""Card and lorebook files from strangers: JSON, PNG or CHARX, detected by content.

Only what holds the card is read: text chunks of an image, which is never decoded, and one member of an archive, which
is never unpacked to disk. Every size is bounded before anything is decoded from it. Damage elsewhere refuses no card:
what was passed over is said in `mended`.
"""

import base64
import binascii
import codecs
import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import JsonValue

from app.characters.archives import DamagedArchive, ZipReader
from app.characters.cards.formats import parse_card
from app.domain.errors import GatewayError, InvalidRequest, TooLarge
from app.domain.faults import explain_json_error
from app.domain.values import MAX_JSON_DEPTH, is_encodable

# JSON as people and tools write it: what is no JSON is read where it can mean one thing only

MAX_JSON_BYTES: Final = 4 * 1024 * 1024
_MOST_DIGITS: Final = 400
_MOST_NAMED: Final = 20
"""Repeated keys that are named."""


@dataclass
class _JsonMender:
    """Makes a value that sheets can hold, and collects what had to be changed for it."""

    said: dict[str, None] = field(default_factory=dict)

    def say(self, what: str) -> None:
        if len(self.said) < _MOST_NAMED:
            self.said[what] = None

    def build_object(self, pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        members = dict(pairs)
        if len(members) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self.say(f"the key {key[:60]!r} is repeated: the last one counts")
                seen.add(key)
        return members

    def read_constant(self, name: str) -> JsonValue:
        self.say(f"{name} is not a number and is read as null")
        return None

    def read_integer(self, digits: str) -> JsonValue:
        return int(digits) if len(digits) <= _MOST_DIGITS else self.read_constant("a number of many digits")

    def read_float(self, digits: str) -> JsonValue:
        number = float(digits)
        return number if math.isfinite(number) else self.read_constant(digits[:20])

    def mend(self, value: JsonValue, room: int = MAX_JSON_DEPTH) -> JsonValue:
        if isinstance(value, str):
            return self._mend_text(value)
        if isinstance(value, dict | list) and room <= 0:
            self.say(f"what is nested deeper than {MAX_JSON_DEPTH} levels is read as null")
            return None
        if isinstance(value, dict):
            return {self._mend_text(name): self.mend(item, room - 1) for name, item in value.items()}
        if isinstance(value, list):
            return [self.mend(item, room - 1) for item in value]
        return value

    def _mend_text(self, text: str) -> str:
        if is_encodable(text):
            return text
        self.say("a lone surrogate is read as U+FFFD")
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _parse_json(content: bytes, name: str) -> tuple[JsonValue, tuple[str, ...]]:
    """The value, and what had to be mended. InvalidRequest or TooLarge naming `name` and the error."""
    if len(content) > MAX_JSON_BYTES:
        raise TooLarge(f"{name}: more than {MAX_JSON_BYTES} bytes of JSON")
    mender = _JsonMender()
    text = _decode(content, mender)
    try:
        value = _load_any(text, mender)
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{name}: not JSON: {explain_json_error(error)}") from None
    except RecursionError:
        raise InvalidRequest(f"{name}: nested deeper than {MAX_JSON_DEPTH} levels") from None
    return mender.mend(value), tuple(mender.said)


def _load_any(text: str, mender: _JsonMender) -> JsonValue:
    """JSON, or else JSON5. JSONDecodeError of the text as it is; RecursionError."""
    try:
        return _load(text, mender)
    except json.JSONDecodeError as error:
        try:
            value = _load(_rewrite_json5(text), mender)
        except ValueError:
            raise error from None
    mender.say("it is JSON5 and no JSON")
    return value


def _decode(content: bytes, mender: _JsonMender) -> str:
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if wide else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        mender.say(f"bytes that are not text, the first at {error.start}, are read as U+FFFD")
        return content.decode(encoding, "replace")


def _load(text: str, mender: _JsonMender) -> JsonValue:
    decoder = json.JSONDecoder(
        object_pairs_hook=mender.build_object,
        parse_constant=mender.read_constant,
        parse_int=mender.read_integer,
        parse_float=mender.read_float,
        strict=False,  # line breaks and tabs inside texts
    )
    text = text.strip(_SPACE)
    value: JsonValue
    value, end = decoder.raw_decode(text)
    if end < len(text):
        if not isinstance(value, dict):
            raise json.JSONDecodeError("Extra data", text, end)
        mender.say("what stands behind the JSON is not read")
    return value


_SPACE: Final = " \t\r\n\0\ufeff"
_JSON5: Final = re.compile(
    r"""(?P<double>"(?:[^"\\]++|\\.)*+"?)|(?P<single>'(?:[^'\\]++|\\.)*+'?)|(?P<comment>//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?)"""
    r"""|(?P<comma>,)(?=(?:\s++|//[^\n]*+\n|/\*(?:[^*]++|\*(?!/))*+\*/)*+[\]}])"""
    r"""|(?P<number>[+-]?\.?[0-9][\w.]*+(?:(?<=[eE])[+-][0-9]++)?)|(?P<sign>[+-](?=Infinity|NaN))|(?P<word>(?:[^\W\d]|\$)[\w$]*+)""",
    re.DOTALL,
)
_WORDS: Final = {
    **{word: word for word in ("true", "false", "null", "NaN", "Infinity")},
    **{"True": "true", "False": "false", "None": "null", "undefined": "null"},
}


def _rewrite_json5(text: str) -> str:
    """Quotes single-quoted texts and bare keys, writes numbers and escapes as JSON does, and leaves out comments and
    commas before a closing bracket. Takes linear time: no token is looked at twice, but for what follows a comma."""
    return _JSON5.sub(_rewrite_token, text)


def _rewrite_token(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "single" | "double":
            return _rewrite_text(token[0])
        case "sign":
            is_negative = token[0] == "-" and token.string.startswith("Infinity", token.end())
            return "-" if is_negative else ""
        case "number":
            return _rewrite_number(token[0])
        case "comment" | "comma":
            return " "
        case _:
            return _WORDS.get(token[0], f'"{token[0]}"')


_ESCAPE: Final = re.compile(r'\\(?:x([0-9a-fA-F]{2})|(\r\n|.))|"', re.DOTALL)
_SAME_ESCAPES: Final = frozenset('"\\/bfnrtu')
"""That JSON has too."""
_OWN_ESCAPES: Final = {"v": "\\u000b", "0": "\\u0000"}
_CONTINUATIONS: Final = frozenset(("\n", "\r\n", "\r", "\u2028", "\u2029"))


def _rewrite_text(quoted: str) -> str:
    """In double quotes, with escapes as JSON has them. A backslash at the end of a line goes with that. What is not
    closed is left as it is."""
    inner = quoted[1:-1]
    slashes = len(inner) - len(inner.rstrip("\\"))
    is_closed = len(quoted) > 1 and quoted[-1] == quoted[0] and slashes % 2 == 0
    return f'"{_ESCAPE.sub(_rewrite_escape, inner)}"' if is_closed else quoted


def _rewrite_escape(escape: re.Match[str]) -> str:
    code, sign = escape[1], escape[2]
    if code is not None:
        return f"\\u00{code}"
    if sign is None:
        return '\\"'
    if sign in _SAME_ESCAPES:
        return escape[0]
    return "" if sign in _CONTINUATIONS else _OWN_ESCAPES.get(sign, sign)


_HEX_NUMBER: Final = re.compile(r"(-?)0[xX]([0-9a-fA-F]{1,16})")


def _rewrite_number(number: str) -> str:
    number = number.removeprefix("+")
    if hexadecimal := _HEX_NUMBER.fullmatch(number):
        return hexadecimal[1] + str(int(hexadecimal[2], 16))
    return re.sub(r"\.(?![0-9])", ".0", re.sub(r"^(-?)\.", r"\g<1>0.", number))


# Cards in PNG and APNG images

_PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS: Final = 10_000
MAX_TEXT: Final = 6 * 1024 * 1024
"""Bytes of one text chunk, compressed or not, before anything is decoded from it."""
_TEXTS: Final = (b"tEXt", b"zTXt", b"iTXt")
_NEWEST_FIRST: Final = ("ccv3", "chara")
_KEYWORDS: Final = (*_NEWEST_FIRST, "naidata")
"""Keywords of cards, and of lorebooks of NovelAI."""
_OF_CARDS: Final = ("ccv3", "chara")
"""Keyword prefixes of cards; some cards have assets in chunks called `chara-ext-asset_:<path>`."""
_MOST_TRIED: Final = 4
"""Cards of one file that are looked at until one can be read."""


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


def embed_card(image: bytes, name: str, keyword: str, card: bytes) -> bytes:
    """The image with its cards replaced by this one. TooLarge beyond the import limit."""
    if len(card) > MAX_JSON_BYTES:
        raise TooLarge(f"{name}: the card would exceed {MAX_JSON_BYTES} bytes")
    others = [chunk for chunk in iter_chunks(image, name) if chunk.keyword not in _NEWEST_FIRST]
    text = _Chunk(b"tEXt", keyword.encode("latin-1") + b"\0" + base64.b64encode(card))
    return _PNG_SIGNATURE + b"".join(map(_encode_chunk, _insert_before_end(others, text)))


def iter_chunks(image: bytes, name: str, damage: list[str] | None = None) -> Iterator[_Chunk]:
    """Chunks up to IEND. Data after it, which some tools add, is ignored. With `damage`, what is wrong is put there
    instead of refused, and the chunks before it stand."""
    if not image.startswith(_PNG_SIGNATURE):
        raise InvalidRequest(f"{name}: not a PNG image")
    at = len(_PNG_SIGNATURE)
    for _ in range(MAX_CHUNKS):
        if at + 12 > len(image):
            return _note_damage(damage, name, f"the image ends early, at byte {at}")
        length, kind = struct.unpack_from(">I4s", image, at)
        if length > len(image) - at - 12:
            return _note_damage(damage, name, f"the chunk at byte {at} is truncated: it declares {length} bytes")
        data = image[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from(">I", image, at + 8 + length)
        if zlib.crc32(data, zlib.crc32(kind)) != checksum:
            _note_damage(damage, name, f"the chunk at byte {at} has a wrong checksum")
        yield _Chunk(kind, data)
        if kind == b"IEND":
            return None
        at += 12 + length
    if damage is None:
        raise TooLarge(f"{name}: more than {MAX_CHUNKS} chunks")
    return _note_damage(damage, name, f"more than {MAX_CHUNKS} chunks")


def _note_damage(damage: list[str] | None, name: str, what: str) -> None:
    if damage is None:
        raise InvalidRequest(f"{name}: {what}")
    if len(damage) < _MOST_NAMED:
        damage.append(what)


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
    """Takes both alphabets, with and without padding, and JSON that is not encoded at all."""
    joined = b"".join(text.split()).rpartition(b"base64,")[2]  # a data URL names its encoding
    if joined.startswith(b"{"):
        return text
    if joined.startswith(b"rcc|"):
        raise InvalidRequest(
            f"{name}: the chunk {keyword!r} is an encrypted card of RisuAI: export it there without encryption",
            field=keyword,
        )
    plain = joined.translate(_ONE_ALPHABET).rstrip(b"=")
    try:
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"{name}: the chunk {keyword!r} is not base64", field=keyword) from None


_ONE_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")


def _insert_before_end(chunks: Sequence[_Chunk], text: _Chunk) -> list[_Chunk]:
    return [*chunks[:-1], text, chunks[-1]]


def _encode_chunk(chunk: _Chunk) -> bytes:
    return (
        struct.pack(">I", len(chunk.data))
        + chunk.kind
        + chunk.data
        + struct.pack(">I", zlib.crc32(chunk.data, zlib.crc32(chunk.kind)))
    )


# Files of any kind: what holds a card is tried until one can be read

MAX_BYTES: Final = 32 * 1024 * 1024
CARD: Final = "card.json"
_MEMBER: Final = b"PK\x03\x04"
_MAX_MEMBERS: Final = 10_000
"""Cards with a thousand pictures and more are in use."""
_MAX_UNPACKED: Final = 1024 * 1024 * 1024


@dataclass(frozen=True)
class CardFile:
    """`container`: JSON, PNG or CHARX. `beside`: descriptions of other contents, which are not read. `mended`: what
    had to be passed over or changed to read it."""

    value: JsonValue
    container: str
    beside: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()


def read_file(path: Path) -> CardFile:
    """TooLarge beyond MAX_BYTES; InvalidRequest naming the file and the invalid part."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TooLarge(f"{path.name}: larger than {MAX_BYTES} bytes")
    return read_bytes(content, path.name)


def read_bytes(content: bytes, name: str) -> CardFile:
    if content.startswith(_MEMBER):
        return _read_archive(content, name)
    if content.startswith(_PNG_SIGNATURE):
        try:
            return _read_image(content, name)
        except InvalidRequest:
            if not _ends_in_archive(content):
                raise
            return _read_archive(content, name)
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if not start or start in b"[{/" or content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        value, mended = _parse_json(content, name)
        return CardFile(value, "JSON", (), mended)
    if _MEMBER in content:  # behind a picture, or behind a program that unpacks it
        return _read_archive(content, name)
    module = "a module of RisuAI, and " if content.startswith(b"\x6f\x00") else ""
    raise InvalidRequest(f"{name}: this is {module}no card: neither a PNG image, a CHARX archive nor JSON")


def _ends_in_archive(content: bytes) -> bool:
    return content.rfind(b"PK\x05\x06", max(0, len(content) - 65_557)) >= 0


def _has_name(value: JsonValue) -> bool:
    try:
        card = parse_card(value)
    except InvalidRequest:
        return False
    return card is not None and bool(card.fields.values.get("name"))


def _choose_card(tries: Sequence[tuple[str, Callable[[], CardFile]]], refusal: str) -> CardFile:
    """The first card with a name, else the first value; InvalidRequest or TooLarge of the first try without one."""
    failures: list[GatewayError] = []
    read: list[CardFile] = []
    passed: list[str] = []
    for called, attempt in tries[:_MOST_TRIED]:
        try:
            found = attempt()
        except (InvalidRequest, TooLarge) as error:
            failures.append(error)
            passed.append(f"{called} is passed over: {error.detail[:200]}")
            continue
        if _has_name(found.value):
            return replace(found, mended=(*passed, *found.mended))
        read.append(replace(found, mended=(*passed, *found.mended)))
        passed.append(f"{called} is passed over: it holds no named card")
    if read:
        return read[0]
    raise failures[0] if failures else InvalidRequest(refusal)


def _read_image(content: bytes, name: str) -> CardFile:
    """Reads the newest card of an image that can be read."""
    damage: list[str] = []
    texts = [(word, chunk) for chunk in iter_chunks(content, name, damage) if (word := chunk.keyword) is not None]
    cards = [(word, chunk) for wanted in _KEYWORDS for word, chunk in texts if word == wanted]
    if not cards and damage:
        raise InvalidRequest(f"{name}: {damage[0]}")

    def read(keyword: str, chunk: _Chunk) -> CardFile:
        card = _decode_base64(_read_text(chunk, name, keyword), name, keyword)
        value, mended = _parse_json(card, f"{name}: {keyword}")
        others = [word for word, other in texts if other is not chunk and word.startswith(_OF_CARDS)]
        older = [f"the other card in the chunk {other}" for other in others if other in _NEWEST_FIRST]
        assets = len(others) - len(older)
        beside = ["the image itself", *older, *([f"{assets} assets in other chunks"] if assets else [])]
        return CardFile(value, "PNG", tuple(beside), (*damage, *mended))

    tries = [(f"the card in the chunk {word}", partial(read, word, chunk)) for word, chunk in cards]
    return _choose_card(tries, f"{name}: holds no card: no text chunk is called {' or '.join(_NEWEST_FIRST)}")


def _read_archive(content: bytes, name: str) -> CardFile:
    """Reads `card.json` wherever it lies, else a card that somebody has packed."""
    try:
        opened = ZipReader(content, name, _MAX_UNPACKED, _MAX_MEMBERS)
    except DamagedArchive as error:
        return _read_damaged(content, name, error)
    others = len(opened.members) - 1
    beside = (f"{others} more members of the archive",) if others else ()
    paths = {member.filename: PurePosixPath(member.filename.replace("\\", "/")) for member in opened.members}
    members = sorted(opened.members, key=lambda member: len(paths[member.filename].parts))
    cards = [member for member in members if paths[member.filename].name.casefold() == CARD]
    packed = [member for member in members if paths[member.filename].suffix.casefold() in (".png", ".json")]

    def read(member: zipfile.ZipInfo) -> CardFile:
        shown = f"{name}: {member.filename[:100]}"
        picture = member.filename.casefold().endswith(".png")
        try:
            found = _read_unpacked(opened.read(member, MAX_BYTES if picture else MAX_JSON_BYTES), shown)
        except DamagedArchive as error:
            found = _read_damaged(content, name, error)
        return replace(found, container=found.container if picture else "CHARX", beside=beside)

    tries = [(member.filename[:100], partial(read, member)) for member in cards or packed]
    modules = any(member.filename.endswith(".risum") for member in members)
    module = "; a module of RisuAI is not read" if modules else ""
    return _choose_card(tries, f"{name}: holds no member called {CARD}, and no PNG image or JSON file{module}")


def _read_unpacked(content: bytes, name: str) -> CardFile:
    if content.startswith(_PNG_SIGNATURE):
        return _read_image(content, name)
    value, mended = _parse_json(content, name)
    return CardFile(value, "JSON", (), mended)


def _read_damaged(content: bytes, name: str, error: DamagedArchive) -> CardFile:
    """Looks for `card.json` by what stands before each member, where the archive's directory is lost or the checksum
    is wrong."""
    at = content.find(_MEMBER)
    for _ in range(_MAX_MEMBERS):
        if at < 0 or at + 30 > len(content):
            break
        flags, method = struct.unpack_from("<HH", content, at + 6)
        packed, _, length, extra = struct.unpack_from("<IIHH", content, at + 18)
        begin = at + 30 + length + extra
        member = content[at + 30 : at + 30 + length].decode("utf-8", "replace")
        if PurePosixPath(member).name.casefold() == CARD and not flags & 1 and method in (0, 8):
            card = _unpack(memoryview(content)[begin:], packed, method)
            value, mended = _parse_json(card, f"{name}: {CARD}")
            said = error.detail.removeprefix(f"{name}: ")
            return CardFile(value, "CHARX", (), (f"the archive is damaged: {said}", *mended))
        at = content.find(_MEMBER, at + 4)
    raise error


def _unpack(packed: memoryview, size: int, method: int) -> bytes:
    """At most one byte more than a card may have."""
    if method == 0:
        return bytes(packed[: min(size, MAX_JSON_BYTES + 1)])
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, MAX_JSON_BYTES + 1)
    except zlib.error:
        return b""
