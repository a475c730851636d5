"""Characters and worlds in one file: a folder of sheets and scenes as a ZIP archive with its revisions; a world.

Archives come from strangers and are read in memory. What a member claims to be is not trusted: names that leave the
archive, links, encryption and sizes beyond the limits are refused before anything is unpacked.
"""

import contextlib
import io
import json
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from app.characters.loading import (
    MAX_FILE_BYTES,
    MAX_FILES,
    WORLDS,
    FieldPath,
    YamlDocument,
    list_yaml_files,
    parse_document,
    read_text,
)
from app.characters.lorebooks import refuse_unusable
from app.characters.schema import Text
from app.domain.authored_files import MAX_AUTHORED, AuthoredFile
from app.domain.errors import InvalidRequest, TooLarge
from app.domain.faults import explain_faults
from app.domain.values import Frozen, Name
from app.domain.worlds import Event, EventId, GameTime, Lorebook

# ZIP files, read within limits

MAX_DIRECTORY: Final = 1024 * 1024
_END: Final = b"PK\x05\x06"


class DamagedArchive(InvalidRequest):
    """Bytes are missing or wrong."""


class ZipReader:
    """InvalidRequest or TooLarge naming `name` and the member; DamagedArchive."""

    def __init__(self, content: bytes, name: str, most_unpacked: int, most_members: int = MAX_FILES) -> None:
        self._name = name
        self._most_members = most_members
        _refuse_large_directory(content, name, most_members)
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
        if len(self.members) > self._most_members:
            raise TooLarge(f"{self._name}: more than {self._most_members} members")
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


def _refuse_large_directory(content: bytes, name: str, most_members: int) -> None:
    """Checks the size before zipfile creates an object per member. ZIP64 archives are too large by definition."""
    at = content.rfind(_END, max(0, len(content) - 65_557))  # the record itself and its longest comment
    if at < 0 or at + 22 > len(content):
        raise DamagedArchive(f"{name}: not a readable ZIP archive: the end record is missing")
    count, size = struct.unpack_from("<HI", content, at + 10)
    if count > most_members or size > MAX_DIRECTORY or content[max(0, at - 20) : at].startswith(b"PK\x06\x07"):
        raise TooLarge(f"{name}: more than {most_members} members")


@contextlib.contextmanager
def _naming_damage(name: str) -> Iterator[None]:
    """RuntimeError and OverflowError come from features and places that no such file has."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, OverflowError, EOFError, ValueError) as error:
        raise DamagedArchive(f"{name}: not a readable ZIP archive: {' '.join(str(error).split())[:200]}") from None


# Archives of characters

MAX_ARCHIVE_BYTES: Final = 32 * 1024 * 1024
MAX_UNPACKED: Final = 64 * 1024 * 1024
NUMBERS: Final = ".revisions.json"
"""The member that says which revision each file is; without an entry it is none that is stored."""
_STARTS: Final = (1980, 1, 1, 0, 0, 0)
"""The first time that a ZIP archive can name, so that the same texts are the same bytes."""
_FILE: Final = TypeAdapter[str](AuthoredFile)
_NUMBERS: Final = TypeAdapter(dict[str, Annotated[int, Field(ge=0, le=2**31)]])


@dataclass(frozen=True)
class CharacterArchive:
    """Sheets and scenes by file. `others` are members that are neither."""

    texts: Mapping[str, str]
    numbers: Mapping[str, int]
    others: Mapping[str, bytes]


def write_archive(texts: Mapping[str, str], numbers: Mapping[str, int]) -> bytes:
    """The same bytes for the same texts."""
    members = {**texts, NUMBERS: json.dumps(numbers, indent=1, sort_keys=True) + "\n"}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(members):
            archive.writestr(zipfile.ZipInfo(name, _STARTS), members[name].encode(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def read_archive(content: bytes) -> CharacterArchive:
    """As `unpack_archive`; InvalidRequest for one without a sheet and without scenes."""
    archive = unpack_archive(content)
    if not archive.texts:
        raise InvalidRequest("the archive has no sheet and no scenes: a sheet is `<id>.yaml`, scenes are in `scenes/`")
    return archive


def unpack_archive(content: bytes) -> CharacterArchive:
    """InvalidRequest for what is no such archive; TooLarge."""
    members = _read_members(content)
    numbers = read_numbers(members.pop(NUMBERS, b"{}"))
    texts = {name: _decode(name, body) for name, body in members.items() if _is_file(name)}
    return CharacterArchive(texts, numbers, {name: body for name, body in members.items() if name not in texts})


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
    contents = {member.filename: opened.read(member, MAX_FILE_BYTES) for member in files}
    tops = {name.partition("/")[0] for name in contents}
    inside = len(tops) == 1 and all("/" in name for name in contents) and tops != {"scenes"}
    return {name.partition("/")[2] if inside else name: body for name, body in contents.items()}


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


# World files: events, branches and lorebooks

_MAX_WORLD_BYTES: Final = 8 * 1024 * 1024

Timeline = Annotated[tuple[Event, ...], Field(max_length=100_000)]


class WorldBranch(Frozen):
    """A branch of the world from a point in time."""

    world: Name
    """The branch's own name."""
    at: GameTime
    """Time up to which it shares its parent's past, inclusive."""
    events: Timeline = ()
    withdrawn: tuple[EventId, ...] = ()
    """Events of the parent's past that did not happen in the branch."""
    lorebooks: dict[Name, Lorebook] = {}


