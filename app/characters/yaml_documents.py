"""Plain YAML from untrusted files: one document, without anchors, tags or repeated keys, and with line numbers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import yaml
from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.errors import InvalidRequest
from app.domain.values import MAX_JSON_DEPTH, FiniteJson

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
        raise BrokenYaml(build_yaml_refusal(name, error).detail) from None
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


def _refuse_machinery(text: str) -> None:
    """Parses events only, so that nothing is expanded."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            depth += isinstance(event, yaml.CollectionStartEvent)
            if (fault := _find_machinery(event, depth)) is not None:
                raise _MisplacedYaml(0 if event.start_mark is None else event.start_mark.line + 1, fault)


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


def build_yaml_refusal(name: str, error: ValidationError) -> InvalidRequest:
    """The first fault of a document, named by file and field."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return InvalidRequest(
        f"{name}: {field or 'the document'}: {_collapse_whitespace(first['msg'])}", field=field or None
    )


def dump_yaml(value: JsonValue) -> str:
    """A value as it is written by hand."""
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120)
    return text


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())[:300]
