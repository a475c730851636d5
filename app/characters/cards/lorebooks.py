"""Lorebooks of cards and of chat front-ends: imported into ours, and exported again.

A book is read from `lorebook_v3`, a card's `character_book` or a world info export, whose original file is kept. What
is not supported is noted, never dropped without a word. On export whatever is unchanged keeps its original form.
"""

import re
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue, ValidationError

from app.characters.cards.fields import ImportNotes, ImportReport, JsonFields, Kind, build_refusal, clean_fields
from app.characters.cards.formats import MOST_ENTRIES, Version, find_book, list_book_entries
from app.characters.lorebooks import MOST_PATTERNS, SLASHED_KEY, compile_key
from app.domain.errors import TooLarge
from app.domain.faults import explain_faults
from app.domain.worlds import Lorebook, LoreEntry, SecondaryLogic

# Macros: `{{char}}` and `{{user}}` are replaced, random ones are left unchanged

_MACRO: Final = re.compile(r"(?:\{\{([^{}]*)\}\}|<(bot|char|user)>)(['’]s\b)?", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NOT_SHOWN: Final = ("//", "comment:", "hidden_key:")


@dataclass(frozen=True)
class MacroNames:
    """Replacements of the macros. `char` is None for a book without a character."""

    char: str | None
    user: str = "the one before you"
    users: str = "their"
    """For `{{user}}'s`."""


@dataclass(frozen=True)
class _ReplacedText:
    text: str
    left: tuple[str, ...]
    """Macros left in the text."""


def replace_macros(text: str, wording: MacroNames) -> _ReplacedText:
    """Replaces names, removes comments, and leaves the rest unchanged. Takes linear time."""
    left: list[str] = []

    def replace_match(match: re.Match[str]) -> str:
        name = (match[1] if match[1] is not None else match[2]).strip().casefold()
        suffix = match[3] or ""
        if name == "user":
            return wording.users if suffix else wording.user
        if name in ("char", "bot") and wording.char is not None:
            return wording.char + suffix
        if name.startswith(_NOT_SHOWN):
            return suffix
        left.append(match[0].removesuffix(suffix))
        return match[0]

    return _ReplacedText(strip_control_characters(_MACRO.sub(replace_match, text)), tuple(left))


def strip_control_characters(text: str) -> str:
    """Removes control characters except line breaks and tabs."""
    return _CONTROL.sub("", text)


def name_macro(macro: str) -> str:
    """`{{random}}` for `{{random:a,b}}`: the macro's name for reports."""
    name = macro.strip("{}<>").partition(":")[0].strip().casefold()[:40]
    return "{{" + name + "}}"


# Decorators: lines `@@name value` at the start of an entry's content that control its use

_MOST_DECORATORS: Final = 64
_LINE: Final = re.compile(r"(@@@?)([A-Za-z_]+)(?:[ \t]+(.*))?")


@dataclass(frozen=True)
class _Decorator:
    name: str
    value: str

    @property
    def values(self) -> tuple[str, ...]:
        """The comma-separated values."""
        return tuple(part for part in (one.strip() for one in self.value.split(",")) if part)


@dataclass(frozen=True)
class _DecoratedContent:
    """Content and decorators. Each chain is a decorator followed by its fallbacks, in order."""

    content: str
    chains: tuple[tuple[_Decorator, ...], ...]


def _split_decorators(content: str) -> _DecoratedContent:
    """Separates decorators from content; unchanged where there are none."""
    lines = content.split("\n")
    chains: list[list[_Decorator]] = []
    position = 0
    for line in lines[: 4 * _MOST_DECORATORS]:
        match = _LINE.fullmatch(line.strip())
        if match is None and (line.strip() or not chains):
            break
        position += 1
        if match is None:
            continue
        decorator = _Decorator(match[2].casefold(), (match[3] or "").strip())
        if match[1] == "@@@" and chains:
            chains[-1].append(decorator)
        else:
            chains.append([decorator])
    if not chains:
        return _DecoratedContent(content, ())
    return _DecoratedContent(
        "\n".join(lines[position:]).strip("\n"), tuple(tuple(chain) for chain in chains[:_MOST_DECORATORS])
    )


# Import of an entry from the card format

_MOST_CONTENT: Final = 20_000
_MOST_KEY: Final = 200
_MOST_DEPTH: Final = 1000
_MOST_BROKEN: Final = 100
_LOGIC: Final[Mapping[int, SecondaryLogic]] = {0: "and_any", 1: "not_all", 2: "not_any", 3: "and_all"}
_PLACED: Final = {"before_desc": "before_character", "after_desc": "after_character"}
_DECORATED: Final = {
    "scan_depth": "scan_depth",
    "position": "position",
    "activate": "constant",
    "dont_activate": "enabled",
    "additional_keys": "secondary_keys",
    "exclude_keys": "secondary_keys",
}
_ENTRY_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("content", "name", "comment"), "text"),
    **dict.fromkeys(("keys", "secondary_keys"), "words"),
    **dict.fromkeys(("enabled", "constant", "selective", "use_regex", "case_sensitive"), "flag"),
    **dict.fromkeys(("insertion_order", "priority"), "number"),
    "position": "position",
    "extensions": "object",
}
_SETTING_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("probability", "scan_depth"), "number"),
    "position": "position",
    **dict.fromkeys(("useProbability", "case_sensitive", "match_whole_words"), "flag"),
    **dict.fromkeys(("prevent_recursion", "exclude_recursion"), "flag"),
    "selectiveLogic": "logic",
}
"""Supported keys of an entry's extensions; the others are specific to other tools."""


