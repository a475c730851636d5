"""A folder of characters in a ZIP file, with the revisions that its files are."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from app.characters.loading import MAX_FILE_BYTES
from app.characters.zip_files import ZipReader
from app.domain.authored_files import MAX_AUTHORED, AuthoredFile
from app.domain.errors import InvalidRequest, TooLarge

MAX_ARCHIVE_BYTES: Final = 32 * 1024 * 1024
MAX_UNPACKED: Final = 64 * 1024 * 1024
NUMBERS: Final = ".revisions.json"
"""The member that says which revision each file is; without an entry it is none that is stored."""
_STARTS: Final = (1980, 1, 1, 0, 0, 0)
_FILE: Final = TypeAdapter[str](AuthoredFile)
_NUMBERS: Final = TypeAdapter(dict[str, Annotated[int, Field(ge=0, le=2**31)]])


@dataclass(frozen=True)
class CharacterArchive:
    """Sheets and scenes by file. `left_out` are members that are neither."""

    texts: Mapping[str, str]
    numbers: Mapping[str, int]
    left_out: tuple[str, ...]


def write_archive(texts: Mapping[str, str], numbers: Mapping[str, int]) -> bytes:
    """The same bytes for the same texts."""
    told = {**texts, NUMBERS: json.dumps(numbers, indent=1, sort_keys=True) + "\n"}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(told):
            archive.writestr(zipfile.ZipInfo(name, _STARTS), told[name].encode(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def read_archive(content: bytes) -> CharacterArchive:
    """InvalidRequest for what is no such archive; TooLarge."""
    members = _read_members(content)
    numbers = members.pop(NUMBERS, b"{}")
    texts, left_out = {}, []
    for name, body in members.items():
        if _is_file(name):
            texts[name] = _decode(name, body)
        else:
            left_out.append(name)
    if not texts:
        raise InvalidRequest("the archive has no sheet and no scenes: a sheet is `<id>.yaml`, scenes are in `scenes/`")
    return CharacterArchive(texts, read_numbers(numbers), tuple(left_out))


def read_numbers(content: bytes) -> dict[str, int]:
    """InvalidRequest."""
    try:
        return _NUMBERS.validate_json(content)
    except ValidationError:
        raise InvalidRequest(f"{NUMBERS}: must be an object of whole numbers from 0") from None


def _read_members(content: bytes) -> dict[str, bytes]:
    """By name, without a folder that all are in."""
    opened = ZipReader(content, "the archive", MAX_UNPACKED)
    files = [member for member in opened.members if not member.is_dir()]
    read = {member.filename: opened.read(member, MAX_FILE_BYTES) for member in files}
    tops = {name.partition("/")[0] for name in read}
    inside = len(tops) == 1 and all("/" in name for name in read) and tops != {"scenes"}
    return {name.partition("/")[2] if inside else name: body for name, body in read.items()}


def _is_file(name: str) -> bool:
    try:
        return bool(_FILE.validate_python(name))
    except ValidationError:
        return False


def _decode(name: str, body: bytes) -> str:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name}: not UTF-8 at byte {error.start}") from None
    if len(text) > MAX_AUTHORED:
        raise TooLarge(f"{name}: longer than {MAX_AUTHORED} characters")
    return text
