"""Tools and tool calls for the page. Names, arguments and results are untrusted: a model wrote them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from app.domain.tasks import ToolCall, ToolSpec
from app.toolkit.display import Excerpt, as_json, excerpt, visible
from app.toolkit.tool_calls.json_text import Malformed, read_json

MOST_ARGUMENTS: Final = 30
"""A call with more arguments is shown as JSON."""
MOST_NAME: Final = 100
AT_ONCE: Final = 600
"""Characters of a value or a result that are shown before folding."""


@dataclass(frozen=True)
class Call:
    """A tool call: `arguments` by name, or `written` if they are not a small object."""

    name: str
    arguments: tuple[tuple[str, Excerpt], ...]
    written: Excerpt | None


@dataclass(frozen=True)
class Result:
    """A tool's result; JSON is indented."""

    content: Excerpt
    failed: bool


@dataclass(frozen=True)
class Argument:
    name: str
    kind: str
    required: bool
    description: str


@dataclass(frozen=True)
class Offered:
    """A tool in the prompt; `arguments` come from `schema`."""

    name: str
    description: str
    arguments: tuple[Argument, ...]
    schema: Excerpt


def call_of(call: ToolCall) -> Call:
    given = call.function.arguments
    value = _read(given) if isinstance(given, str) else given
    name = _short(call.function.name)
    if isinstance(value, dict) and len(value) <= MOST_ARGUMENTS:
        return Call(name, tuple((_short(key), excerpt(_written(one), AT_ONCE)) for key, one in value.items()), None)
    return Call(name, (), excerpt(given if isinstance(given, str) else as_json(given), AT_ONCE))


def result_of(content: str) -> Result:
    """A tool's result; `failed` if it is an object with an `error`."""
    value = _read(content)
    laid_out = as_json(value) if isinstance(value, dict | list) else content
    return Result(excerpt(laid_out, AT_ONCE), isinstance(value, dict) and bool(value.get("error")))


def offered(tools: Sequence[ToolSpec]) -> tuple[Offered, ...]:
    return tuple(_offered(tool) for tool in tools)


def _offered(tool: ToolSpec) -> Offered:
    schema = tool.function.parameters
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    members = properties if isinstance(properties, dict) else {}
    return Offered(
        name=_short(tool.function.name),
        description=visible(tool.function.description),
        arguments=tuple(_argument(name, one, required=name in needed) for name, one in members.items()),
        schema=excerpt(as_json(schema)),
    )


def _argument(name: str, described: JsonValue, *, required: bool) -> Argument:
    schema = described if isinstance(described, dict) else {}
    description = schema.get("description")
    return Argument(_short(name), visible(_kind(schema)), required, visible(str(description or "")))


def _kind(schema: Mapping[str, JsonValue]) -> str:
    """Describes a type: name, choices and default."""
    choices = schema.get("enum")
    if isinstance(choices, list):
        words = " | ".join(map(_written, choices))
    else:
        named = schema.get("type")
        words = " | ".join(map(str, named)) if isinstance(named, list) else str(named or "any")
        inside = schema.get("items")
        words += f" of {_kind(inside)}" if isinstance(inside, dict) else ""
    return f"{words} = {_written(schema['default'])}" if "default" in schema else words


def _written(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read(text: str) -> JsonValue:
    """The parsed JSON; None if it is invalid or ambiguous."""
    try:
        return read_json(text)
    except Malformed:
        return None


def _short(name: str) -> str:
    return visible(name if len(name) <= MOST_NAME else f"{name[:MOST_NAME]}…")
