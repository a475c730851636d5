"""Cards in PNG and APNG images: only text chunks are read and written; images are never decoded."""

import base64
import binascii
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.characters.cards.strict_json import MAX_JSON_BYTES
from app.domain.errors import InvalidRequest, TooLarge

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS: Final = 10_000
MAX_TEXT: Final = 6 * 1024 * 1024
"""Bytes of one text chunk, compressed or not, before anything is decoded from it."""
_TEXTS: Final = (b"tEXt", b"zTXt", b"iTXt")
NEWEST_FIRST: Final = ("ccv3", "chara")
OF_CARDS: Final = ("ccv3", "chara")
"""Keyword prefixes of cards; some cards have assets in chunks called `chara-ext-asset_:<path>`."""


@dataclass(frozen=True)
class Chunk:
    kind: bytes
    data: bytes

    @property
    def keyword(self) -> str | None:
        """Lower-case keyword of a text chunk."""
        if self.kind not in _TEXTS:
            return None
        word, found, _ = self.data[:80].partition(b"\0")
        return word.decode("latin-1").casefold() if found else None


def extract_card_from_image(image: bytes, name: str) -> tuple[str, bytes, tuple[str, ...]]:
    """The keyword and content of the newest card, and the keywords of all other card chunks. InvalidRequest or TooLarge
    naming `name` and the chunk."""
    texts = [(keyword, chunk) for chunk in iter_chunks(image, name) if (keyword := chunk.keyword) is not None]
    for wanted in NEWEST_FIRST:
        for keyword, chunk in texts:
            if keyword == wanted:
                others = tuple(word for word, other in texts if other is not chunk and word.startswith(OF_CARDS))
                return keyword, _decode_base64(_read_text(chunk, name, keyword), name, keyword), others
    raise InvalidRequest(f"{name}: holds no card: no text chunk is called {' or '.join(NEWEST_FIRST)}")


def embed_card(image: bytes, name: str, keyword: str, card: bytes) -> bytes:
    """The image with its cards replaced by this one. TooLarge beyond the import limit."""
    if len(card) > MAX_JSON_BYTES:
        raise TooLarge(f"{name}: the card would exceed {MAX_JSON_BYTES} bytes")
    kept = [chunk for chunk in iter_chunks(image, name) if chunk.keyword not in NEWEST_FIRST]
    text = Chunk(b"tEXt", keyword.encode("latin-1") + b"\0" + base64.b64encode(card))
    return SIGNATURE + b"".join(map(_encode_chunk, _insert_before_end(kept, text)))


def iter_chunks(image: bytes, name: str) -> Iterator[Chunk]:
    """Chunks up to IEND. Data after it, which some tools add, is ignored."""
    if not image.startswith(SIGNATURE):
        raise InvalidRequest(f"{name}: not a PNG image")
    at = len(SIGNATURE)
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
        yield Chunk(kind, data)
        if kind == b"IEND":
            return
        at += 12 + length
    raise TooLarge(f"{name}: more than {MAX_CHUNKS} chunks")


def _read_text(chunk: Chunk, name: str, keyword: str) -> bytes:
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
    stream = zlib.decompressobj()
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


def _insert_before_end(found: Sequence[Chunk], text: Chunk) -> list[Chunk]:
    return [*found[:-1], text, found[-1]]


def _encode_chunk(chunk: Chunk) -> bytes:
    return (
        struct.pack(">I", len(chunk.data))
        + chunk.kind
        + chunk.data
        + struct.pack(">I", zlib.crc32(chunk.data, zlib.crc32(chunk.kind)))
    )