class _EntryReader:
    """Reads the entries of one book in order."""

    def __init__(self, wording: MacroNames, notes: ImportNotes) -> None:
        self._wording = wording
        self._notes = notes
        self._taken: set[str] = set()
        self._patterns = 0
        self._broken = 0

    def read(self, given: JsonFields, number: int) -> tuple[JsonFields, LoreEntry | None]:
        """The entry with values of the right types; None for an unsupported one."""
        entry = clean_fields(given, _ENTRY_KINDS, self._notes)
        extensions = clean_fields(entry.get_part("extensions"), _SETTING_KINDS, self._notes)
        entry = JsonFields({**entry.values, "extensions": dict(extensions.values)}, entry.path, entry.names)
        if isinstance(entry.values.get("position"), int | float):
            place = extensions.values.get("position")
            place = entry.values["position"] if place is None else place
            extensions = JsonFields({**extensions.values, "position": place}, extensions.path)
        return entry, self._build(given, entry, extensions, number)

    def _build(self, given: JsonFields, entry: JsonFields, extensions: JsonFields, number: int) -> LoreEntry | None:
        if entry.values.get("content") is None:
            self._notes.add_dropped(entry.path, "has no content")
            return None
        decorated = _split_decorators(entry.get_text("content"))
        content = self._replace_macros(decorated.content, entry, "content")
        keys, secondary, regex = self._read_keys(entry)
        logic = int(extensions.get_number("selectiveLogic") or 0)
        unclear = bool(secondary) and "selectiveLogic" in given.get_part("extensions").values.keys() - extensions.values
        if unclear:
            self._notes.add_kept(entry.build_path("secondary_keys"), "the entry is switched off: its logic is unclear")
        is_read = given.values.get("enabled") is None or "enabled" in entry.values
        if not is_read:
            self._notes.add_kept(entry.build_path("enabled"), "the entry is switched off: its switch is unclear")
        values: dict[str, object] = {
            "content": content,
            "keys": keys,
            "regex": regex,
            "name": (entry.get_text("name") or entry.get_text("comment"))[:_MOST_KEY],
            "enabled": entry.get_flag("enabled") is not False and is_read and not unclear,
            "constant": entry.get_flag("constant") is True and entry.get_flag("use_regex") is not True,
            "secondary_keys": secondary,
            "logic": _LOGIC.get(logic, "and_any") if secondary else "and_any",
            "order": self._read_whole_number(entry, "insertion_order", 100),
            "priority": None if entry.get_number("priority") is None else self._read_whole_number(entry, "priority", 0),
            "position": self._read_position(entry, extensions),
            "scan_depth": self._clamp_depth(extensions.get_number("scan_depth")),
            "case_sensitive": _read_case_sensitivity(entry),
            "whole_words": extensions.get_flag("match_whole_words"),
            "probability": _read_probability(extensions),
            "prevent_recursion": extensions.get_flag("prevent_recursion") is True,
            "exclude_recursion": extensions.get_flag("exclude_recursion") is True,
        }
        self._apply_decorators(decorated, entry, values)
        self._note_leftovers(entry, extensions)
        if len(content) > _MOST_CONTENT:
            self._notes.add_kept(entry.path, f"the content is longer than {_MOST_CONTENT} characters")
            return None
        try:
            return LoreEntry.model_validate({"id": self._choose_id(entry, number), **values})
        except ValidationError as error:
            self._notes.add_dropped(entry.path, explain_faults(error, LoreEntry)[0].sentence)
            return None

    def _choose_id(self, entry: JsonFields, number: int) -> str:
        original = entry.values.get("id")
        preferred = str(original).strip() if isinstance(original, str | int) and not isinstance(original, bool) else ""
        preferred = preferred[: _MOST_KEY - 10] or str(number)
        unique, again = preferred, 1
        while unique in self._taken:
            again += 1
            unique = f"{preferred}-{number}" if again == 2 else f"{preferred}-{number}-{again}"
        self._taken.add(unique)
        return unique

    def _replace_macros(self, text: str, entry: JsonFields, field: str) -> str:
        replaced = replace_macros(text, self._wording)
        for macro in dict.fromkeys(map(name_macro, replaced.left)):
            self._notes.add_kept(entry.build_path(field), f"{macro} is left unchanged")
        return replaced.text

    def _read_keys(self, entry: JsonFields) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        """Keys, secondary keys, and whether they are patterns. As in other tools, `/pattern/flags` is a pattern."""
        uses_regex = entry.get_flag("use_regex") is True
        keys = [self._replace_macros(key, entry, "keys").strip() for key in entry.get_texts("keys")]
        more = [self._replace_macros(key, entry, "secondary_keys").strip() for key in entry.get_texts("secondary_keys")]
        if more and (uses_regex or entry.get_flag("selective") is not True):
            self._notes.add_kept(entry.build_path("secondary_keys"), "the entry does not use secondary keys")
            more = []
        patterns = uses_regex or any(SLASHED_KEY.fullmatch(key) for key in (*keys, *more))
        if patterns and not uses_regex:
            keys, more = [self._as_pattern(key, entry) for key in keys], [self._as_pattern(key, entry) for key in more]
        usable = [
            tuple(dict.fromkeys(key for key in some if self._is_usable(key, patterns, entry))) for some in (keys, more)
        ]
        return usable[0], usable[1], patterns

    def _as_pattern(self, key: str, entry: JsonFields) -> str:
        """Escapes a plain key among patterns, with the entry's case setting."""
        if not key or SLASHED_KEY.fullmatch(key):
            return key
        return ("" if _read_case_sensitivity(entry) else "(?i)") + re.escape(key)

    def _is_usable(self, key: str, pattern: bool, entry: JsonFields) -> bool:
        if not key:
            return False
        if len(key) > _MOST_KEY:
            self._notes.add_kept(entry.build_path("keys"), f"a key longer than {_MOST_KEY} characters is not used")
            return False
        return not pattern or self._is_searchable(key, entry.build_path("keys"))

    def _is_searchable(self, key: str, field: str) -> bool:
        """Checks both limits before compiling, since compiling is slow, above all when it fails."""
        if self._patterns >= MOST_PATTERNS or self._broken >= _MOST_BROKEN:
            limit = f"{MOST_PATTERNS} keys that are patterns, and {_MOST_BROKEN} of them broken"
            self._notes.add_kept(field, f"a lorebook has at most {limit}")
            return False
        try:
            compile_key(key)
        except ValueError as error:
            self._broken += 1
            self._notes.add_kept(field, f"{key!r} is not used: {error}")
            return False
        self._patterns += 1
        return True

    def _read_position(self, entry: JsonFields, extensions: JsonFields) -> str:
        number = extensions.get_number("position")
        if number is None:
            placed = extensions.get_text("position") or entry.get_text("position")
            return "before_character" if placed == "before_char" else "after_character"
        if number not in (0, 1):
            why = "placed with the other lore: author's notes, examples and depths are not supported"
            self._notes.add_kept(extensions.build_path("position"), why)
        return "before_character" if number == 0 else "after_character"

    def _read_whole_number(self, entry: JsonFields, name: str, otherwise: int) -> int:
        number = entry.get_number(name)
        if number is None:
            return otherwise
        whole = int(max(-1_000_000, min(1_000_000, number)))
        if whole != number:
            self._notes.add_kept(entry.build_path(name), "rounded to a whole number within ±1,000,000")
        return whole

    def _clamp_depth(self, number: float | None) -> int | None:
        return None if number is None else int(max(0, min(_MOST_DEPTH, number)))

    def _apply_decorators(self, decorated: _DecoratedContent, entry: JsonFields, values: dict[str, object]) -> None:
        names: set[str] = set()
        enabled = values["enabled"]
        for chain in decorated.chains:
            used = next(
                (one for one in chain if one.name not in names and self._apply_decorator(one, entry, values)), None
            )
            field = f"{entry.build_path('content')} @@{chain[0].name if used is None else used.name}"
            if used is None:
                self._notes.add_kept(field, "unsupported decorator")
            else:
                names.add(used.name)
                self._notes.add_mapped(field, f"lorebook.entries[].{_DECORATED[used.name]}")
        if {"activate", "dont_activate"} <= names:
            values["enabled"] = enabled

    def _apply_decorator(self, decorator: _Decorator, entry: JsonFields, values: dict[str, object]) -> bool:
        """Returns whether the decorator and its value are supported."""
        match decorator.name:
            case "scan_depth" if re.fullmatch(r"[0-9]{1,9}", decorator.value):
                values["scan_depth"] = self._clamp_depth(int(decorator.value))
            case "position" if decorator.value in _PLACED:
                values["position"] = _PLACED[decorator.value]
            case "activate":
                values["constant"] = True
            case "dont_activate":
                values["enabled"] = False
            case "additional_keys":
                return self._add_keys(decorator, "and_any", entry, values)
            case "exclude_keys":
                return self._add_keys(decorator, "not_any", entry, values)
            case _:
                return False
        return True

    def _add_keys(
        self, decorator: _Decorator, logic: SecondaryLogic, entry: JsonFields, values: dict[str, object]
    ) -> bool:
        """Adds secondary keys, unless the entry has some: it supports one list with one logic."""
        patterns = values["regex"] is True
        keys = decorator.values
        if patterns and entry.get_flag("use_regex") is not True:
            keys = tuple(self._as_pattern(key, entry) for key in keys)
        keys = tuple(key for key in keys if self._is_usable(key, patterns, entry))
        if values["secondary_keys"] or not keys:
            return False
        values["secondary_keys"], values["logic"] = keys, logic
        return True

    def _note_leftovers(self, entry: JsonFields, extensions: JsonFields) -> None:
        for name, value in entry.values.items():
            if name not in _ENTRY_FIELDS:
                self._notes.add_kept(entry.build_path(name[:60]), "not a lorebook field")
            elif name in _MAPPED:
                self._notes.add_mapped(entry.build_path(name), f"lorebook.entries[].{_MAPPED[name]}")
            elif name == "comment" and value and entry.get_text("name"):
                self._notes.add_kept(entry.build_path("comment"), "the entry has a name")
        for name, value in extensions.values.items():
            if name not in _SETTING_KINDS and value not in (None, False, 0, "", [], {}):
                self._notes.add_kept(extensions.build_path(name[:60]), "used by other tools only")


