"""Sheets, scenes and lorebooks, read from folders and from text that strangers may have written.

YAML is read as JSON would be: one document without anchors, tags or repeated keys, with every value bounded in depth.
Line numbers are kept, so that a finding can name the place.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from app.characters.lorebooks import refuse_unusable
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from app.domain.errors import InvalidRequest, NotFound, TooLarge
from app.domain.faults import explain_faults, explain_yaml_error, find_yaml_line
from app.domain.values import MAX_JSON_DEPTH, FiniteJson, suggest
from app.domain.worlds import Lorebook

# Plain YAML

_Parser: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_json = TypeAdapter[JsonValue](FiniteJson)


# The numbers of YAML 1.1 but for those in base 60, which YAML 1.2 dropped: `12:30` would be 750, and to work out a long
# one takes quadratic time.
_NUMBERS: Final = {
    "tag:yaml.org,2002:int": re.compile(
        r"(?:[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)\Z"
    ),
    "tag:yaml.org,2002:float": re.compile(
        r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}


class _Loader(_Parser):  # type: ignore[valid-type, misc]
    """Leaves dates and times of day as text for the schema to parse, and reads whole numbers as keys as JSON has them,
    as texts."""

    yaml_implicit_resolvers = {
        first: [(tag, _NUMBERS.get(tag, pattern)) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in _Parser.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        mapping = super().construct_mapping(node, deep)
        return {str(key) if type(key) is int else key: value for key, value in mapping.items()}


FieldPath = tuple[int | str, ...]
"""Names and indices that lead to a value in a document."""


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
        line, _, _ = self._follow(path)
        return line

    def find_spelling(self, path: Sequence[int | str]) -> str | None:
        """How a text, a number or a truth value is written; None for what is none, or missing."""
        _, node, left = self._follow(path)
        return str(node.value) if isinstance(node, yaml.ScalarNode) and not left else None

    def has_comments(self, text: str) -> bool:
        """Whether `text`, of which this is the document, has a comment."""
        end = 0
        for node in _iterate_scalars(self.root):
            is_block = node.style in ("|", ">")  # a comment may stand behind the sign that begins it
            start = text.find("\n", node.start_mark.index) if is_block else node.start_mark.index
            if "#" in text[end:start]:
                return True
            end = node.end_mark.index
        return "#" in text[end:]

    def _follow(self, path: Sequence[int | str]) -> tuple[int, yaml.Node | None, int]:
        """The line and node that the path leads to, and how many of its steps lead nowhere."""
        node, line = self.root, 1
        for number, step in enumerate(path):
            child = None if node is None else _find_child(node, step)
            if child is None:
                return line, node, len(path) - number
            line, node = child
        return line, node, 0


def _iterate_scalars(node: yaml.Node | None) -> Iterator[Any]:
    """In the order of the text."""
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.CollectionNode):
        for item in node.value:
            for one in item if isinstance(item, tuple) else (item,):
                yield from _iterate_scalars(one)


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
        loader = _Loader(text)
        try:
            node = _compose(loader)
            _refuse_repeated_keys(node)
            value = _json.validate_python(None if node is None else loader.construct_document(node))
            return YamlDocument(value, node)
        finally:
            loader.dispose()
    except ValidationError as error:
        raise BrokenYaml(build_yaml_refusal(name, error, None).detail) from None
    except (yaml.YAMLError, ValueError) as error:
        raise BrokenYaml(f"{name}: {_explain_yaml_error(error)}", _find_error_line(error)) from None


def _explain_yaml_error(error: Exception) -> str:
    line = _find_error_line(error)
    words = explain_yaml_error(error)
    return words if line is None or isinstance(error, _MisplacedYaml) else f"line {line}: {words}"


def _find_error_line(error: Exception) -> int | None:
    if isinstance(error, _MisplacedYaml):
        return error.line
    return find_yaml_line(error)


def _compose(loader: Any) -> yaml.Node | None:
    """The document's node; None for an empty text. Nothing is expanded: a few aliases of aliases would make gigabytes.
    PyYAML would compose it in one call in C, which lets no other thread run for a second."""
    roots: list[yaml.Node] = []
    parents: list[yaml.CollectionNode] = []
    keys: list[yaml.Node | None] = []
    """For each parent the key that waits for its value."""
    while loader.check_event():
        event: Any = loader.get_event()
        line = 0 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent) and roots:
            raise _MisplacedYaml(line, "a second document begins here: a file holds one")
        if isinstance(event, yaml.CollectionEndEvent):
            parents.pop()
            keys.pop()
        elif isinstance(event, yaml.NodeEvent):
            starts = isinstance(event, yaml.CollectionStartEvent)
            if (fault := _find_machinery(event, len(parents) + starts)) is not None:
                raise _MisplacedYaml(line, fault)
            node = _build_node(loader, event)
            if not parents:
                roots.append(node)
            elif isinstance(parents[-1], yaml.SequenceNode):
                parents[-1].value.append(node)
            elif (key := keys[-1]) is None:
                keys[-1] = node
            else:
                parents[-1].value.append((key, node))
                keys[-1] = None
            if isinstance(node, yaml.CollectionNode):
                parents.append(node)
                keys.append(None)
    return roots[0] if roots else None


def _build_node(loader: Any, event: Any) -> yaml.Node:
    """Of a scalar, or of a collection that is still empty."""
    start, end = event.start_mark, event.end_mark
    if isinstance(event, yaml.ScalarEvent):
        tag = loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        return yaml.ScalarNode(tag, event.value, start, end, event.style)
    kind = yaml.SequenceNode if isinstance(event, yaml.SequenceStartEvent) else yaml.MappingNode
    return kind(loader.resolve(kind, None, True), [], start, end)


def _find_machinery(event: yaml.NodeEvent, depth: int) -> str | None:
    if event.anchor is not None or isinstance(event, yaml.AliasEvent):
        return "anchors and aliases are not accepted"
    if getattr(event, "tag", None) is not None:
        return "tags are not accepted"
    return f"nested deeper than {MAX_JSON_DEPTH} levels" if depth > MAX_JSON_DEPTH else None


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


def build_yaml_refusal(name: str, error: ValidationError, kind: object) -> InvalidRequest:
    """The first fault of a document of this kind, named by file and field."""
    first = explain_faults(error, kind)[0]
    return InvalidRequest(f"{name}: {first.dotted or 'the document'}: {first.words}", field=first.dotted or None)


def dump_yaml(value: JsonValue) -> str:
    """A value as it is written by hand."""
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120)
    return text


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())[:300]


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
        raise build_yaml_refusal(name, error, model) from None


def read_sheet(path: Path) -> CharacterSheet:
    """Reads a sheet, whose id must equal the file name, with the lorebook beside it."""
    return _parse_sheet(path, read_text(path))


def _parse_sheet(path: Path, text: str) -> CharacterSheet:
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
        _parse_sheet(folder / name, written[name]) if name in written else read_sheet(folder / name)
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
    folder, own = sheets / SCENES, _list_written_scenes(written)
    return read_scenes(folder, own) if folder.is_dir() else _read_scene_files({}, own)


def _list_written_scenes(written: Mapping[str, str]) -> dict[str, str]:
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
