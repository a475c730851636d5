"""Character cards with every field that their specifications list, and files that hold them."""

import base64
import json
import struct
import zipfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import yaml
from pydantic import JsonValue

Fields = dict[str, JsonValue]

_CARDS: dict[str, Fields] = yaml.load(
    Path(__file__).with_name("cards.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
V1, V2, V3, BOOK_V2, BOOK_V3 = (_CARDS[name] for name in ("V1", "V2", "V3", "BOOK_V2", "BOOK_V3"))


def chunk(kind: bytes, data: bytes, checksum: int | None = None) -> bytes:
    made = zlib.crc32(kind + data) if checksum is None else checksum
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", made)


def text_chunk(keyword: str, card: JsonValue) -> bytes:
    return chunk(b"tEXt", keyword.encode() + b"\0" + base64.b64encode(json.dumps(card).encode()))


def image(*between: bytes, ends: bool = True) -> bytes:
    """One grey pixel, with these chunks before its end."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\0\x80"))
    return b"\x89PNG\r\n\x1a\n" + b"".join([head, pixel, *between, chunk(b"IEND", b"") if ends else b""])


def archive(members: Sequence[tuple[zipfile.ZipInfo | str, bytes]], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", packing) as opened:
        for name, content in members:
            opened.writestr(name, content, packing)
    return file.getvalue()
