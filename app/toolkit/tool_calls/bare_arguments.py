"""Arguments that a format writes as bare text between tags: where each value ends, and what type it has.

A value may hold the tags of its own format, so a text may be read in several ways. The first one that is whole counts.
A value has the type that the tool's schema gives it.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import MalformedCall, ParsedCall, build_call, read_json, skip_blank

_ReadT = TypeVar("_ReadT")

_UNTYPED_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None, "none": None}
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
    """`begins` has the argument's name as its one group; `ends` ends a value, and `follows` is what may come then;
    `closes` ends the call. `another` is the end of a call with the head of another one, valid or not."""

    begins: re.Pattern[str]
    ends: re.Pattern[str]
    follows: re.Pattern[str]
    closes: re.Pattern[str]
    another: re.Pattern[str]


_MOST_READINGS: Final = 24
"""Beyond the first one. Each further call with a value that holds what could end the call doubles them: three need 12,
and more where values hold several ends. Of drawn golds one in 3,000 needs more than 12."""
_LINE_END = re.compile(r"[ \t]{0,20}(?:[\r\n]|\Z)")
_LONG: Final = 50_000
"""Characters of a text that is read one way only."""


@dataclass
class ValueEnds:
    """At which of its possible ends each value ends: at the first behind which the call goes on, and if the text cannot
    be read so at a later one, for a value may hold the tags of its own format. But a tag at the end of a line ends the
    value, unless another one comes next: an argument whose head is broken is no part of the one before. Nor is a call
    whose head is broken, unless the value ends with its line, as in what `write` writes.
    `by_names`: a call goes on only with an argument that its tool has."""

    by_names: bool
    skipped: dict[int, int] = field(default_factory=dict)
    seen: list[int] = field(default_factory=list)

    def find(self, tags: ArgumentTags, text: str, start: int, names: Collection[str] | None) -> re.Match[str] | None:
        left, position, other_call = self.skipped.get(start, 0), start, False
        while (end := tags.ends.search(text, position)) is not None:
            position = end.end()
            at_line_end = _LINE_END.match(text, position) is not None
            goes_on = tags.follows.match(text, position) is not None and (at_line_end or not other_call)
            if goes_on and self.by_names and names is not None:
                following = tags.begins.match(text, skip_blank(text, position))
                goes_on = following is None or following[1] in names
            if goes_on and not left:
                self.seen.append(start)
                return end
            if at_line_end and tags.ends.match(text, skip_blank(text, position)) is None:
                return None
            left -= goes_on
            other_call = other_call or tags.another.match(text, skip_blank(text, position)) is not None
        return None

    def advance(self) -> bool:
        """False where there is nothing left to try."""
        if not self.seen:
            return False
        last = self.seen[-1]
        self.skipped = {start: count for start, count in self.skipped.items() if start <= last}
        self.skipped[last] = self.skipped.get(last, 0) + 1
        self.seen.clear()
        return True


def read_first_reading(text: str, read: Callable[[ValueEnds], _ReadT]) -> _ReadT:
    """The first way to read it; Malformed with the fault of the plainest where there is none."""
    fault = MalformedCall("there is no call")
    for by_names in (True, False):
        ends = ValueEnds(by_names)
        try:
            return read(ends)
        except MalformedCall as error:
            fault = error
        for _ in range(_MOST_READINGS if len(text) <= _LONG else 0):
            if not ends.advance():
                break
            with suppress(MalformedCall):
                return read(ends)
    raise fault


def read_call(
    text: str, start: int, tool: str, tools: Sequence[ToolSpec], tags: ArgumentTags, value_ends: ValueEnds
) -> tuple[ParsedCall, int]:
    """The call of `tool` whose arguments begin at `start`, and where it is closed."""
    arguments: dict[str, JsonValue] = {}
    also: dict[str, JsonValue] = {}
    properties = _find_properties(tool, tools)
    position = skip_blank(text, start)
    while (begins := tags.begins.match(text, position)) is not None:
        ends = value_ends.find(tags, text, begins.end(), properties)
        if ends is None:
            raise MalformedCall("a value does not end")
        name, written = begins[1], text[begins.end() : ends.start()]
        if name in arguments:
            raise MalformedCall("an argument is given twice")
        arguments[name], *others = _list_readings(written, _list_types(_find_schema(tool, name, tools)))
        also.update((name, one) for one in others)
        position = skip_blank(text, ends.end())
    closes = tags.closes.match(text, position)
    if closes is None:
        raise MalformedCall("a call does not end")
    return build_call(tool, arguments, also), closes.end()


def _list_readings(written: str, types: AbstractSet[str]) -> list[JsonValue]:
    """What `written` means as an argument of these types, the likeliest first: JSON where they hold something else than
    text and it can be read so, or the text itself, without one line break at either end. Both where text and that are
    allowed, as where no type is named: nothing in what was written tells `5` from `"5"`."""
    text = written.removeprefix("\n").removesuffix("\n")
    bare = text.strip()
    if types == {"string"}:
        return [text]
    try:
        value = _UNTYPED_WORDS[bare.lower()] if bare.lower() in _UNTYPED_WORDS else read_json(bare)
    except MalformedCall:
        return [text]
    if not types:
        return [text] if isinstance(value, str) else [text, value]
    if types.isdisjoint(_TYPES[type(value)]):
        return [text]
    return [value, text] if "string" in types else [value]


def _find_properties(tool: str, tools: Sequence[ToolSpec]) -> Mapping[str, JsonValue] | None:
    """None for a tool that is not there, or does not say."""
    for spec in tools:
        properties = spec.function.parameters.get("properties")
        if spec.function.name == tool and isinstance(properties, dict):
            return properties
    return None


def _find_schema(tool: str, argument: str, tools: Sequence[ToolSpec]) -> Mapping[str, JsonValue]:
    schema = (_find_properties(tool, tools) or {}).get(argument)
    return schema if isinstance(schema, dict) else {}


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
