"""Strict parsing of JSON from models; every ambiguity is a ValueError."""

import json
import math
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from pydantic import JsonValue, ValidationError

from app.toolkit.tool_calls.values import Call

MOST_DIGITS: Final = 100
"""Maximum digits of an integer, since parsing takes quadratic time."""

MOST_NAME: Final = 200
MOST_CALLS: Final = 1_000
"""Maximum calls per reply in formats that are parsed in Python."""

BLANK: Final = " \t\r\n"


class Malformed(ValueError):
    """An invalid call. The message quotes at most a few characters of the model."""


def read_json(text: str) -> JsonValue:
    """Malformed for what is not exactly one JSON value."""
    value, end = read_json_at(text, 0)
    if text[end:].strip(BLANK):
        raise Malformed("there is more than one JSON value")
    return value


def read_json_at(text: str, start: int) -> tuple[JsonValue, int]:
    """The value at `start`, blanks before it aside, and where it ends."""
    while start < len(text) and text[start] in BLANK:
        start += 1
    try:
        value, end = _DECODER.raw_decode(text, start)
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("the JSON is nested too deep") from None
    except ValueError:
        raise Malformed("the JSON cannot be read") from None
    return value, end


def call_of(name: object, arguments: object) -> Call:
    """Malformed unless `name` is a short text and `arguments` an object of bounded depth."""
    if not isinstance(name, str) or not name or len(name) > MOST_NAME:
        raise Malformed("a call has no name, or one that is too long")
    if not isinstance(arguments, dict):
        raise Malformed("the arguments are not an object")
    try:
        return Call(name=name, arguments=arguments)
    except ValidationError:
        raise Malformed("the arguments are nested too deep or hold what is no text") from None


def call_object(value: JsonValue) -> Call:
    """A call as an object of `name` and `arguments`, which some models and templates name `parameters`."""
    named = "parameters" if isinstance(value, dict) and "arguments" not in value else "arguments"
    members = object_with(value, required=("name", named), allowed=("id", "type"))
    return call_of(members["name"], members[named])


def object_with(value: JsonValue, *, required: Sequence[str], allowed: Sequence[str] = ()) -> dict[str, JsonValue]:
    """`value`; Malformed unless it is an object with all of `required` and nothing beyond `allowed`."""
    if not isinstance(value, dict):
        raise Malformed("a call is not a JSON object")
    missing = [key for key in required if key not in value]
    if missing:
        raise Malformed(f"a call has no `{missing[0]}`")
    if not value.keys() <= {*required, *allowed}:
        raise Malformed("a call has members that its format does not know")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Malformed("an object names a member twice")
    return members


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise Malformed(f"a whole number has more than {MOST_DIGITS} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise Malformed("a number is out of range")
    return number


def _no_constant(name: str) -> NoReturn:
    raise Malformed(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_once, parse_int=_whole, parse_float=_finite, parse_constant=_no_constant
)