_MAPPED: Final = {
    "keys": "keys",
    "content": "content",
    "enabled": "enabled",
    "insertion_order": "order",
    "case_sensitive": "case_sensitive",
    "name": "name",
    "priority": "priority",
    "id": "id",
    "secondary_keys": "secondary_keys",
    "constant": "constant",
    "position": "position",
    "use_regex": "regex",
}
_ENTRY_FIELDS: Final = {*_MAPPED, "comment", "selective", "extensions"}


def _read_case_sensitivity(entry: JsonFields) -> bool | None:
    own = entry.get_flag("case_sensitive")
    return entry.get_part("extensions").get_flag("case_sensitive") if own is None else own


def _read_probability(extensions: JsonFields) -> float:
    number = extensions.get_number("probability")
    if number is None or extensions.get_flag("useProbability") is False:
        return 1.0
    return max(0, min(100, number)) / 100


# Import of a book

ORIGINAL: Final = "lorebook/original"
"""Extension key of the original file."""
_MOST_TOKENS: Final = 100_000
_BOOK_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("name", "description"), "text"),
    **dict.fromkeys(("scan_depth", "token_budget"), "number"),
    "recursive_scanning": "flag",
}
_BOOK_FIELDS: Final = {
    "name": "name",
    "description": "description",
    "scan_depth": "scan_depth",
    "token_budget": "token_budget",
    "recursive_scanning": "recursive",
}


