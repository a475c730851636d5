"""Import of a lorebook entry from the card format; notes record what is unsupported."""

import re
from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from app.characters.cards.decorators import DecoratedContent, Decorator, split_decorators
from app.characters.cards.json_fields import JsonFields, build_refusal
from app.characters.cards.macros import MacroNames, name_macro, replace_macros
from app.characters.cards.report import ImportNotes
from app.characters.lorebooks.key_patterns import MOST_PATTERNS, compile_key
from app.domain.lorebooks import LoreEntry, SecondaryLogic

MOST_CONTENT: Final = 20_000
MOST_KEY: Final = 200
MOST_DEPTH: Final = 1000
MOST_BROKEN: Final = 100
_LOGIC: Final[Mapping[int, SecondaryLogic]] = {0: "and_any", 1: "not_all", 2: "not_any", 3: "and_all"}
_SLASHED: Final = re.compile(r"/(.+)/([a-z]*)", re.DOTALL)
_PLACED: Final = {"before_desc": "before_character", "after_desc": "after_character"}
_DECORATED: Final = {
    "scan_depth": "scan_depth",
    "position": "position",
    "activate": "constant",
    "dont_activate": "enabled",
    "additional_keys": "secondary_keys",
    "exclude_keys": "secondary_keys",
}
_READ_EXTENSIONS: Final = {
    "position",
    "selectiveLogic",
    "probability",
    "useProbability",
    "scan_depth",
    "case_sensitive",
    "match_whole_words",
    "prevent_recursion",
    "exclude_recursion",
}
"""Supported keys of an entry's extensions; the others are specific to other tools."""


