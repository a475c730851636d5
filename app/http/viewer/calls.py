"""Tools and tool calls for the page. Names, arguments and results are untrusted: a model wrote them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from app.domain.tasks import ToolCall, ToolSpec
from app.toolkit.display import Excerpt, as_json, cut_excerpt, escape_invisible
from app.toolkit.tool_calls.json_text import MalformedCall, read_json

MAX_ARGUMENTS: Final = 30
"""A call with more arguments is shown as JSON."""
MAX_NAME_LENGTH: Final = 100
VISIBLE_CHARACTERS: Final = 600
"""Characters of a value or a result that are shown before folding."""


@dataclass(frozen=True)
class CallView:
    """A tool call: `arguments` by name, or `written` if they are not a small object."""

    name: str
    arguments: tuple[tuple[str, Excerpt], ...]
    written: Excerpt | None


@dataclass(frozen=True)
class ResultView:
    """A tool's result; JSON is indented."""

    content: Excerpt
    failed: bool


@dataclass(frozen=True)
class ArgumentView:
    name: str
    kind: str
    required: bool
    description: str


@dataclass(frozen=True)
class ToolView:
    """A tool in the prompt; `arguments` come from `schema`."""

    name: str
    description: str
    arguments: tuple[ArgumentView, ...]
    schema: Excerpt


def build_call(call: ToolCall) -> CallView:
    given = call.function.arguments
    value = _parse_json(given) if isinstance(given, str) else given
    name = _shorten_name(call.function.name)
    if isinstance(value, dict) and len(value) <= MAX_ARGUMENTS:
        return CallView(
            name,
            tuple(
                (_shorten_name(key), cut_excerpt(_write_json(one), VISIBLE_CHARACTERS)) for key, one in value.items()
            ),
            None,
        )
    return CallView(name, (), cut_excerpt(given if isinstance(given, str) else as_json(given), VISIBLE_CHARACTERS))


def build_result(content: str) -> ResultView:
    """A tool's result; `failed` if it is an object with an `error`."""
    value = _parse_json(content)
    laid_out = as_json(value) if isinstance(value, dict | list) else content
    return ResultView(cut_excerpt(laid_out, VISIBLE_CHARACTERS), isinstance(value, dict) and bool(value.get("error")))


def build_tools(tools: Sequence[ToolSpec]) -> tuple[ToolView, ...]:
    return tuple(_build_tool(tool) for tool in tools)


def _build_tool(tool: ToolSpec) -> ToolView:
    schema = tool.function.parameters
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    members = properties if isinstance(properties, dict) else {}
    return ToolView(
        name=_shorten_name(tool.function.name),
        description=tool.function.description,
        arguments=tuple(_build_argument(name, one, required=name in needed) for name, one in members.items()),
        schema=cut_excerpt(as_json(schema)),
    )


def _build_argument(name: str, described: JsonValue, *, required: bool) -> ArgumentView:
    schema = described if isinstance(described, dict) else {}
    description = schema.get("description")
    return ArgumentView(
        _shorten_name(name),
        _describe_type(schema),
        required,
        str(description or ""),
    )


def _describe_type(schema: Mapping[str, JsonValue]) -> str:
    """Describes a type: name, choices and default."""
    choices = schema.get("enum")
    if isinstance(choices, list):
        words = " | ".join(map(_write_json, choices))
    else:
        named = schema.get("type")
        words = " | ".join(map(str, named)) if isinstance(named, list) else str(named or "any")
        inside = schema.get("items")
        words += f" of {_describe_type(inside)}" if isinstance(inside, dict) else ""
    return f"{words} = {_write_json(schema['default'])}" if "default" in schema else words


def _write_json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _parse_json(text: str) -> JsonValue:
    """The parsed JSON; None if it is invalid or ambiguous."""
    try:
        return read_json(text)
    except MalformedCall:
        return None


def _shorten_name(name: str) -> str:
    return escape_invisible(name if len(name) <= MAX_NAME_LENGTH else f"{name[:MAX_NAME_LENGTH]}…")
