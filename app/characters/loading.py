"""Safe loading of sheets and scenes from untrusted YAML."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from app.characters.lorebooks.validation import refuse_unusable
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from app.domain.errors import InvalidRequest, NotFound, TooLarge
from app.domain.lorebooks import Lorebook
from app.domain.values import MAX_JSON_DEPTH, FiniteJson

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FILES = 2000
SCENES, LOREBOOKS, WORLDS = "scenes", "lorebooks", "worlds"
"""What a folder of sheets may bring along, as folders in it."""

ModelT = TypeVar("ModelT", bound=BaseModel)

_Parser: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_json = TypeAdapter[JsonValue](FiniteJson)


class _Loader(_Parser):  # type: ignore[valid-type, misc]
    """Leaves dates as text for the schema to parse, and reads whole numbers as keys as JSON has them, as texts."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in _Parser.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        mapping = super().construct_mapping(node, deep)
        return {str(key) if type(key) is int else key: value for key, value in mapping.items()}


class BrokenYaml(InvalidRequest):
    """Not a plain YAML document. `line` starts at 1; None if unknown."""

    def __init__(self, detail: str, line: int | None = None) -> None:
        super().__init__(detail)
        self.line = line


class _MisplacedYaml(ValueError):
    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line


@dataclass(frozen=True)
class YamlDocument:
    """The JSON value of a YAML document, with line numbers."""

    value: JsonValue
    root: yaml.Node | None

    def find_line(self, path: Sequence[int | str]) -> int:
        """Line number from 1; of the nearest parent if the path is missing."""
        node, line = self.root, 1
        for step in path:
            found = None if node is None else _find_child(node, step)
            if found is None:
                break
            line, node = found
        return line


def _find_child(node: yaml.Node, step: int | str) -> tuple[int, yaml.Node] | None:
    """The line and node of a key or item."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item: yaml.Node = node.value[step]
        return (1 if item.start_mark is None else item.start_mark.line + 1), item
    return None


def parse_document(text: str, name: str) -> YamlDocument:
    """Parses one plain YAML document. BrokenYaml, naming `name` and the line, for aliases, tags, repeated keys, deep
    nesting, NaN or lone surrogates."""
    try:
        _refuse_machinery(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _refuse_repeated_keys(node)
            value = _json.validate_python(None if node is None else loader.construct_document(node))
            return YamlDocument(value, node)
        finally:
            loader.dispose()
    except ValidationError as error:
        raise BrokenYaml(_build_refusal(name, error).detail) from None
    except (yaml.YAMLError, ValueError) as error:
        raise BrokenYaml(f"{name}: {_explain_yaml_error(error)}", _find_error_line(error)) from None


def _explain_yaml_error(error: Exception) -> str:
    said = _collapse_whitespace(str(error))
    line = _find_error_line(error)
    if "mapping values are not allowed" in said:
        return f"line {line}: a text that holds ': ' must be in quotes, as in key: \"text: more text\""
    if "cannot start any token" in said:
        return f"line {line}: a text must not start with this character unless it is in quotes ({said})"
    return said


def _find_error_line(error: Exception) -> int | None:
    if isinstance(error, _MisplacedYaml):
        return error.line
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return None if mark is None else mark.line + 1


def parse_yaml(text: str, name: str) -> JsonValue:
    """The value of `parse_document`."""
    return parse_document(text, name).value


def parse_model(text: str, name: str, model: type[ModelT]) -> ModelT:
    """InvalidRequest naming `name` and the field."""
    value = parse_yaml(text, name)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _build_refusal(name, error) from None


def read_sheet(path: Path) -> CharacterSheet:
    """Reads a sheet, whose id must equal the file name, with the lorebook beside it."""
    sheet = parse_model(read_text(path), path.name, CharacterSheet)
    if sheet.id != path.stem:
        reason = f"{path.name}: meta.id: is {sheet.id!r}, but the file name says {path.stem!r}"
        raise InvalidRequest(reason, field="meta.id")
    book = find_lorebook_beside(path)
    return sheet if book is None else _add_lorebook(sheet, _read_lorebook(book))


def find_lorebook_beside(sheet: Path) -> Path | None:
    """The lorebook that a folder of sheets brings for this one."""
    book = sheet.parent / LOREBOOKS / sheet.name
    return book if book.is_file() else None


def read_sheets(folder: Path) -> tuple[CharacterSheet, ...]:
    """All sheets of a folder by id, with the lorebooks beside them. NotFound without any, InvalidRequest or TooLarge
    for the first broken one."""
    read_own_lorebooks(folder)
    return tuple(read_sheet(path) for path in list_yaml_files(folder))


def read_own_lorebooks(sheets: Path) -> dict[str, Lorebook]:
    """The lorebooks that a folder of sheets brings, by character, which is the file's name; none without a folder for
    them."""
    folder = sheets / LOREBOOKS
    files = list_yaml_files(folder) if folder.is_dir() else ()
    stray = next((path for path in files if not (sheets / path.name).exists()), None)
    if stray is not None:
        raise InvalidRequest(f"{LOREBOOKS}/{stray.name}: there is no sheet {stray.stem!r}", field="lorebook")
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


def read_scenes(folder: Path) -> tuple[SceneSet, ...]:
    """Reads all scene files of a folder; scene ids must be unique."""
    sets = tuple(parse_model(read_text(path), path.name, SceneSet) for path in list_yaml_files(folder))
    seen: set[str] = set()
    for scene in (scene for scenes in sets for scene in scenes.scenes):
        if scene.id in seen:
            raise InvalidRequest(f"scenes: the id {scene.id!r} occurs more than once", field="id")
        seen.add(scene.id)
    return sets


def read_own_scenes(sheets: Path) -> tuple[SceneSet, ...]:
    """The scenes that a folder of sheets brings; none without a folder for them."""
    folder = sheets / SCENES
    return read_scenes(folder) if folder.is_dir() else ()


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


def _refuse_machinery(text: str) -> None:
    """Parses events only, so that nothing is expanded."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = 0 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _MisplacedYaml(line, "anchors and aliases are not accepted")
        if getattr(event, "tag", None) is not None:
            raise _MisplacedYaml(line, "tags are not accepted")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_JSON_DEPTH:
            raise _MisplacedYaml(line, f"nested deeper than {MAX_JSON_DEPTH} levels")


def _refuse_repeated_keys(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _MisplacedYaml(key.start_mark.line + 1, f"the key {key.value!r} is repeated")
            seen.add(str(key.value))
            _refuse_repeated_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item)


def _build_refusal(name: str, error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return InvalidRequest(
        f"{name}: {field or 'the document'}: {_collapse_whitespace(first['msg'])}", field=field or None
    )


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())[:300]
