"""Strict parsing of JSON from models; every ambiguity is a ValueError."""

import json
import math
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from pydantic import JsonValue, ValidationError

from app.toolkit.tool_calls.calls import ParsedCall

MOST_DIGITS: Final = 100
"""Maximum digits of an integer, since parsing takes quadratic time."""

MOST_NAME: Final = 200
MOST_CALLS: Final = 1_000
"""Maximum calls per reply in formats that are parsed in Python."""

BLANK: Final = " \t\r\n"


class MalformedCall(ValueError):
    """An invalid call. The message quotes at most a few characters of the model."""


def read_json(text: str) -> JsonValue:
    """Malformed for what is not exactly one JSON value."""
    value, end = read_json_at(text, 0)
    if text[end:].strip(BLANK):
        raise MalformedCall("there is more than one JSON value")
    return value


def read_json_at(text: str, start: int) -> tuple[JsonValue, int]:
    """The value at `start`, blanks before it aside, and where it ends."""
    while start < len(text) and text[start] in BLANK:
        start += 1
    try:
        value, end = _DECODER.raw_decode(text, start)
    except MalformedCall:
        raise
    except RecursionError:
        raise MalformedCall("the JSON is nested too deep") from None
    except ValueError:
        raise MalformedCall("the JSON cannot be read") from None
    return value, end


def build_call(name: object, arguments: object) -> ParsedCall:
    """Malformed unless `name` is a short text and `arguments` an object of bounded depth."""
    if not isinstance(name, str) or not name or len(name) > MOST_NAME:
        raise MalformedCall("a call has no name, or one that is too long")
    if not isinstance(arguments, dict):
        raise MalformedCall("the arguments are not an object")
    try:
        return ParsedCall(name=name, arguments=arguments)
    except ValidationError:
        raise MalformedCall("the arguments are nested too deep or hold what is no text") from None


def parse_call_object(value: JsonValue) -> ParsedCall:
    """A call as an object of `name` and `arguments`, which some models and templates name `parameters`."""
    named = "parameters" if isinstance(value, dict) and "arguments" not in value else "arguments"
    members = require_members(value, required=("name", named), allowed=("id", "type"))
    return build_call(members["name"], members[named])


def require_members(value: JsonValue, *, required: Sequence[str], allowed: Sequence[str] = ()) -> dict[str, JsonValue]:
    """`value`; Malformed unless it is an object with all of `required` and nothing beyond `allowed`."""
    if not isinstance(value, dict):
        raise MalformedCall("a call is not a JSON object")
    missing = [key for key in required if key not in value]
    if missing:
        raise MalformedCall(f"a call has no `{missing[0]}`")
    if not value.keys() <= {*required, *allowed}:
        raise MalformedCall("a call has members that its format does not know")
    return value


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedCall("an object names a member twice")
    return members


def _parse_whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise MalformedCall(f"a whole number has more than {MOST_DIGITS} digits")
    return int(digits)


def _parse_finite_number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise MalformedCall("a number is out of range")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedCall(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_refuse_repeats,
    parse_int=_parse_whole_number,
    parse_float=_parse_finite_number,
    parse_constant=_refuse_constant,
)
