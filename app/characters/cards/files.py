"""Files that hold a card or a lorebook: JSON, PNG, CHARX, told apart by how they begin and not by their names."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from app.characters.cards import charx, png
from app.characters.cards.strict_json import parse_json
from app.domain.errors import TooLarge

MAX_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class Found:
    """`container`: JSON, PNG or CHARX. `beside`: what the file holds besides and is not read, in words."""

    value: JsonValue
    container: str
    beside: tuple[str, ...] = ()


def read_file(path: Path) -> Found:
    """TooLarge beyond MAX_BYTES, InvalidRequest naming the file and the part of it for what cannot be read."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TooLarge(f"{path.name}: larger than {MAX_BYTES} bytes")
    return read_bytes(content, path.name)


def read_bytes(content: bytes, name: str) -> Found:
    if content.startswith(png.SIGNATURE):
        return _in_image(content, name)
    if content.startswith(charx.SIGNATURE):
        card, others = charx.card_in_archive(content, name)
        beside = (f"{others} more members of the archive",) if others else ()
        return Found(parse_json(card, f"{name}: {charx.CARD}"), "CHARX", beside)
    return Found(parse_json(content, name), "JSON")


def _in_image(content: bytes, name: str) -> Found:
    """The newer card wins where an image holds two."""
    keyword, card, others = png.card_in(content, name)
    older = [f"the other card in the chunk {other}" for other in others if other in png.NEWEST_FIRST]
    assets = len(others) - len(older)
    beside = ["the image itself", *older, *([f"{assets} assets in other chunks"] if assets else [])]
    return Found(parse_json(card, f"{name}: {keyword}"), "PNG", tuple(beside))
