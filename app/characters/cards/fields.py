"""Fields of JSON from strangers, and the report of what became of each.

A value of another type than its format names is read where it can mean one thing only (`"50"` is 50), and dropped
otherwise. The report says both, so one odd field refuses no card.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

from app.characters.lorebooks import SLASHED_KEY
from app.domain.errors import InvalidRequest
from app.domain.values import Frozen

# Import reports: mapped, mended, kept and dropped fields, and assumptions


class MappedField(Frozen):
    """A field that was converted. `times` counts lorebook entries, which are reported together: `entries[].keys`."""

    field: str
    to: str
    times: int = 1


class MendedField(Frozen):
    """What was not as its format has it and was read nevertheless; `how` says as what."""

    field: str
    how: str
    times: int = 1


class KeptField(Frozen):
    """A field that is kept for export but not used, or used differently; `why` explains it."""

    field: str
    why: str
    times: int = 1


class DroppedField(Frozen):
    """A field or entry that could not be read, or a part of it. The original, which is kept, still has it."""

    field: str
    why: str
    times: int = 1


class ImportReport(Frozen):
    source: str
    """Format of the file: `character card V2`, `lorebook V3` …"""
    mapped: tuple[MappedField, ...] = ()
    mended: tuple[MendedField, ...] = ()
    kept: tuple[KeptField, ...] = ()
    dropped: tuple[DroppedField, ...] = ()
    assumed: tuple[str, ...] = ()
    """Values that the file lacks and the import chose."""


_MOST_NOTED: Final = 2000
"""Different notes of one kind: a file of 4 MiB may have hundreds of thousands of fields of its own."""


class _Counts(Counter[tuple[str, str]]):
    def add(self, field: str, what: str) -> bool:
        """Returns whether there was room."""
        room = (field, what) in self or len(self) < _MOST_NOTED
        if room:
            self[field, what] += 1
        return room


class ImportNotes:
    """Collects a report while a file is read."""

    def __init__(self) -> None:
        self._mapped, self._mended, self._kept, self._dropped = _Counts(), _Counts(), _Counts(), _Counts()
        self._assumed: list[str] = []
        self._left_out = 0

    def add_mapped(self, field: str, to: str) -> None:
        self._left_out += not self._mapped.add(field, to)

    def add_mended(self, field: str, how: str) -> None:
        self._left_out += not self._mended.add(field, how)

    def add_kept(self, field: str, why: str) -> None:
        self._left_out += not self._kept.add(field, why)

    def add_dropped(self, field: str, why: str) -> None:
        self._left_out += not self._dropped.add(field, why)

    def add_assumed(self, what: str) -> None:
        self._assumed.append(what)

    def mentions(self, field: str) -> bool:
        """Whether it says what became of the field or of a part of it."""
        beginning = (f"{field}.", f"{field}[")
        noted = (*self._mapped, *self._kept, *self._dropped)
        return any(one == field or one.startswith(beginning) for one, _ in noted)

    def build_report(self, source: str) -> ImportReport:
        left = [f"{self._left_out} more notes are left out"] if self._left_out else []
        return ImportReport(
            source=source,
            mapped=tuple(MappedField(field=field, to=to, times=times) for (field, to), times in self._mapped.items()),
            mended=tuple(MendedField(field=field, how=how, times=n) for (field, how), n in self._mended.items()),
            kept=tuple(KeptField(field=field, why=why, times=times) for (field, why), times in self._kept.items()),
            dropped=tuple(DroppedField(field=field, why=why, times=n) for (field, why), n in self._dropped.items()),
            assumed=(*dict.fromkeys(self._assumed), *left),
        )


# Objects

Object = Mapping[str, JsonValue]


def build_refusal(field: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {why}", field=field)


@dataclass(frozen=True)
class JsonFields:
    """An object and its path. What has another type than a getter names counts as absent, as null does: tools write it
    for unset fields. `clean_fields` reads other types first."""

    values: Object
    path: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the file calls fields that have been renamed."""

    def build_path(self, name: str) -> str:
        shown = self.names.get(name, name)
        return f"{self.path}.{shown}" if self.path else shown

    def get_text(self, name: str) -> str:
        """Empty if absent."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def get_texts(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def get_number(self, name: str) -> int | float | None:
        value = self.values.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def get_flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        return value if isinstance(value, bool) else None

    def get_part(self, name: str) -> "JsonFields":
        """Empty if absent."""
        value = self.values.get(name)
        return JsonFields(value if isinstance(value, dict) else {}, self.build_path(name))


# Values of other types than their formats name

Kind = Literal["text", "texts", "words", "number", "flag", "logic", "position", "object", "book"]
"""`words` is a list of texts without commas; `logic` and `position` are those of lorebook entries."""


@dataclass(frozen=True)
class _Reading:
    """`how` and `dropped` are for the report; empty where there is nothing to say."""

    value: JsonValue
    how: str = ""
    dropped: str = ""


def clean_fields(fields: JsonFields, kinds: Mapping[str, Kind], notes: ImportNotes) -> JsonFields:
    """The fields with values of the types that `kinds` names. What cannot be read is left out."""
    cleaned: dict[str, JsonValue] = {}
    for name, value in fields.values.items():
        kind = kinds.get(name)
        if kind is None or value is None:
            cleaned[name] = value
            continue
        reading = _READERS[kind](value)
        path = fields.build_path(name)
        if reading is None:
            notes.add_dropped(path, f"is not {_CALLED[kind]}")
            continue
        if reading.how:
            notes.add_mended(path, reading.how)
        if reading.dropped:
            notes.add_dropped(path, reading.dropped)
        cleaned[name] = reading.value
    return JsonFields(cleaned, fields.path, fields.names)


def _as_text(value: JsonValue) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _read_text(value: JsonValue) -> _Reading | None:
    if isinstance(value, str):
        return _Reading(value)
    if isinstance(value, list):
        lines = [text for text in map(_as_text, value) if text is not None]
        return _Reading("\n".join(lines), "a list is read as lines of text") if len(lines) == len(value) else None
    text = _as_text(value)
    return None if text is None else _Reading(text, "a number is read as text")


def _read_texts(value: JsonValue) -> _Reading | None:
    if not isinstance(value, list):
        text = _as_text(value)
        return None if text is None else _Reading([text], "one value is read as a list")
    texts = [text for text in map(_as_text, value) if text is not None]
    plain = sum(isinstance(item, str) for item in value)
    strange = sum(item is not None for item in value) - len(texts)
    kept: list[JsonValue] = [*texts]
    return _Reading(
        kept,
        "a number is read as text" if len(texts) > plain else "",
        "items that are not text are not used" if strange else "",
    )


def _read_words(value: JsonValue) -> _Reading | None:
    if isinstance(value, str) and not SLASHED_KEY.fullmatch(value.strip()):
        words: list[JsonValue] = [word for word in (part.strip() for part in value.split(",")) if word]
        return _Reading(words, "text is read as a list, parted by commas")
    return _read_texts(value)


_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?")


def _read_number(value: JsonValue) -> _Reading | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _Reading(value)
    text = value.strip().removesuffix("%").rstrip() if isinstance(value, str) else ""
    if not _NUMBER.fullmatch(text):
        return None
    return _Reading(float(text) if "." in text else int(text), "text is read as a number")


_FLAGS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def _read_flag(value: JsonValue) -> _Reading | None:
    if isinstance(value, bool):
        return _Reading(value)
    if isinstance(value, str):
        read = _FLAGS.get(value.strip().casefold())
        return None if read is None else _Reading(read, "text is read as true or false")
    return _Reading(bool(value), "a number is read as true or false") if value in (0, 1) else None


_LOGICS: Final = {
    **{"and_any": 0, "or": 0, "any": 0, "not_all": 1, "nand": 1},
    **{"not_any": 2, "not": 2, "none": 2, "nor": 2, "and_all": 3, "and": 3, "all": 3},
}


def _read_logic(value: JsonValue) -> _Reading | None:
    """One of four numbers."""
    number = _read_number(value)
    if number is not None:
        return _Reading(int(str(number.value).partition(".")[0]), number.how) if number.value in (0, 1, 2, 3) else None
    read = _LOGICS.get("_".join(re.split(r"[\s_-]+", value.strip().casefold()))) if isinstance(value, str) else None
    return None if read is None else _Reading(read, "text is read as a logic")


_POSITIONS: Final = {
    **dict.fromkeys(("before_char", "before_character", "before_desc", "before"), "before_char"),
    **dict.fromkeys(("after_char", "after_character", "after_desc", "after"), "after_char"),
}


def _read_position(value: JsonValue) -> _Reading | None:
    """`before_char`, `after_char`, or the number that world info has."""
    number = _read_number(value)
    if number is not None:
        return number
    read = _POSITIONS.get("_".join(re.split(r"[\s_-]+", value.strip().casefold()))) if isinstance(value, str) else None
    return None if read is None else _Reading(read, "" if read == value else f"is read as {read}")


def _read_object(value: JsonValue) -> _Reading | None:
    return _Reading(value) if isinstance(value, dict) else None


def _read_book(value: JsonValue) -> _Reading | None:
    """A lorebook, or its entries alone."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return _Reading({"entries": value}, "a list is read as a lorebook's entries")
    return _read_object(value)


_READERS: Final[Mapping[Kind, Callable[[JsonValue], _Reading | None]]] = {
    "text": _read_text,
    "texts": _read_texts,
    "words": _read_words,
    "number": _read_number,
    "flag": _read_flag,
    "logic": _read_logic,
    "position": _read_position,
    "object": _read_object,
    "book": _read_book,
}
_CALLED: Final[Mapping[Kind, str]] = {
    "text": "text",
    "texts": "a list of texts",
    "words": "a list of texts",
    "number": "a number",
    "flag": "true or false",
    "logic": "one of the logics 0 to 3",
    "position": "a position",
    "object": "an object",
    "book": "a lorebook",
}


# Depth


def measure_depth(value: JsonValue) -> int:
    """Nesting depth; 0 for a scalar."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(measure_depth, inside), default=0) if isinstance(value, dict | list) else 0


def prune_depth(value: JsonValue, most: int) -> JsonValue:
    """The value with null for whatever is nested deeper than `most` levels."""
    if isinstance(value, dict):
        return {name: prune_depth(item, most - 1) for name, item in value.items()} if most > 0 else None
    if isinstance(value, list):
        return [prune_depth(item, most - 1) for item in value] if most > 0 else None
    return value