def read_lorebook(value: JsonValue) -> tuple[Lorebook, ImportReport]:
    """Reads our own format, or another tool's, whose file is kept under `extensions`. InvalidRequest or TooLarge naming
    the field."""
    require_few_entries(value)
    own = _parse_own_lorebook(value)
    if own is not None:
        return own, ImportReport(source="lorebook")
    notes = ImportNotes()
    source, book = find_book(value)
    imported = build_lorebook(book, MacroNames(char=None), notes)
    if book.values.get("entries") and not imported.entries:
        raise build_refusal("entries", f"none can be read: {_describe_entry(book)}")
    # a file of entries alone is kept as what it stands for
    original = value if isinstance(value, dict) else dict(book.values)
    return imported.model_copy(update={"extensions": {ORIGINAL: original}}), notes.build_report(source)


def _describe_entry(book: JsonFields) -> str:
    first = next((entry for entry, _ in list_book_entries(book, ImportNotes())), None)
    return f"the first has {', '.join(name[:40] for name in [*first][:8])}" if isinstance(first, dict) else "no object"


def require_few_entries(value: object) -> None:
    """Counts the entries before any of them is read: to refuse each of a million takes minutes. TooLarge."""
    held = value if isinstance(value, Mapping) else {}
    data = held.get("data")
    places = (
        ("the document", value),
        ("entries", held.get("entries")),
        ("data", data),
        ("data.entries", data.get("entries") if isinstance(data, Mapping) else None),
    )
    for where, entries in places:
        listed = isinstance(entries, list | tuple) or (isinstance(entries, dict) and where.endswith("entries"))
        if listed and isinstance(entries, Sized) and len(entries) > MOST_ENTRIES:
            raise TooLarge(f"{where}: more than {MOST_ENTRIES} entries", field=where)