class EntryReader:
    """Reads the entries of one book in order."""

    def __init__(self, wording: MacroNames, notes: ImportNotes, where: str) -> None:
        self._wording = wording
        self._notes = notes
        self._where = where
        self._taken: set[str] = set()
        self._patterns = 0
        self._broken = 0

    def read(self, entry: JsonFields, number: int) -> LoreEntry | None:
        """None for an unsupported entry. InvalidRequest naming the field for an invalid one."""
        decorated = split_decorators(entry.get_text("content"))
        content = self._replace_macros(decorated.content, "content")
        extensions = entry.get_part("extensions")
        keys, secondary, regex = self._read_keys(entry)
        number_of_logic = int(extensions.get_number_or_none("selectiveLogic") or 0)
        values: dict[str, object] = {
            "content": content,
            "keys": keys,
            "regex": regex,
            "name": (entry.get_text("name") or entry.get_text("comment"))[:MOST_KEY],
            "enabled": entry.get_flag("enabled") is not False,
            "constant": entry.get_flag("constant") is True and entry.get_flag("use_regex") is not True,
            "secondary_keys": secondary,
            "logic": _LOGIC.get(number_of_logic, "and_any") if secondary else "and_any",
            "order": self._read_whole_number(entry, "insertion_order", 100),
            "priority": None if entry.get_number("priority") is None else self._read_whole_number(entry, "priority", 0),
            "position": self._read_position(entry, extensions),
            "scan_depth": self._clamp_depth(extensions.get_number_or_none("scan_depth")),
            "case_sensitive": _read_case_sensitivity(entry),
            "whole_words": extensions.get_flag_or_none("match_whole_words"),
            "probability": _read_probability(extensions),
            "prevent_recursion": extensions.get_flag_or_none("prevent_recursion") is True,
            "exclude_recursion": extensions.get_flag_or_none("exclude_recursion") is True,
        }
        self._apply_decorators(decorated, entry, values)
        self._note_leftovers(entry, extensions)
        if len(content) > MOST_CONTENT:
            self._notes.add_kept(f"{self._where}entries[]", f"the content is longer than {MOST_CONTENT} characters")
            return None
        try:
            return LoreEntry.model_validate({"id": self._choose_id(entry, number), **values})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise build_refusal(entry.build_path(str(first["loc"][0])), first["msg"]) from None

    def _choose_id(self, entry: JsonFields, number: int) -> str:
        given = entry.values.get("id")
        wanted = str(given).strip() if isinstance(given, str | int) and not isinstance(given, bool) else ""
        wanted = wanted[: MOST_KEY - 10] or str(number)
        unique, again = wanted, 1
        while unique in self._taken:
            again += 1
            unique = f"{wanted}-{number}" if again == 2 else f"{wanted}-{number}-{again}"
        self._taken.add(unique)
        return unique

    def _replace_macros(self, text: str, field: str) -> str:
        found = replace_macros(text, self._wording)
        for macro in dict.fromkeys(map(name_macro, found.left)):
            self._notes.add_kept(f"{self._where}entries[].{field}", f"{macro} is left unchanged")
        return found.text

    def _read_keys(self, entry: JsonFields) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        """Keys, secondary keys, and whether they are patterns. As in other tools, `/pattern/flags` is a pattern."""
        uses_regex = entry.get_flag("use_regex") is True
        keys = [self._replace_macros(key, "keys").strip() for key in entry.get_texts("keys")]
        more = [self._replace_macros(key, "secondary_keys").strip() for key in entry.get_texts("secondary_keys")]
        if more and (uses_regex or entry.get_flag("selective") is not True):
            self._notes.add_kept(f"{self._where}entries[].secondary_keys", "the entry does not use secondary keys")
            more = []
        patterns = uses_regex or any(_SLASHED.fullmatch(key) for key in (*keys, *more))
        if patterns and not uses_regex:
            keys, more = [self._as_pattern(key, entry) for key in keys], [self._as_pattern(key, entry) for key in more]
        usable = [tuple(dict.fromkeys(key for key in some if self._is_usable(key, patterns))) for some in (keys, more)]
        return usable[0], usable[1], patterns

    def _as_pattern(self, key: str, entry: JsonFields) -> str:
        """Escapes a plain key among patterns, with the entry's case setting."""
        if not key or _SLASHED.fullmatch(key):
            return key
        return ("" if _read_case_sensitivity(entry) else "(?i)") + re.escape(key)

    def _is_usable(self, key: str, pattern: bool) -> bool:
        if not key:
            return False
        if len(key) > MOST_KEY:
            self._notes.add_kept(f"{self._where}entries[].keys", f"a key longer than {MOST_KEY} characters is not used")
            return False
        return not pattern or self._is_searchable(key)

    def _is_searchable(self, key: str) -> bool:
        """Checks both limits before compiling, since compiling is slow, above all when it fails."""
        field = f"{self._where}entries[].keys"
        if self._patterns >= MOST_PATTERNS or self._broken >= MOST_BROKEN:
            limit = f"{MOST_PATTERNS} keys that are patterns, and {MOST_BROKEN} of them broken"
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
        number = extensions.get_number_or_none("position")
        if number is None:
            return "before_character" if entry.get_text("position") == "before_char" else "after_character"
        if number not in (0, 1):
            why = "placed with the other lore: author's notes, examples and depths are not supported"
            self._notes.add_kept(f"{self._where}entries[].extensions.position", why)
        return "before_character" if number == 0 else "after_character"

    def _read_whole_number(self, entry: JsonFields, name: str, otherwise: int) -> int:
        number = entry.get_number(name)
        if number is None:
            return otherwise
        whole = int(max(-1_000_000, min(1_000_000, number)))
        if whole != number:
            self._notes.add_kept(f"{self._where}entries[].{name}", "rounded to a whole number within ±1,000,000")
        return whole

    def _clamp_depth(self, number: float | None) -> int | None:
        return None if number is None else int(max(0, min(MOST_DEPTH, number)))

    def _apply_decorators(self, decorated: DecoratedContent, entry: JsonFields, values: dict[str, object]) -> None:
        names: set[str] = set()
        enabled = values["enabled"]
        for chain in decorated.chains:
            used = next(
                (one for one in chain if one.name not in names and self._apply_decorator(one, entry, values)), None
            )
            field = f"{self._where}entries[].content @@{chain[0].name if used is None else used.name}"
            if used is None:
                self._notes.add_kept(field, "unsupported decorator")
            else:
                names.add(used.name)
                self._notes.add_mapped(field, f"lorebook.entries[].{_DECORATED[used.name]}")
        if {"activate", "dont_activate"} <= names:
            values["enabled"] = enabled

    def _apply_decorator(self, decorator: Decorator, entry: JsonFields, values: dict[str, object]) -> bool:
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
        self, decorator: Decorator, logic: SecondaryLogic, entry: JsonFields, values: dict[str, object]
    ) -> bool:
        """Adds secondary keys, unless the entry has some: it supports one list with one logic."""
        patterns = values["regex"] is True
        keys = decorator.values
        if patterns and entry.get_flag("use_regex") is not True:
            keys = tuple(self._as_pattern(key, entry) for key in keys)
        keys = tuple(key for key in keys if self._is_usable(key, patterns))
        if values["secondary_keys"] or not keys:
            return False
        values["secondary_keys"], values["logic"] = keys, logic
        return True

    def _note_leftovers(self, entry: JsonFields, extensions: JsonFields) -> None:
        for name, value in entry.values.items():
            if name not in _ENTRY_FIELDS:
                self._notes.add_kept(f"{self._where}entries[].{name[:60]}", "not a lorebook field")
            elif name in _MAPPED:
                self._notes.add_mapped(f"{self._where}entries[].{name}", f"lorebook.entries[].{_MAPPED[name]}")
            elif name == "comment" and value and entry.get_text("name"):
                self._notes.add_kept(f"{self._where}entries[].comment", "the entry has a name")
        for name, value in extensions.values.items():
            read = name in _READ_EXTENSIONS and isinstance(value, bool | int | float)
            if not read and value not in (None, False, 0, "", [], {}):
                self._notes.add_kept(f"{self._where}entries[].extensions.{name[:60]}", "used by other tools only")


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
    return entry.get_part("extensions").get_flag_or_none("case_sensitive") if own is None else own


def _read_probability(extensions: JsonFields) -> float:
    number = extensions.get_number_or_none("probability")
    if number is None or extensions.get_flag_or_none("useProbability") is False:
        return 1.0
    return max(0.0, min(1.0, number / 100))
