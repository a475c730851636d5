"""Cards in CHARX archives: reads `card.json` from the ZIP file without unpacking to disk."""

from typing import Final

from app.characters.cards.strict_json import MAX_JSON_BYTES
from app.characters.zip_files import ZipReader
from app.domain.errors import InvalidRequest

SIGNATURE: Final = b"PK\x03\x04"
CARD: Final = "card.json"
MAX_UNPACKED: Final = 1024 * 1024 * 1024


def extract_card_from_archive(archive: bytes, name: str) -> tuple[bytes, int]:
    """The content of `card.json`, and the number of other members. InvalidRequest or TooLarge naming `name` and the
    member."""
    opened = ZipReader(archive, name, MAX_UNPACKED)
    cards = [member for member in opened.members if member.filename == CARD]
    if len(cards) != 1:
        raise InvalidRequest(f"{name}: holds {len(cards)} members called {CARD}, not one", field=CARD)
    return opened.read(cards[0], MAX_JSON_BYTES), len(opened.members) - 1
