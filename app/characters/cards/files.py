"""Card and lorebook files: JSON, PNG or CHARX, detected by content."""

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from app.characters.cards import charx, png
from app.characters.cards.strict_json import parse_json
from app.domain.errors import InvalidRequest, TooLarge

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
    if content.startswith(png.SIGNATURE):
        return _read_image(content, name)
    if content.startswith(charx.SIGNATURE):
        card, others = charx.extract_card_from_archive(content, name)
        beside = (f"{others} more members of the archive",) if others else ()
        return CardFile(parse_json(card, f"{name}: {charx.CARD}"), "CHARX", beside)
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start and start not in b"[{" and not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidRequest(f"{name}: this is no card: neither a PNG image, a CHARX archive nor JSON")
    return CardFile(parse_json(content, name), "JSON")


def _read_image(content: bytes, name: str) -> CardFile:
    """Reads the newer card of an image with two."""
    keyword, card, others = png.extract_card_from_image(content, name)
    older = [f"the other card in the chunk {other}" for other in others if other in png.NEWEST_FIRST]
    assets = len(others) - len(older)
    beside = ["the image itself", *older, *([f"{assets} assets in other chunks"] if assets else [])]
    return CardFile(parse_json(card, f"{name}: {keyword}"), "PNG", tuple(beside))
