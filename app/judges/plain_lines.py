"""JSON as plain lines for prompts: a field or record a line, without what is empty; a table names its columns once."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

_BETWEEN: Final = " | "
_SAID: Final = (("speaker", "text"), ("role", "content"))
"""Fields of a line of a conversation."""
_BREAKS_LEFT_BY_JSON: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def render_lines(fields: Mapping[str, JsonValue], indent: str = "") -> Iterator[str]:
    """No text can begin a line of its own: one with line breaks is written as a JSON string. Headings are not indented,
    and all else by at most one space, which costs no tokens."""
    for name, value in fields.items():
        if is_empty(value):
            continue
        if isinstance(value, dict):
            yield f"{name}:"
            yield from render_lines(value, " ")
        elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
            records = [item for item in map(_drop_empty, value) if not is_empty(item)]
            columns = _find_columns(records)
            yield f"{indent}{name} ({_BETWEEN.join(columns)}):" if columns else f"{indent}{name}:"
            yield from (f" - {_render_item(item, named=not columns)}" for item in records)
        else:
            yield f"{indent}{name}: {_render_value(value)}"


def is_empty(value: JsonValue) -> bool:
    """Whether a value says nothing. False and 0 say something."""
    return value is None or value in ("", [], {})


def iterate_texts(value: JsonValue) -> Iterator[str]:
    """Every string in `value`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from iterate_texts(item)


def encode_text(text: str) -> str:
    """A JSON string on one line."""
    return json.dumps(text, ensure_ascii=False).translate(_BREAKS_LEFT_BY_JSON)


def _drop_empty(item: JsonValue) -> JsonValue:
    return {name: value for name, value in item.items() if not is_empty(value)} if isinstance(item, dict) else item


def _find_columns(records: Sequence[JsonValue]) -> tuple[str, ...]:
    """The fields of records that all have the same ones: they are named once, above. A list within would look like
    further fields."""
    fields = [item for item in records if isinstance(item, dict)]
    names = {tuple(item) for item in fields}
    if len(fields) < max(2, len(records)) or len(names) > 1:
        return ()
    flat = not any(isinstance(value, dict | list) for item in fields for value in item.values())
    (columns,) = names
    return columns if flat and len(columns) > 1 and columns not in _SAID else ()


def _render_item(item: JsonValue, *, named: bool) -> str:
    """A record on one line. One that has only a text, or a text and its speaker, needs no names of fields."""
    if not isinstance(item, dict):
        return _render_value(item)
    if list(item) == ["text"]:
        return _render_value(item["text"])
    if tuple(item) in _SAID:
        speaker, text = map(_render_value, item.values())
        return f"{speaker}: {text}"
    return _BETWEEN.join(
        f"{name}: {_render_value(each)}" if named else _render_value(each) for name, each in item.items()
    )


def _render_value(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value if _is_plain(value) else encode_text(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return _BETWEEN.join(_render_value(item) for item in value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(_BREAKS_LEFT_BY_JSON)


def _is_plain(text: str) -> bool:
    return len(text.splitlines()) == 1 and text == text.strip() and "|" not in text and not text.startswith('"')