def _parse_own_lorebook(value: JsonValue) -> Lorebook | None:
    try:
        return Lorebook.model_validate(value)
    except ValidationError:
        return None


@dataclass(frozen=True)
class _ReadEntry:
    """An entry as it is, in the card's form, and as it was read; the last is None if it is not supported."""

    original: JsonValue
    fields: JsonFields
    imported: LoreEntry | None


def _read_entries(book: JsonFields, wording: MacroNames, notes: ImportNotes) -> tuple[_ReadEntry, ...]:
    reader = _EntryReader(wording, notes)
    read: list[_ReadEntry] = []
    for number, (original, converted) in enumerate(list_book_entries(book, notes), start=1):
        if converted is None:
            read.append(_ReadEntry(original, JsonFields({}), None))
            continue
        cleaned, imported = reader.read(converted, number)
        fields = JsonFields({**converted.values, **cleaned.values}, converted.path)
        read.append(_ReadEntry(original, fields, imported))
    return tuple(read)


def build_lorebook(given: JsonFields, wording: MacroNames, notes: ImportNotes) -> Lorebook:
    """Builds the book without keeping the original."""
    read = _read_entries(given, wording, notes)
    book = clean_fields(given, _BOOK_KINDS, notes)
    depth, budget = book.get_number("scan_depth"), book.get_number("token_budget")
    values: dict[str, object] = {
        "name": book.get_text("name"),
        "description": book.get_text("description"),
        "recursive": book.get_flag("recursive_scanning") is True,
        "entries": tuple(entry.imported for entry in read if entry.imported is not None),
    }
    if depth is not None:
        values["scan_depth"] = int(max(0, min(_MOST_DEPTH, depth)))
    if budget is not None:
        values["token_budget"] = int(max(0, min(_MOST_TOKENS, budget)))
    for name, held in book.values.items():
        if name in _BOOK_FIELDS:
            notes.add_mapped(book.build_path(name), f"lorebook.{_BOOK_FIELDS[name]}")
        elif name not in ("entries", "extensions", "originalData") or (name == "extensions" and held):
            notes.add_kept(book.build_path(name[:60]), "not a lorebook field")
    return Lorebook.model_validate(values)


