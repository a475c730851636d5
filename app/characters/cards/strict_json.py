"""Strict parsing of untrusted JSON: no repeated keys, NaN, lone surrogates or deep nesting."""

import json
from typing import Final

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.errors import InvalidRequest, TooLarge
from app.domain.values import MAX_JSON_DEPTH, FiniteJson

MAX_JSON_BYTES: Final = 4 * 1024 * 1024

_json = TypeAdapter[JsonValue](FiniteJson)


class _JsonRefused(ValueError):
    pass


def parse_json(content: bytes, name: str) -> JsonValue:
    """Parses UTF-8. InvalidRequest or TooLarge naming `name` and the error."""
    if len(content) > MAX_JSON_BYTES:
        raise TooLarge(f"{name}: more than {MAX_JSON_BYTES} bytes of JSON")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name}: not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(text, object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant)
    except _JsonRefused as error:
        raise InvalidRequest(f"{name}: {error}") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{name}: not JSON: {error.msg} in line {error.lineno}") from None
    except RecursionError:
        raise InvalidRequest(f"{name}: nested deeper than {MAX_JSON_DEPTH} levels") from None
    except ValueError as error:
        raise InvalidRequest(f"{name}: not JSON: {' '.join(str(error).split())[:200]}") from None
    return check_json(value, name)


def check_json(value: JsonValue, name: str) -> JsonValue:
    """Returns the value. InvalidRequest if a sheet cannot hold it."""
    try:
        if measure_depth(value) <= MAX_JSON_DEPTH:
            return _json.validate_python(value)
    except ValidationError as error:
        reason = str(error.errors(include_url=False, include_input=False)[0]["msg"])
        raise InvalidRequest(f"{name}: {reason.removeprefix('Value error, ')[:300]}") from None
    except RecursionError:
        pass
    raise InvalidRequest(f"{name}: nested deeper than {MAX_JSON_DEPTH} levels")


def measure_depth(value: JsonValue) -> int:
    """Nesting depth; 0 for a scalar."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(measure_depth, inside), default=0) if isinstance(value, dict | list) else 0


def _refuse_repeated_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _JsonRefused(f"the key {key[:60]!r} is repeated")
            seen.add(key)
    return found


def _refuse_constant(name: str) -> JsonValue:
    raise _JsonRefused(f"{name} is not a number")
