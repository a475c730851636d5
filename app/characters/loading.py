"""Safe loading of sheets, scenes and lorebooks from folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from app.characters.lorebooks.validation import refuse_unusable
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from app.characters.yaml_documents import build_yaml_refusal, parse_document
from app.domain.errors import InvalidRequest, NotFound, TooLarge
from app.domain.lorebooks import Lorebook
from app.domain.suggestions import suggest

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FILES = 2000
"""Of a folder, and of an archive."""
SCENES, LOREBOOKS, WORLDS = "scenes", "lorebooks", "worlds"
"""What a folder of sheets may bring along, as folders in it."""
NOTHING_WRITTEN: Final[Mapping[str, str]] = MappingProxyType({})
"""What stands in place of files or beside them, by their paths in the folder: `hob.yaml`, `scenes/hob.yaml`."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def parse_yaml(text: str, name: str) -> JsonValue:
    """The value of `parse_document`."""
    return parse_document(text, name).value


def parse_model(text: str, name: str, model: type[ModelT]) -> ModelT:
    """InvalidRequest naming `name` and the field."""
    value = parse_yaml(text, name)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise build_yaml_refusal(name, error) from None


def read_sheet(path: Path) -> CharacterSheet:
    """Reads a sheet, whose id must equal the file name, with the lorebook beside it."""
    return parse_sheet(path, read_text(path))


def parse_sheet(path: Path, text: str) -> CharacterSheet:
    """As `read_sheet`, of the text that the file has or should have."""
    sheet = parse_model(text, path.name, CharacterSheet)
    if sheet.id != path.stem:
        reason = f"{path.name}: meta.id: is {sheet.id!r}, but the file name says {path.stem!r}"
        raise InvalidRequest(reason, field="meta.id")
    book = find_lorebook_beside(path)
    return sheet if book is None else _add_lorebook(sheet, _read_lorebook(book))


def find_lorebook_beside(sheet: Path) -> Path | None:
    """The lorebook that a folder of sheets brings for this one."""
    book = sheet.parent / LOREBOOKS / sheet.name
    return book if book.is_file() else None


def read_sheets(folder: Path, written: Mapping[str, str] = NOTHING_WRITTEN) -> tuple[CharacterSheet, ...]:
    """All sheets of a folder by id, with the lorebooks beside them. NotFound without any, InvalidRequest or TooLarge
    for the first broken one."""
    read_own_lorebooks(folder)
    files = {path.name for path in list_yaml_files(folder)} | {name for name in written if "/" not in name}
    return tuple(
        parse_sheet(folder / name, written[name]) if name in written else read_sheet(folder / name)
        for name in sorted(files)
    )


def read_own_lorebooks(sheets: Path) -> dict[str, Lorebook]:
    """The lorebooks that a folder of sheets brings, by character, which is the file's name; none without a folder for
    them."""
    folder = sheets / LOREBOOKS
    files = list_yaml_files(folder) if folder.is_dir() else ()
    stray = next((path for path in files if not (sheets / path.name).exists()), None)
    if stray is not None:
        near = suggest(stray.stem, (path.stem for path in sheets.glob("*.yaml")))
        raise InvalidRequest(f"{LOREBOOKS}/{stray.name}: there is no sheet {stray.stem!r}{near}", field="lorebook")
    return {path.stem: _read_lorebook(path) for path in files}


def _read_lorebook(path: Path) -> Lorebook:
    return parse_model(read_text(path), f"{LOREBOOKS}/{path.name}", Lorebook)


def _add_lorebook(sheet: CharacterSheet, book: Lorebook) -> CharacterSheet:
    name = f"{LOREBOOKS}/{sheet.id}.yaml"
    if sheet.lorebook is not None:
        raise InvalidRequest(f"{name}: the sheet has a lorebook already", field="lorebook")
    try:
        refuse_unusable(book)
    except InvalidRequest as error:
        raise InvalidRequest(f"{name}: {error.field}: {error.detail}", field=error.field) from None
    return sheet.model_copy(update={"lorebook": book})


def read_scenes(folder: Path, written: Mapping[str, str] = NOTHING_WRITTEN) -> tuple[SceneSet, ...]:
    """Reads all scene files of a folder; scene ids must be unique. `written`: by file name."""
    return _read_scene_files({path.name: path for path in list_yaml_files(folder)}, written)


def _read_scene_files(files: Mapping[str, Path], written: Mapping[str, str]) -> tuple[SceneSet, ...]:
    names = sorted({*files, *written})
    texts = ((name, written[name] if name in written else read_text(files[name])) for name in names)
    sets = tuple(parse_model(text, name, SceneSet) for name, text in texts)
    seen: set[str] = set()
    for scene in (scene for scenes in sets for scene in scenes.scenes):
        if scene.id in seen:
            raise InvalidRequest(f"scenes: the id {scene.id!r} occurs more than once", field="id")
        seen.add(scene.id)
    return sets


def read_own_scenes(sheets: Path, written: Mapping[str, str] = NOTHING_WRITTEN) -> tuple[SceneSet, ...]:
    """The scenes that a folder of sheets brings; none without a folder for them."""
    folder, own = sheets / SCENES, list_written_scenes(written)
    return read_scenes(folder, own) if folder.is_dir() else _read_scene_files({}, own)


def list_written_scenes(written: Mapping[str, str]) -> dict[str, str]:
    """Files of scenes by their names."""
    return {name.removeprefix(f"{SCENES}/"): text for name, text in written.items() if name.startswith(f"{SCENES}/")}


def list_yaml_files(folder: Path) -> Sequence[Path]:
    """Sorted by name. NotFound without any, TooLarge for too many, InvalidRequest for a file outside the folder."""
    if not folder.is_dir():
        raise NotFound(f"{folder.name}: no such folder")
    files = sorted(path for path in folder.iterdir() if path.suffix == ".yaml")
    if not files:
        raise NotFound(f"{folder.name}: contains no YAML file")
    if len(files) > MAX_FILES:
        raise TooLarge(f"{folder.name}: more than {MAX_FILES} files")
    inside = folder.resolve()
    for path in files:
        # links within the folder are how Kubernetes mounts files; others could show any file of the machine
        if not path.is_file() or not path.resolve().is_relative_to(inside):
            raise InvalidRequest(f"{path.name}: not a regular file in this folder")
    return files


def read_text(path: Path, most: int = MAX_FILE_BYTES) -> str:
    """UTF-8. TooLarge beyond `most` bytes, InvalidRequest for other encodings."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise TooLarge(f"{path.name}: larger than {most} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path.name}: not UTF-8 at byte {error.start}") from None