class WorldFile(Frozen):
    """Contents of a world file, in the order of loading."""

    world: Name
    about: Text | None = None
    """A comment for readers of the file."""
    events: Timeline
    withdrawn: tuple[EventId, ...] = ()
    """Events that are loaded and then withdrawn: they never happened."""
    branches: tuple[WorldBranch, ...] = ()
    lorebooks: dict[Name, Lorebook] = {}


def list_world_files(folder: Path) -> Sequence[Path]:
    """The worlds that a folder of sheets brings: files in its folder `worlds`, by name."""
    worlds = folder / WORLDS
    return list_yaml_files(worlds) if worlds.is_dir() else ()


def read_world(path: Path) -> WorldFile:
    """Reads a YAML or JSON file. InvalidRequest naming the file, the line and the field; TooLarge."""
    return parse_world(read_text(path, _MAX_WORLD_BYTES), path.name)


def parse_world(text: str, name: str) -> WorldFile:
    """InvalidRequest naming `name`, the line and the field."""
    document = parse_document(text, name)
    try:
        world = WorldFile.model_validate(document.value)
    except ValidationError as error:
        first = explain_faults(error, WorldFile)[0]
        raise _build_refusal(name, document, first.path, first.words) from None
    for at, message in _find_duplicates(world):
        raise _build_refusal(name, document, at, message)
    for path, book in _iter_lorebooks(world):
        try:
            refuse_unusable(book)
        except InvalidRequest as error:
            raise _build_refusal(name, document, (*path, *_split_path(error.field)), error.detail) from None
    return world


def _iter_lorebooks(world: WorldFile) -> Iterator[tuple[FieldPath, Lorebook]]:
    for called, book in world.lorebooks.items():
        yield ("lorebooks", called), book
    for number, branch in enumerate(world.branches):
        for called, book in branch.lorebooks.items():
            yield ("branches", number, "lorebooks", called), book


def _find_duplicates(world: WorldFile) -> Iterator[tuple[FieldPath, str]]:
    names = [world.world, *(branch.world for branch in world.branches)]
    for number in _find_repeats(names):
        yield ("branches", number - 1, "world"), f"the name {names[number]!r} is taken"
    lines = [((), world.events), *((("branches", n), branch.events) for n, branch in enumerate(world.branches))]
    for path, events in lines:
        ids = [event.id for event in events]
        for number in _find_repeats(ids):
            yield (*path, "events", number, "id"), f"{ids[number]!r} occurs more than once"


def _find_repeats(names: Iterable[str]) -> Iterator[int]:
    """Indices of repeated names."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield index
        seen.add(name)


def _split_path(field: str | None) -> Iterator[int | str]:
    """Path steps of a field such as `entries[3].keys[0]`."""
    for step in (field or "").replace("]", "").replace("[", ".").split("."):
        yield int(step) if step.isdecimal() else step


def _build_refusal(name: str, document: YamlDocument, at: FieldPath, message: str) -> InvalidRequest:
    field = ".".join(str(step) for step in at)
    words = " ".join(message.split())[:300]
    said = f"{field}: {words}" if field else words
    return InvalidRequest(f"{name}, line {document.find_line(at)}: {said}", field=field or None)
