"""Tool descriptions of data sets, converted to JSON Schema."""

import re
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from app.domain.tasks import FunctionSpec, ToolSpec

_TYPES: Final[Mapping[str, str]] = {
    "dict": "object",
    "object": "object",
    "hashmap": "object",
    "list": "array",
    "array": "array",
    "tuple": "array",
    "set": "array",
    "str": "string",
    "string": "string",
    "char": "string",
    "int": "integer",
    "integer": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "number": "number",
    "bool": "boolean",
    "boolean": "boolean",
    "none": "null",
    "null": "null",
}
"""JSON Schema types by their names in data sets. Unknown names, such as `any`, give no type."""

_GENERIC = re.compile(r"(\w+)\[(.*)\]")
_KEPT = ("description", "enum", "default", "minimum", "maximum", "items", "properties", "required")


def build_tool_spec(name: str, description: str, properties: Mapping[str, JsonValue], required: list[str]) -> ToolSpec:
    """ValueError for arguments whose description is not an object."""
    parameters: dict[str, JsonValue] = {
        "type": "object",
        "properties": {argument: build_schema(described) for argument, described in properties.items()},
        "required": [*required],
    }
    return ToolSpec(function=FunctionSpec(name=name, description=description, parameters=parameters))


def build_schema(described: JsonValue) -> dict[str, JsonValue]:
    """JSON Schema of one argument, with the types of JSON Schema at every depth."""
    if not isinstance(described, dict):
        raise ValueError("the description of an argument must be an object")
    schema = {key: described[key] for key in _KEPT if key in described} | parse_type(described.get("type"))
    items, properties = schema.get("items"), schema.get("properties")
    if isinstance(items, dict):
        schema["items"] = build_schema(items)
    if isinstance(properties, dict):
        schema["properties"] = {name: build_schema(inner) for name, inner in properties.items()}
    choices = schema.pop("enum", None)
    if isinstance(choices, list) and choices:
        return _add_choices(schema, choices)
    return schema


def _add_choices(schema: dict[str, JsonValue], choices: list[JsonValue]) -> dict[str, JsonValue]:
    """For an array they are choices of its items, unless they are lists themselves."""
    if schema.get("type") != "array" or any(isinstance(choice, list) for choice in choices):
        return {**schema, "enum": choices}
    items = schema.get("items")
    return {**schema, "items": {**(items if isinstance(items, dict) else {}), "enum": choices}}


def parse_type(written: JsonValue) -> dict[str, JsonValue]:
    """The type, for `List[int]` and the like with the type of its items; empty for an unknown type."""
    if not isinstance(written, str):
        return {}
    plain = written.split(",")[0].strip() if "[" not in written else written.strip()
    generic = _GENERIC.match(plain)
    if generic is not None and generic[1].lower() == "optional":
        return parse_type(generic[2])
    if generic is not None and _TYPES.get(generic[1].lower()) == "array":
        inside = parse_type(generic[2]) if generic[1].lower() != "tuple" else {}
        return {"type": "array", "items": inside} if inside else {"type": "array"}
    named = _TYPES.get((generic[1] if generic is not None else plain).lower())
    return {} if named is None else {"type": named}
