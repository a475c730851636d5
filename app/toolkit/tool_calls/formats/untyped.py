"""Arguments that a format writes as bare text between tags, read by the type that the tool's schema gives them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.json_text import MalformedCall, read_json

_BLANK = re.compile(r"\s*")
_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None, "none": None}
_TYPES: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    type(None): ("null",),
    list: ("array",),
    dict: ("object",),
}


@dataclass(frozen=True, slots=True)
class ArgumentTags:
    """`begins` has the argument's name as its one group; `ends` ends a value; `closes` ends the call."""

    begins: re.Pattern[str]
    ends: re.Pattern[str]
    closes: re.Pattern[str]


def read_arguments(
    text: str, start: int, tool: str, tools: Sequence[ToolSpec], tags: ArgumentTags
) -> tuple[dict[str, JsonValue], int]:
    """The arguments from `start` on, and where the call is closed. A value ends at the first tag that could end it."""
    arguments: dict[str, JsonValue] = {}
    position = _skip_blank(text, start)
    while (begins := tags.begins.match(text, position)) is not None:
        ends = tags.ends.search(text, begins.end())
        if ends is None:
            raise MalformedCall("a value does not end")
        if begins[1] in arguments:
            raise MalformedCall("an argument is given twice")
        arguments[begins[1]] = parse_typed_value(text[begins.end() : ends.start()], tool, begins[1], tools)
        position = _skip_blank(text, ends.end())
    closes = tags.closes.match(text, position)
    if closes is None:
        raise MalformedCall("a call does not end")
    return arguments, closes.end()


def parse_typed_value(written: str, tool: str, argument: str, tools: Sequence[ToolSpec]) -> JsonValue:
    """What `written` means as this argument: JSON where its schema asks for something else than text and it can be read
    so, else the text itself, without one line break at either end."""
    text = written.removeprefix("\n").removesuffix("\n")
    types = _list_types(_find_schema(tool, argument, tools))
    if not types or types == {"string"}:
        return text
    bare = text.strip()
    try:
        value = _WORDS[bare.lower()] if bare.lower() in _WORDS else read_json(bare)
    except MalformedCall:
        return text
    return value if types & {*_TYPES[type(value)]} else text


def _skip_blank(text: str, position: int) -> int:
    blank = _BLANK.match(text, position)
    return position if blank is None else blank.end()


def _find_schema(tool: str, argument: str, tools: Sequence[ToolSpec]) -> Mapping[str, JsonValue]:
    for spec in tools:
        properties = spec.function.parameters.get("properties")
        if spec.function.name == tool and isinstance(properties, dict):
            schema = properties.get(argument)
            return schema if isinstance(schema, dict) else {}
    return {}


def _list_types(schema: Mapping[str, JsonValue]) -> set[str]:
    """The types that a schema allows, as far as it names them or shows them by its values."""
    named = schema.get("type")
    found = {str(one) for one in (named if isinstance(named, list) else [named]) if one is not None}
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        for option in options if isinstance(options, list) else ():
            found |= _list_types(option) if isinstance(option, dict) else set()
    values = schema.get("enum")
    if not found and isinstance(values, list):
        found = {name for value in values for name in _TYPES[type(value)]}
    return found
