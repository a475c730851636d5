"""Converts world info exports of chat front-ends to the lorebook format of cards."""

from typing import Final

from pydantic import JsonValue

from app.characters.cards.json_fields import JsonFields, build_refusal

_ENTRY: Final = {
    "uid": "id",
    "key": "keys",
    "keysecondary": "secondary_keys",
    "content": "content",
    "comment": "comment",
    "constant": "constant",
    "selective": "selective",
    "order": "insertion_order",
}
_EXTENSIONS: Final = {
    "position": "position",
    "selectiveLogic": "selectiveLogic",
    "probability": "probability",
    "useProbability": "useProbability",
    "scanDepth": "scan_depth",
    "caseSensitive": "case_sensitive",
    "matchWholeWords": "match_whole_words",
    "preventRecursion": "prevent_recursion",
    "excludeRecursion": "exclude_recursion",
}


def from_world_info(book: JsonFields) -> JsonFields:
    """Entries in the order of the file. InvalidRequest naming an invalid entry."""
    entries = book.get_part("entries")
    read: list[JsonValue] = []
    for name in entries.values:
        if not isinstance(entries.values[name], dict):
            raise build_refusal(entries.build_path(name), "must be an object")
        read.append(_convert_entry(entries.get_part(name)))
    return JsonFields(
        {**{name: value for name, value in book.values.items() if name != "originalData"}, "entries": read}
    )


def _convert_entry(entry: JsonFields) -> dict[str, JsonValue]:
    """Secondary keys are used by default, as in the original tools."""
    extensions = dict(entry.get_part("extensions").values)
    found: dict[str, JsonValue] = {"selective": True, "enabled": entry.get_flag("disable") is not True}
    for name, value in entry.values.items():
        if name == "position" and isinstance(value, str):
            found[name] = value
        elif name in _ENTRY:
            found[_ENTRY[name]] = value
        elif name in _EXTENSIONS or name not in ("disable", "extensions"):
            extensions[_EXTENSIONS.get(name, name)] = value
    return {**found, "extensions": extensions}
