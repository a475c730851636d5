"""JSON Schemas in words: types with their bounds, and defaults."""

import json
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, JsonValue

from docs.markdown import code

Schema = Mapping[str, JsonValue]

_PLAIN = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "nothing",
}
_FORMATS = {"date-time": "time with its zone", "password": "secret text", "path": "path"}
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
}


class Fields:
    """The fields of a model, by name."""

    def __init__(self, model: type[BaseModel]) -> None:
        schema = model.model_json_schema()
        self._definitions = _object(schema.get("$defs", {}))
        self._required = schema.get("required", [])
        self._properties = _object(schema.get("properties", {}))

    def type_in_words(self, name: str) -> str:
        """Such as `whole number, at least 0, at most 65535`."""
        return self._words(_object(self._properties[name]))

    def member_in_words(self, name: str) -> str:
        """The type of a mapping's values."""
        member = _member(_object(self._properties[name]))
        return "any JSON" if member is None else self._words(member)

    def default(self, name: str) -> str:
        """As one would write it in YAML; empty where leaving it out means that there is none."""
        if name in self._required:
            return "required"
        value = _object(self._properties[name]).get("default")
        if value is None or value in ({}, []):
            return ""
        return code(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

    def meaning(self, name: str) -> str:
        return " ".join(str(_object(self._properties[name]).get("description", "")).split())

    def _words(self, schema: Schema) -> str:
        if isinstance(reference := schema.get("$ref"), str):
            return self._words(_object(self._definitions[reference.rpartition("/")[2]]))
        if isinstance(choices := schema.get("enum", [schema["const"]] if "const" in schema else None), list):
            return _either([code(str(choice)) for choice in choices])
        if isinstance(options := schema.get("anyOf", schema.get("oneOf")), list):
            return ", or ".join(self._words(_object(option)) for option in options)
        return self._plain(schema) + "".join(
            ", " + words.format(schema[bound]) for bound, words in _BOUNDS.items() if bound in schema
        )

    def _plain(self, schema: Schema) -> str:
        kind = schema.get("type")
        if kind == "array":
            return f"list of {self._words(_object(schema['items']))}" if schema.get("items") else "list"
        if kind == "object":
            member = _member(schema)
            return "object" if member is None else f"{self._words(member)} by name"
        form = _FORMATS.get(str(schema.get("format")))
        return form or _PLAIN.get(str(kind), "any JSON")


def _member(mapping: Schema) -> Schema | None:
    """The schema of a mapping's values, if it says one."""
    patterns = mapping.get("patternProperties")
    values = next(iter(patterns.values())) if isinstance(patterns, dict) else mapping.get("additionalProperties")
    return values if isinstance(values, dict) else None


def _object(value: JsonValue | Mapping[str, JsonValue]) -> Schema:
    if not isinstance(value, Mapping):
        raise TypeError(f"not an object: {value!r}")
    return value


def _either(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else words[0]
