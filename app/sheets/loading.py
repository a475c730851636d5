"""Reading sheets and scenes from YAML that somebody may have written badly or meant badly."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from app.domain.values import MAX_JSON_DEPTH, FiniteJson
from app.errors import InvalidRequest, NotFound, TooLarge
from app.sheets.scenes import SceneSet
from app.sheets.schema import CharacterSheet

MAX_FILE_BYTES = 256 * 1024
MAX_FILES = 2000

ModelT = TypeVar("ModelT", bound=BaseModel)

_Parser: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_json = TypeAdapter[JsonValue](FiniteJson)


class _Loader(_Parser):  # type: ignore[valid-type, misc]
    """Dates stay text: the schema says which texts are moments."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in _Parser.yaml_implicit_resolvers.items()
    }


def parse_yaml(text: str, name: str) -> JsonValue:
    """JSON values of one plain YAML document. InvalidRequest naming `name` and the place: no aliases, tags,
    repeated keys, deep nesting, NaN or lone surrogates."""
    try:
        _refuse_machinery(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _refuse_repeated_keys(node)
            return _json.validate_python(None if node is None else loader.construct_document(node))
        finally:
            loader.dispose()
    except ValidationError as error:
        raise _refused(name, error) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidRequest(f"{name}: {_one_line(str(error))}") from None


def parse_model(text: str, name: str, model: type[ModelT]) -> ModelT:
    """InvalidRequest naming `name` and the field."""
    value = parse_yaml(text, name)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _refused(name, error) from None


def read_sheet(path: Path) -> CharacterSheet:
    """One sheet; its id must be the file's name."""
    sheet = parse_model(_read(path), path.name, CharacterSheet)
    if sheet.id != path.stem:
        reason = f"{path.name}: meta.id: is {sheet.id!r}, the file's name says {path.stem!r}"
        raise InvalidRequest(reason, field="meta.id")
    return sheet


def read_sheets(folder: Path) -> tuple[CharacterSheet, ...]:
    """All sheets of a folder by id. NotFound without any, InvalidRequest or TooLarge for the first broken one."""
    return tuple(read_sheet(path) for path in _files(folder))


def read_scenes(folder: Path) -> tuple[SceneSet, ...]:
    """All scene files of a folder; a scene's id may occur only once in it."""
    sets = tuple(parse_model(_read(path), path.name, SceneSet) for path in _files(folder))
    seen: set[str] = set()
    for scene in (scene for scenes in sets for scene in scenes.scenes):
        if scene.id in seen:
            raise InvalidRequest(f"scenes: the id {scene.id!r} occurs more than once", field="id")
        seen.add(scene.id)
    return sets


def _files(folder: Path) -> Sequence[Path]:
    if not folder.is_dir():
        raise NotFound(f"{folder.name}: no such folder")
    files = sorted(path for path in folder.iterdir() if path.suffix == ".yaml")
    if not files:
        raise NotFound(f"{folder.name}: holds no YAML file")
    if len(files) > MAX_FILES:
        raise TooLarge(f"{folder.name}: more than {MAX_FILES} files")
    inside = folder.resolve()
    for path in files:
        # links within the folder are how Kubernetes mounts files; others could show any file of the machine
        if not path.is_file() or not path.resolve().is_relative_to(inside):
            raise InvalidRequest(f"{path.name}: not a file of this folder")
    return files


def _read(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise TooLarge(f"{path.name}: larger than {MAX_FILE_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path.name}: not UTF-8 at byte {error.start}") from None


def _refuse_machinery(text: str) -> None:
    """Reads events only, so nothing is expanded before it is refused."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = 0 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError(f"line {line}: anchors and aliases are not accepted")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"line {line}: tags are not accepted")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_JSON_DEPTH:
            raise ValueError(f"line {line}: nested deeper than {MAX_JSON_DEPTH} levels")


def _refuse_repeated_keys(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ValueError(f"line {key.start_mark.line + 1}: the key {key.value!r} is repeated")
            seen.add(str(key.value))
            _refuse_repeated_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item)


def _refused(name: str, error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return InvalidRequest(f"{name}: {field or 'the document'}: {_one_line(first['msg'])}", field=field or None)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
