"""ZIP files that strangers send, read in memory within limits."""

import contextlib
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Final

from app.characters.loading import MAX_FILES
from app.domain.errors import InvalidRequest, TooLarge

MAX_DIRECTORY: Final = 1024 * 1024
_END: Final = b"PK\x05\x06"


class ZipReader:
    """InvalidRequest or TooLarge naming `name` and the member."""

    def __init__(self, content: bytes, name: str, most_unpacked: int) -> None:
        self._name = name
        _refuse_large_directory(content, name)
        with _naming_damage(name):
            self._opened = zipfile.ZipFile(BytesIO(content))
        self.members = tuple(self._opened.infolist())
        self._refuse_members(most_unpacked)

    def read(self, member: zipfile.ZipInfo, most: int) -> bytes:
        """What a member claims to be is not trusted."""
        shown, field = f"{self._name}: {member.filename[:100]}", member.filename[:100]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InvalidRequest(f"{shown} uses an unsupported compression method", field=field)
        with _naming_damage(self._name), self._opened.open(member) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise TooLarge(f"{shown} unpacks to more than {most} bytes", field=field)
        return content

    def _refuse_members(self, most_unpacked: int) -> None:
        if len(self.members) > MAX_FILES:
            raise TooLarge(f"{self._name}: more than {MAX_FILES} members")
        for member in self.members:
            shown = f"{self._name}: the member {member.orig_filename[:100]!r}"
            parts = member.orig_filename.replace("\\", "/").split("/")
            if ".." in parts or parts[0] == "" or ":" in parts[0] or "\0" in member.orig_filename:
                raise InvalidRequest(f"{shown} points outside the archive", field=member.filename[:100])
            if stat.S_ISLNK(member.external_attr >> 16):
                raise InvalidRequest(f"{shown} is a link", field=member.filename[:100])
            if member.flag_bits & 1:
                raise InvalidRequest(f"{shown} is encrypted", field=member.filename[:100])
        if sum(member.file_size for member in self.members) > most_unpacked:
            raise TooLarge(f"{self._name}: unpacks to more than {most_unpacked} bytes")


def _refuse_large_directory(content: bytes, name: str) -> None:
    """Checks the size before zipfile creates an object per member. ZIP64 archives are too large by definition."""
    at = content.rfind(_END, max(0, len(content) - 65_557))
    if at < 0 or at + 22 > len(content):
        raise InvalidRequest(f"{name}: not a readable ZIP archive: the end record is missing")
    count, size = struct.unpack_from("<HI", content, at + 10)
    if count > MAX_FILES or size > MAX_DIRECTORY or content[max(0, at - 20) : at].startswith(b"PK\x06\x07"):
        raise TooLarge(f"{name}: more than {MAX_FILES} members")


@contextlib.contextmanager
def _naming_damage(name: str) -> Iterator[None]:
    """RuntimeError and OverflowError come from features and places that no such file has."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, OverflowError, EOFError, ValueError) as error:
        raise InvalidRequest(f"{name}: not a readable ZIP archive: {' '.join(str(error).split())[:200]}") from None
