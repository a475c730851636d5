"""Cards in CHARX archives: reads `card.json` from the ZIP file without unpacking to disk."""

import stat
import struct
import zipfile
import zlib
from io import BytesIO
from typing import Final

from app.characters.cards.strict_json import MAX_JSON_BYTES
from app.domain.errors import InvalidRequest, TooLarge

SIGNATURE: Final = b"PK\x03\x04"
CARD: Final = "card.json"
MAX_MEMBERS: Final = 2000
MAX_DIRECTORY: Final = 1024 * 1024
MAX_UNPACKED: Final = 1024 * 1024 * 1024
_END: Final = b"PK\x05\x06"


def extract_card_from_archive(archive: bytes, name: str) -> tuple[bytes, int]:
    """The content of `card.json`, and the number of other members. InvalidRequest or TooLarge naming `name` and the
    member."""
    _refuse_large_directory(archive, name)
    try:
        with zipfile.ZipFile(BytesIO(archive)) as opened:
            members = opened.infolist()
            _refuse_members(members, name)
            cards = [member for member in members if member.filename == CARD]
            if len(cards) != 1:
                raise InvalidRequest(f"{name}: holds {len(cards)} members called {CARD}, not one", field=CARD)
            if cards[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InvalidRequest(f"{name}: {CARD} uses an unsupported compression method", field=CARD)
            with opened.open(cards[0]) as file:
                content = file.read(MAX_JSON_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, EOFError, ValueError) as error:
        raise InvalidRequest(f"{name}: not a readable ZIP archive: {' '.join(str(error).split())[:200]}") from None
    if len(content) > MAX_JSON_BYTES:
        raise TooLarge(f"{name}: {CARD} unpacks to more than {MAX_JSON_BYTES} bytes", field=CARD)
    return content, len(members) - 1


def _refuse_large_directory(archive: bytes, name: str) -> None:
    """Checks the size before zipfile creates an object per member. ZIP64 archives are too large by definition."""
    at = archive.rfind(_END, max(0, len(archive) - 65_557))
    if at < 0 or at + 22 > len(archive):
        raise InvalidRequest(f"{name}: not a readable ZIP archive: the end record is missing")
    count, size = struct.unpack_from("<HI", archive, at + 10)
    if count > MAX_MEMBERS or size > MAX_DIRECTORY or archive[max(0, at - 20) : at].startswith(b"PK\x06\x07"):
        raise TooLarge(f"{name}: more than {MAX_MEMBERS} members")


def _refuse_members(members: list[zipfile.ZipInfo], name: str) -> None:
    if len(members) > MAX_MEMBERS:
        raise TooLarge(f"{name}: more than {MAX_MEMBERS} members")
    for member in members:
        shown = f"{name}: the member {member.orig_filename[:100]!r}"
        parts = member.orig_filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or ":" in parts[0] or "\0" in member.orig_filename:
            raise InvalidRequest(f"{shown} points outside the archive", field=member.filename[:100])
        if stat.S_ISLNK(member.external_attr >> 16):
            raise InvalidRequest(f"{shown} is a link", field=member.filename[:100])
        if member.flag_bits & 1:
            raise InvalidRequest(f"{shown} is encrypted", field=member.filename[:100])
    if sum(member.file_size for member in members) > MAX_UNPACKED:
        raise TooLarge(f"{name}: unpacks to more than {MAX_UNPACKED} bytes")
