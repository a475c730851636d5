"""A folder of characters in a ZIP file, with the revisions that its files are."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from app.characters.loading import MAX_FILE_BYTES, MAX_FILES
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
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            if len(infos) > MAX_FILES or sum(info.file_size for info in infos) > MAX_UNPACKED:
                raise TooLarge(f"the archive has more than {MAX_FILES} files or {MAX_UNPACKED} bytes")
            read = {info.filename: _read_member(archive, info) for info in infos}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError) as error:
        raise InvalidRequest(f"this is no ZIP file that can be read: {error}") from None
    tops = {name.partition("/")[0] for name in read}
    inside = len(tops) == 1 and all("/" in name for name in read) and tops != {"scenes"}
    return {name.partition("/")[2] if inside else name: body for name, body in read.items()}


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """What a member claims to be is not trusted."""
    with archive.open(info) as member:
        body = member.read(MAX_FILE_BYTES + 1)
    if len(body) > MAX_FILE_BYTES:
        raise TooLarge(f"{info.filename[:100]}: larger than {MAX_FILE_BYTES} bytes")
    return body


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
