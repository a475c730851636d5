"""Whether a call fits the tool that it names, by JSON Schema read strictly: `true`, `"5"` and `5.0` are no integers."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

import jsonschema_rs
from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import ParsedCall

MOST_QUOTED = 40
"""Characters of a name that a model wrote, in words of ours."""

Schema = Mapping[str, JsonValue]


def find_parameters(name: str, tools: Sequence[ToolSpec]) -> Schema | None:
    """JSON Schema of a tool's arguments; None for a tool that is not there."""
    return next((tool.function.parameters for tool in tools if tool.function.name == name), None)


def describe_schema_fault(call: ParsedCall, tools: Sequence[ToolSpec]) -> str:
    """What is wrong with a call by the schema of its tool, naming the argument; empty for a valid one. Arguments that
    the schema does not have are wrong whatever it says of additional ones. An optional one given exactly as its default
    is right, null or of another type than stated, since many data sets have such defaults; but a text is no number and
    no truth value."""
    schema = find_parameters(call.name, tools)
    if schema is None:
        return f"there is no tool {quote_name(call.name)}"
    known = get_members(schema)
    invented = [name for name in call.arguments if name not in known]
    if invented:
        return f"{call.name} has no argument {quote_name(invented[0])}"
    given = {name: value for name, value in call.arguments.items() if not _is_default(name, value, schema, known[name])}
    for error in _compile_validator(json.dumps(schema)).iter_errors(given):
        place = error.instance_path
        return (
            f"{call.name}: {_format_path(place)} does not fit its schema" if place else _describe_missing(call, schema)
        )
    for name, value in given.items():
        if _has_float_for_integer(value, known[name]):
            return f"{call.name}: {_format_path([name])} is not an integer"
    return ""


def get_members(schema: Schema) -> Mapping[str, Schema]:
    """The schemas of an object's members."""
    properties = schema.get("properties")
    found = properties if isinstance(properties, dict) else {}
    return {name: value if isinstance(value, dict) else {} for name, value in found.items()}


def get_item_schema(schema: Schema) -> Schema:
    """The schema of a list's items."""
    items = schema.get("items")
    return items if isinstance(items, dict) else {}


def allows_type(schema: Schema, name: str) -> bool:
    """Whether a schema names a type among its own."""
    types = schema.get("type")
    return name in types if isinstance(types, list) else name == types


def quote_name(name: str) -> str:
    """A name that a model wrote, short and without control characters."""
    return ascii(name[:MOST_QUOTED] + ("…" if len(name) > MOST_QUOTED else ""))


@lru_cache(maxsize=1024)
def _compile_validator(schema: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(json.loads(schema))


def _is_default(name: str, value: JsonValue, schema: Schema, described: Schema) -> bool:
    """Whether leaving an argument out, which may be, says the same."""
    required, default = schema.get("required"), described.get("default")
    may_be_left_out = not isinstance(required, list) or name not in required
    if isinstance(value, str) and any(allows_type(described, name) for name in ("integer", "number", "boolean")):
        return False
    return may_be_left_out and "default" in described and type(value) is type(default) and value == default


def _describe_missing(call: ParsedCall, schema: Schema) -> str:
    required = schema.get("required")
    missing = [name for name in (required if isinstance(required, list) else []) if name not in call.arguments]
    return f"{call.name} lacks {missing[0]}" if missing else f"the arguments of {call.name} do not fit its schema"


def _format_path(place: Sequence[str | int]) -> str:
    return ".".join(quote_name(step) if isinstance(step, str) else str(step) for step in place)


def _has_float_for_integer(value: JsonValue, schema: Schema) -> bool:
    if isinstance(value, float):
        return allows_type(schema, "integer") and not allows_type(schema, "number")
    if isinstance(value, list):
        return any(_has_float_for_integer(one, get_item_schema(schema)) for one in value)
    if isinstance(value, dict):
        inside = get_members(schema)
        return any(_has_float_for_integer(one, inside.get(name, {})) for name, one in value.items())
    return False