# Export in the card format

_LOGIC_NUMBERS: Final = {logic: number for number, logic in _LOGIC.items()}


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
        "entries": [_build_entry(entry, version) for entry in book.entries],
    }


def update_book(
    book: Lorebook, original: JsonFields, wording: MacroNames, version: Version, *, converted: bool
) -> dict[str, JsonValue]:
    """The card's original book with our changes applied. `converted`: the card version changed, so every entry is
    rewritten."""
    notes = ImportNotes()
    before = build_lorebook(original, wording, notes)
    if book == before and not converted:
        return dict(original.values)
    entries = _read_entries(original, wording, notes)
    by_id = {read.imported.id: read for read in entries if read.imported is not None}
    written: list[JsonValue] = []
    for entry in book.entries:
        read = by_id.get(entry.id)
        if read is None or read.imported is None:
            written.append(_build_entry(entry, version))
        elif read.imported == entry and not converted:
            written.append(read.original)
        else:
            written.append(_merge_entry(read.fields, read.imported, entry, version))
    left = [read.original for read in entries if read.imported is None]
    changed = {k: v for k, v in _build_book_fields(book).items() if v != _build_book_fields(before).get(k)}
    return {**original.values, **changed, "entries": [*written, *left]}


def _merge_entry(raw: JsonFields, imported: LoreEntry, entry: LoreEntry, version: Version) -> dict[str, JsonValue]:
    """Changed content drops its decorators, whose values are in the fields."""
    fields = _build_entry(entry, version)
    fields.pop("id", None)
    if imported.content == entry.content:
        content = raw.get_text("content")
        fields["content"] = _split_decorators(content).content if version == "V2" else content
    extensions = {**raw.get_part("extensions").values, **_as_object(fields["extensions"])}
    return {**raw.values, **fields, "extensions": extensions}


def _as_object(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _build_entry(entry: LoreEntry, version: Version) -> dict[str, JsonValue]:
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
    plain = not any(SLASHED_KEY.fullmatch(key) for key in everything)
    return entry.regex and plain and not entry.constant and not entry.secondary_keys


def _build_keys(entry: LoreEntry, version: Version) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not entry.regex or (version == "V3" and _is_pattern(entry)):
        return entry.keys, entry.secondary_keys
    return tuple(map(_add_slashes, entry.keys)), tuple(map(_add_slashes, entry.secondary_keys))


def _add_slashes(key: str) -> str:
    return key if SLASHED_KEY.fullmatch(key) else f"/{key}/"


def _build_extensions(entry: LoreEntry) -> dict[str, JsonValue]:
    """Settings without a card field, under the names that other tools use."""
    extensions = dict(entry.extensions)
    extensions["position"] = 0 if entry.position == "before_character" else 1
    extensions["selectiveLogic"] = _LOGIC_NUMBERS[entry.logic]
    if entry.probability < 1:
        extensions |= {"probability": entry.probability * 100, "useProbability": True}
    if entry.scan_depth is not None:
        extensions["scan_depth"] = entry.scan_depth
    if entry.whole_words is not None:
        extensions["match_whole_words"] = entry.whole_words
    if entry.prevent_recursion:
        extensions["prevent_recursion"] = True
    if entry.exclude_recursion:
        extensions["exclude_recursion"] = True
    return extensions


def _build_book_fields(book: Lorebook) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = {
        "name": book.name,
        "description": book.description,
        "scan_depth": book.scan_depth,
        "recursive_scanning": book.recursive,
    }
    return fields if book.token_budget is None else {**fields, "token_budget": book.token_budget}
