"""Checked access to fields of untrusted JSON objects; errors name the field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from app.domain.errors import InvalidRequest

Object = Mapping[str, JsonValue]


@dataclass(frozen=True)
class JsonFields:
    """An object and its path. Null counts as absent, since tools write it for unset fields."""

    values: Object
    path: str = ""

    def build_path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def get_text(self, name: str) -> str:
        """Empty if absent."""
        value = self.values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise build_refusal(self.build_path(name), "must be text")
        return value

    def get_texts(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise build_refusal(self.build_path(name), "must be a list of texts")
        for position, item in enumerate(value):
            if not isinstance(item, str):
                raise build_refusal(f"{self.build_path(name)}.{position}", "must be text")
        return tuple(item for item in value if isinstance(item, str))

    def get_number(self, name: str) -> int | float | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise build_refusal(self.build_path(name), "must be a number")
        return value

    def get_number_or_none(self, name: str) -> int | float | None:
        """None for any other type, for fields of other tools."""
        value = self.values.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def get_flag_or_none(self, name: str) -> bool | None:
        """None for any other type, for fields of other tools."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else None

    def get_flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise build_refusal(self.build_path(name), "must be true or false")
        return value

    def get_part(self, name: str) -> "JsonFields":
        """Empty if absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise build_refusal(self.build_path(name), "must be an object")
        return JsonFields(value or {}, self.build_path(name))

    def iter_parts(self, name: str) -> "Iterator[JsonFields]":
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            raise build_refusal(self.build_path(name), "must be a list")
        for position, item in enumerate(value or []):
            if not isinstance(item, dict):
                raise build_refusal(f"{self.build_path(name)}.{position}", "must be an object")
            yield JsonFields(item, f"{self.build_path(name)}.{position}")


def build_refusal(field: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {why}", field=field)
