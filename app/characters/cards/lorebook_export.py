"""Export of lorebooks in the card format; unchanged parts keep their original form."""

import re
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from app.characters.cards.card_versions import Version
from app.characters.cards.decorators import split_decorators
from app.characters.cards.json_fields import JsonFields
from app.characters.cards.lorebook_import import ORIGINAL, build_lorebook, read_entries, read_lorebook
from app.characters.cards.macros import MacroNames
from app.characters.cards.report import ImportNotes
from app.domain.lorebooks import Lorebook, LoreEntry

_LOGIC: Final = {"and_any": 0, "not_all": 1, "not_any": 2, "and_all": 3}
_SLASHED: Final = re.compile(r"/.+/[a-z]*", re.DOTALL)


def write_lorebook(book: Lorebook) -> JsonValue:
    """The original file if the book is unchanged, else a `lorebook_v3`."""
    original = book.extensions.get(ORIGINAL)
    if isinstance(original, dict) and read_lorebook(original)[0] == book:
        return original
    plain = book.model_copy(update={"extensions": {k: v for k, v in book.extensions.items() if k != ORIGINAL}})
    return {"spec": "lorebook_v3", "data": build_book(plain, "V3")}


def build_book(book: Lorebook, version: Version) -> dict[str, JsonValue]:
    return {
        **_build_book_fields(book),
        "extensions": dict(book.extensions),
        "entries": [build_entry(entry, version) for entry in book.entries],
    }


def update_book(
    book: Lorebook, original: JsonFields, wording: MacroNames, version: Version, *, converted: bool
) -> dict[str, JsonValue]:
    """The card's original book with our changes applied. `converted`: the card version changed, so every entry is
    rewritten."""
    notes = ImportNotes()
    before = build_lorebook(original, wording, notes, "")
    if book == before and not converted:
        return dict(original.values)
    entries = read_entries(original, wording, notes, "")
    known = {read.id: (given, read) for given, read in entries if read is not None}
    written: list[JsonValue] = []
    for entry in book.entries:
        given, read = known.get(entry.id, (None, None))
        if given is None or read is None:
            written.append(build_entry(entry, version))
        elif read == entry and not converted:
            written.append(dict(given.values))
        else:
            written.append(_merge_entry(given, read, entry, version))
    left = [dict(given.values) for given, read in entries if read is None]
    changed = {k: v for k, v in _build_book_fields(book).items() if v != _build_book_fields(before).get(k)}
    return {**original.values, **changed, "entries": [*written, *left]}


def _merge_entry(given: JsonFields, read: LoreEntry, entry: LoreEntry, version: Version) -> dict[str, JsonValue]:
    """Changed content drops its decorators, whose values are in the fields."""
    fields = build_entry(entry, version)
    fields.pop("id", None)
    if read.content == entry.content:
        content = given.get_text("content")
        fields["content"] = split_decorators(content).content if version == "V2" else content
    extensions = {**given.get_part("extensions").values, **_as_object(fields["extensions"])}
    return {**given.values, **fields, "extensions": extensions}


def _as_object(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def build_entry(entry: LoreEntry, version: Version) -> dict[str, JsonValue]:
    keys, secondary = _build_keys(entry, version)
    fields: dict[str, JsonValue] = {
        "keys": list(keys),
        "content": entry.content,
        "extensions": _build_extensions(entry),
        "enabled": entry.enabled,
        "insertion_order": entry.order,
        "constant": entry.constant,
        "selective": bool(entry.secondary_keys),
        "secondary_keys": list(secondary),
        "position": "before_char" if entry.position == "before_character" else "after_char",
    }
    if entry.name:
        fields["name"] = entry.name
    if entry.priority is not None:
        fields["priority"] = entry.priority
    if entry.case_sensitive is not None:
        fields["case_sensitive"] = entry.case_sensitive
    if version == "V3":
        fields["use_regex"] = _is_pattern(entry)
    if version == "V3" or re.fullmatch(r"0|[1-9][0-9]{0,8}", entry.id):
        fields["id"] = int(entry.id) if entry.id.isdecimal() and version == "V2" else entry.id
    return fields


def _is_pattern(entry: LoreEntry) -> bool:
    """Whether V3's `use_regex` applies to all keys; otherwise patterns are written between slashes."""
    everything = (*entry.keys, *entry.secondary_keys)
    plain = not any(_SLASHED.fullmatch(key) for key in everything)
    return entry.regex and plain and not entry.constant and not entry.secondary_keys


def _build_keys(entry: LoreEntry, version: Version) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not entry.regex or (version == "V3" and _is_pattern(entry)):
        return entry.keys, entry.secondary_keys
    return tuple(map(_add_slashes, entry.keys)), tuple(map(_add_slashes, entry.secondary_keys))


def _add_slashes(key: str) -> str:
    return key if _SLASHED.fullmatch(key) else f"/{key}/"


def _build_extensions(entry: LoreEntry) -> dict[str, JsonValue]:
    """Settings without a card field, under the names that other tools use."""
    found = dict(entry.extensions)
    found["position"] = 0 if entry.position == "before_character" else 1
    found["selectiveLogic"] = _LOGIC[entry.logic]
    if entry.probability < 1:
        found |= {"probability": entry.probability * 100, "useProbability": True}
    if entry.scan_depth is not None:
        found["scan_depth"] = entry.scan_depth
    if entry.whole_words is not None:
        found["match_whole_words"] = entry.whole_words
    if entry.prevent_recursion:
        found["prevent_recursion"] = True
    if entry.exclude_recursion:
        found["exclude_recursion"] = True
    return found


def _build_book_fields(book: Lorebook) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = {
        "name": book.name,
        "description": book.description,
        "scan_depth": book.scan_depth,
        "recursive_scanning": book.recursive,
    }
    return fields if book.token_budget is None else {**fields, "token_budget": book.token_budget}
