"""Answers are parsed as strict JSON and compared with the right value.

Numbers are compared by value: `3`, `3.0` and `3e0` are the same, and integers by JSON Schema; `true` is not a number.
The order of an object's members does not matter, the order of an array's items does. Texts must be identical."""

import json
import re
from collections.abc import Mapping
from typing import Final, NoReturn

import jsonschema_rs
from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.values import MEBIBYTE, FiniteJson, canonical_json, remember
from app.toolkit.tool_calls.calls import MalformedCall, read_json

Schema = Mapping[str, JsonValue]

INVALID: Final = "it is not valid by the schema"
ANOTHER: Final = "it is valid by the schema, but another value"
"""The only fault that a valid answer can have."""

_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\n([^`]*)```", re.IGNORECASE)
_BOUNDED: Final = TypeAdapter[JsonValue](FiniteJson)


def parse_answer(answer: str) -> JsonValue:
    """The one JSON value, with or without a fence. Malformed for anything else, for more than 32 levels of nesting, a
    number out of range or beyond 100 digits, a duplicate member, or a lone surrogate."""
    fenced = _FENCE.fullmatch(answer)
    value = read_json(fenced[1] if fenced else answer)
    try:
        return _BOUNDED.validate_python(value)
    except ValidationError:
        raise MalformedCall("the JSON is nested too deep or holds what is no text") from None


def is_valid(value: JsonValue, schema: Schema) -> bool:
    return _build_validator(canonical_json(schema)).is_valid(value)


def find_fault(answer: str, schema: Schema, value: JsonValue) -> str:
    """What is wrong with the answer; empty if it is `value`. It never reveals the value."""
    parsed, fault = _read_valid(answer, schema)
    if fault:
        return fault
    return "" if is_valid(parsed, {"const": value}) else ANOTHER


def find_validity_fault(answer: str, schema: Schema) -> str:
    """What is wrong with the answer; empty for any value that is valid."""
    return _read_valid(answer, schema)[1]


def _read_valid(answer: str, schema: Schema) -> tuple[JsonValue, str]:
    try:
        value = parse_answer(answer)
    except MalformedCall as malformed:
        return None, f"it is not strict JSON: {malformed}"
    return value, "" if is_valid(value, schema) else INVALID


def require_schema(schema: Schema) -> None:
    """ValueError for what is no JSON Schema, or needs another document."""
    try:
        _build_validator(canonical_json(schema))
    except jsonschema_rs.ValidationError:
        raise ValueError("the schema is no JSON Schema, or refers to another document") from None


@remember(MEBIBYTE)
def _build_validator(schema: str) -> jsonschema_rs.Validator:
    """Patterns take linear time, since the texts are untrusted. A validator takes 10 to 15 times its text."""
    return jsonschema_rs.validator_for(
        json.loads(schema), pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse_document
    )


def _refuse_document(_: str) -> NoReturn:
    raise ValueError("other documents are not fetched")
