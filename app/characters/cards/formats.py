"""Which format a document has: cards of three versions; characters and lorebooks of other tools, in the card's form.

Foreign fields are renamed, never translated: the report calls each by the name that the file has. What belongs to a
known tool and is neither a character nor a lorebook is refused by its own name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard

from pydantic import JsonValue

from app.characters.cards.fields import ImportNotes, JsonFields, Object, build_refusal, clean_fields
from app.characters.lorebooks import SLASHED_KEY
from app.domain.errors import InvalidRequest, TooLarge
from app.domain.worlds import LoreEntry

# The version of a card, and its fields

Version = Literal["V1", "V2", "V3"]

SPECS: Final[dict[Version, tuple[str, str]]] = {"V2": ("chara_card_v2", "2.0"), "V3": ("chara_card_v3", "3.0")}
_TEXTS: Final = ("description", "personality", "scenario", "first_mes", "mes_example")
_V1_FIELDS: Final = ("name", *_TEXTS)
_FIELDS: Final = (
    *_V1_FIELDS,
    *("creator_notes", "system_prompt", "post_history_instructions", "alternate_greetings", "character_book", "tags"),
    *("creator", "character_version", "extensions", "assets", "nickname", "creator_notes_multilingual", "source"),
    *("group_only_greetings", "creation_date", "modification_date"),
)


@dataclass(frozen=True)
class ParsedCard:
    """`document` is the whole file, `fields` the object with the card's fields."""

    version: Version
    document: Object
    fields: JsonFields
    format: str
    assumed: str | None = None
    """What the file does not say, or says of a version that is unknown."""

    @property
    def outside(self) -> tuple[str, ...]:
        """Names of top-level fields that are none of the card's."""
        if self.fields.path:
            return tuple(name for name in self.document if name not in ("spec", "spec_version", "data"))
        read = {self.fields.build_path(name) for name in self.fields.values}
        return tuple(name for name in self.document if name not in read)


def parse_card(value: JsonValue) -> ParsedCard | None:
    """None if it is not a card, such as a lorebook. InvalidRequest naming the field of an invalid card."""
    if not isinstance(value, dict):
        return None
    spec, data = value.get("spec"), value.get("data")
    if isinstance(spec, str) and spec.startswith("lorebook"):
        return None
    declared = _declares_card(spec)
    if isinstance(data, dict) and (declared or _looks_like_card(data)):
        return _parse_versioned(value, data)
    listed = isinstance(data, list) and any(map(_looks_like_entry, data))
    if _looks_like_card(value) and not listed:
        return _parse_unversioned(value)
    if declared:
        raise build_refusal("data", "must be an object: the card's fields")
    _refuse_in_own_name(value)
    return None


def _declares_card(spec: JsonValue) -> TypeGuard[str]:
    return isinstance(spec, str) and spec.strip().casefold().startswith("chara_card")


def _looks_like_card(value: Object) -> bool:
    return "entries" not in value and (_find_dialect(value) is not None or any(name in value for name in _V1_FIELDS))


def _parse_versioned(value: dict[str, JsonValue], data: dict[str, JsonValue]) -> ParsedCard:
    spec, number = value.get("spec"), value.get("spec_version")
    dialect = _find_dialect(data, declared=_declares_card(spec))
    if dialect is not None:
        return ParsedCard("V1", value, dialect.rename(data, "data"), dialect.source)
    if not _declares_card(spec):
        _refuse_empty(data, data)
        version: Version = "V3" if str(number).startswith("3") else "V2"
        unnamed = None if isinstance(number, str) else f"the file names no version; it is read as {version}"
        return ParsedCard(version, value, _name_data(value, data), f"character card {version}", unnamed)
    version = "V2" if spec.strip().casefold() in ("chara_card_v2", "chara_card_v1") else "V3"
    declared = str(value.get("spec_version", SPECS[version][1]))[:20]
    newer = f"{spec[:40]} {declared} is a newer version; it is read as {version}"
    known = (spec, declared) in SPECS.values()
    return ParsedCard(version, value, _name_data(value, data), f"character card {version}", None if known else newer)


def _name_data(value: Object, data: dict[str, JsonValue]) -> JsonFields:
    """Some tools write the name beside the fields only."""
    name = value.get("name")
    return JsonFields(data if data.get("name") or not name else {**data, "name": name}, "data")


def _parse_unversioned(value: dict[str, JsonValue]) -> ParsedCard:
    dialect = _find_dialect(value, declared=_declares_card(value.get("spec")))
    if dialect is not None:
        return ParsedCard("V1", value, dialect.rename(value, ""), dialect.source)
    own: dict[str, JsonValue] = {name: value[name] for name in _FIELDS if name in value}
    _refuse_empty(value, own)
    return ParsedCard("V1", value, JsonFields(own), "character card V1")


def _refuse_empty(value: Object, own: Object) -> None:
    """A name beside texts that are none of a card's is not a card of which nothing is read."""
    if any(own.get(name) for name in (*_TEXTS, "alternate_greetings", "character_book")):
        return
    _refuse_in_own_name(value)
    if any(given and isinstance(given, str | dict) for name, given in value.items() if name not in _FIELDS):
        raise build_refusal("description", f"is missing: the file is no character of {_READ_FORMATS}")


# Characters of other tools


@dataclass(frozen=True)
class _Dialect:
    """`names` are the card's fields by their names in the file. A document has the dialect if one of `marks` has
    a value there: tools add empty fields."""

    source: str
    marks: frozenset[str]
    names: Mapping[str, str]

    def rename(self, value: Object, path: str) -> JsonFields:
        """Where a file has a field under both names, the card's own counts unless it is empty."""
        values: dict[str, JsonValue] = {name: value[name] for name in _FIELDS if name in value}
        renamed: dict[str, str] = {}
        for ours, theirs in self.names.items():
            if theirs in value and (theirs == ours or ours not in self._kept_names(value)):
                values[ours], renamed[ours] = _convert_field(theirs, value[theirs]), theirs
        return JsonFields(values, path, renamed)

    def _kept_names(self, value: Object) -> frozenset[str]:
        """The card's own names that are written as such; Agnai's `description` is another thing."""
        return frozenset(name for name in _V1_FIELDS if value.get(name) and name not in self.names.values())


_MORE_NAMES: Final = {
    "system_prompt": "systemPrompt",
    "alternate_greetings": "alternateGreetings",
    "character_version": "characterVersion",
}
_DIALECTS: Final = (
    _Dialect(
        "Pygmalion character",
        frozenset({"char_name", "char_persona", "char_greeting"}),
        {
            "name": "char_name",
            "description": "char_persona",
            "scenario": "world_scenario",
            "first_mes": "char_greeting",
            "mes_example": "example_dialogue",
        },
    ),
    _Dialect(
        "Agnai character",
        frozenset({"persona", "sampleChat"}),
        {
            **_MORE_NAMES,
            "name": "name",
            "description": "persona",
            "creator_notes": "description",
            "first_mes": "greeting",
            "mes_example": "sampleChat",
            "post_history_instructions": "postHistoryInstructions",
            "character_book": "characterBook",
        },
    ),
    _Dialect(
        "RisuAI character",
        frozenset({"firstMessage", "globalLore"}),
        {
            **_MORE_NAMES,
            "name": "name",
            "description": "desc",
            "first_mes": "firstMessage",
            "mes_example": "exampleMessage",
            "creator_notes": "creatorNotes",
            "post_history_instructions": "replaceGlobalNote",
            "character_book": "globalLore",
        },
    ),
    _Dialect(
        "text-generation-webui character",
        frozenset({"context"}),
        {"name": "name", "description": "context", "first_mes": "greeting", "mes_example": "example_dialogue"},
    ),
)


_SHARED_TEXTS: Final = ("description", "scenario", "personality")
"""Names that other tools use too."""
_OWN_TEXTS: Final = frozenset(_TEXTS).difference(_SHARED_TEXTS)


def _find_dialect(value: Object, *, declared: bool = False) -> _Dialect | None:
    """A document that has the texts of a card is one, whatever else it has; for one that is declared, any will do. One
    that has all names of another tool and none of a card's own is that tool's, also where these fields are empty."""
    own = any(value.get(name) for name in _TEXTS if declared or name not in _SHARED_TEXTS)
    found = next((one for one in _DIALECTS if any(map(value.get, one.marks))), None)
    if found is None and not declared and value.keys().isdisjoint(_OWN_TEXTS):
        found = next((one for one in _DIALECTS if len(one.marks) > 1 and one.marks <= value.keys()), None)
    named = found is not None and any(isinstance(value.get(name), str) for name in ("name", found.names["name"]))
    return found if named and not own else None


def _convert_field(name: str, value: JsonValue) -> JsonValue:
    return _write_persona(value) if name == "persona" and isinstance(value, dict) else value


def _write_persona(persona: Object) -> JsonValue:
    """Agnai keeps a persona as lists of texts by attribute, and free text as the attribute `text`."""
    attributes = persona.get("attributes")
    if not isinstance(attributes, dict):
        return None
    lines = []
    for name, texts in attributes.items():
        said = [text for text in texts if isinstance(text, str) and text] if isinstance(texts, list) else [texts]
        joined = ", ".join(text for text in said if isinstance(text, str))
        if joined:
            lines.append(joined if name == "text" else f"{name}: {joined}")
    return "\n".join(lines)


_READ_FORMATS: Final = "character cards V1 to V3, Pygmalion, Agnai, RisuAI or text-generation-webui"
_OWN_NAMES: Final = {
    "storyContainerVersion": "a story of NovelAI",
    "scenarioVersion": "a scenario of NovelAI",
    "presetVersion": "a preset of NovelAI",
    "gamestarted": "a story of KoboldAI",
    "participant__name": "a character of character.ai",
    "histories": "chats of character.ai",
    "chat_metadata": "a chat of SillyTavern",
}
_KINDS: Final = {"risuModule": "a module of RisuAI", "risuPreset": "a preset of RisuAI", "preset": "a preset"}


def _refuse_in_own_name(value: Object) -> None:
    character = value.get("character")
    inner = character if isinstance(character, dict) else {}
    for mark, called in _OWN_NAMES.items():
        if mark in value or mark in inner:
            raise build_refusal(mark, f"this is {called}: neither a character nor a lorebook that can be read")
    kind = value.get("kind", value.get("type"))
    if isinstance(kind, str) and kind in _KINDS:
        raise build_refusal("type", f"this is {_KINDS[kind]}: neither a character nor a lorebook")


# Lorebooks of other tools

MOST_ENTRIES: Final = 5000
_BOOK_NAMES: Final = ("character_book", "characterBook", "globalLore", "lorebook", "worldInfo", "world_info")
"""What holds a lorebook in a document that is none itself."""


def find_book(value: JsonValue) -> tuple[str, JsonFields]:
    """The format's name, and what has the entries. InvalidRequest for what is no lorebook."""
    if isinstance(value, list):
        if not any(map(_looks_like_entry, value)):
            raise build_refusal("the document", "is a list, and nothing in it is an entry of a lorebook")
        return _name_format({}, value), JsonFields({"entries": value})
    if not isinstance(value, dict):
        raise build_refusal("the document", "must be an object: a card or a lorebook")
    spec, data = value.get("spec"), value.get("data")
    if isinstance(spec, str) and spec.startswith("chara_card"):
        raise build_refusal("spec", "is a character card, not a lorebook")
    if isinstance(spec, str) and spec.startswith("lorebook"):
        if not isinstance(data, dict):
            raise build_refusal("data", "must be an object: the lorebook")
        return "lorebook V3", JsonFields(data)
    if isinstance(data, list) and any(map(_looks_like_entry, data)):
        without = {name: given for name, given in value.items() if name != "data"}
        return _name_format(value, data), JsonFields({**without, "entries": data}, "", {"entries": "data"})
    for held in (value, data, *map(_hold_entries, map(value.get, _BOOK_NAMES))):
        if isinstance(held, dict) and "entries" in held:
            return _name_format(held, held["entries"]), JsonFields(held)
    _refuse_in_own_name(value)
    raise build_refusal("entries", f"is missing: this is neither a lorebook nor a character of {_READ_FORMATS}")


def _hold_entries(value: JsonValue) -> JsonValue:
    """A list may stand for the book whose entries it has."""
    return {"entries": value} if isinstance(value, list) and any(map(_looks_like_entry, value)) else value


def list_book_entries(book: JsonFields, notes: ImportNotes) -> Sequence[tuple[JsonValue, JsonFields | None]]:
    """Each entry as it is and in the card's form; None for what is no entry. TooLarge beyond MOST_ENTRIES."""
    entries = book.values.get("entries")
    path = book.build_path("entries")
    # world info has its entries by number
    listed = list(entries.values()) if isinstance(entries, dict) else entries if isinstance(entries, list) else []
    if len(listed) > MOST_ENTRIES:
        raise TooLarge(f"{path}: more than {MOST_ENTRIES} entries", field=path)
    if entries is not None and not isinstance(entries, dict | list):
        notes.add_dropped(path, "is not a list of entries")
    disabled = frozenset(_iter_disabled_categories(book.values.get("categories")))
    read: list[tuple[JsonValue, JsonFields | None]] = []
    for entry in listed:
        if not isinstance(entry, dict):
            notes.add_dropped(f"{path}[]", "is not an object")
            read.append((entry, None))
            continue
        converted = _convert_entry(entry, f"{path}[]")
        if isinstance(entry.get("category"), str) and entry["category"] in disabled:
            converted = JsonFields({**converted.values, "enabled": False}, converted.path, converted.names)
        read.append((entry, converted))
    return read


def _iter_disabled_categories(categories: JsonValue) -> Iterator[str]:
    """NovelAI switches entries off by their category."""
    for category in categories if isinstance(categories, list) else ():
        if isinstance(category, dict) and category.get("enabled") is False and isinstance(category.get("id"), str):
            yield str(category["id"])


_WORLD_INFO: Final = {
    "uid": "id",
    "key": "keys",
    "keysecondary": "secondary_keys",
    "content": "content",
    "comment": "comment",
    "constant": "constant",
    "selective": "selective",
    "order": "insertion_order",
}
_NOVELAI: Final = {
    "id": "id",
    "text": "content",
    "displayName": "name",
    "keys": "keys",
    "enabled": "enabled",
    "forceActivation": "constant",
}
_AGNAI: Final = {
    "name": "name",
    "entry": "content",
    "keywords": "keys",
    "keys": "keys",
    "priority": "priority",
    "weight": "insertion_order",
    "enabled": "enabled",
}
_STORY_CARDS: Final = {"id": "id", "title": "name", "value": "content", "keys": "keys"}
_RISU: Final = {
    "id": "id",
    "key": "keys",
    "secondkey": "secondary_keys",
    "comment": "comment",
    "content": "content",
    "alwaysActive": "constant",
    "selective": "selective",
    "insertorder": "insertion_order",
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
    "activationPercent": "probability",
}
"""Settings by the names that tools write, and by those of an entry's extensions."""
_RISU_MARKS: Final = frozenset({"insertorder", "alwaysActive", "secondkey"})
_NOVELAI_MARKS: Final = frozenset({"displayName", "forceActivation", "searchRange", "loreBiasGroups"})
_WORLD_INFO_MARKS: Final = frozenset({"key", "keysecondary", "disable", "uid"})


def _find_entry_format(entry: Object) -> tuple[str, Mapping[str, str]] | None:
    """None for an entry in the card's form."""
    if _RISU_MARKS & entry.keys():
        return "RisuAI lorebook", _RISU
    if not entry.get("content"):
        if "text" in entry and ("keys" in entry or _NOVELAI_MARKS & entry.keys()):
            return "NovelAI lorebook", _NOVELAI
        if "entry" in entry:
            return "Agnai memory book", _AGNAI
        if "value" in entry and "keys" in entry:
            return "AI Dungeon story cards", _STORY_CARDS
    if _WORLD_INFO_MARKS & entry.keys() and "keys" not in entry:
        return "world info", _WORLD_INFO
    return None


def _looks_like_entry(value: JsonValue) -> bool:
    if not isinstance(value, dict):
        return False
    own = "content" in value and bool({"keys", "keywords"} & value.keys())
    return own or _find_entry_format(value) is not None


def is_foreign_book(value: Object) -> bool:
    """Whether another tool wrote what is no valid lorebook of ours: `find_book` finds it where ours has no entries, or
    it has names that ours do not have, or entries without our ids. What else is wrong with one is its author's."""
    if {"spec", "lorebookVersion", "recursive_scanning"} & value.keys() or value.get("kind") == "memory":
        return True
    document = dict(value)
    try:
        _, book = find_book(document)
    except InvalidRequest:
        return False
    entries = book.values["entries"]
    if book.values is not document or isinstance(entries, dict):
        return True
    return isinstance(entries, list) and any(isinstance(entry, dict) and _is_foreign_entry(entry) for entry in entries)


def _is_foreign_entry(entry: Object) -> bool:
    if _FOREIGN_NAMES & entry.keys():
        return True
    # One that forgot its id and has names that only ours has is ours: they would be lost.
    ours = isinstance(entry.get("id"), str) or bool({"logic", "regex", "whole_words"} & entry.keys())
    return not ours and _looks_like_entry(dict(entry))


_FOREIGN_NAMES: Final = frozenset(
    name
    for names in (_WORLD_INFO, _NOVELAI, _AGNAI, _STORY_CARDS, _RISU, _EXTENSIONS)
    for name in (*names, *names.values(), "disable", "use_regex")
) - frozenset(LoreEntry.model_fields)


def _name_format(book: Object, entries: JsonValue) -> str:
    if isinstance(book.get("lorebookVersion"), int):
        return "NovelAI lorebook"
    listed = list(entries.values()) if isinstance(entries, dict) else entries if isinstance(entries, list) else []
    formats = (_find_entry_format(entry) for entry in listed if isinstance(entry, dict))
    found = next((one[0] for one in formats if one is not None), None)
    return found or ("world info" if isinstance(entries, dict) else "lorebook V2")


def _convert_entry(entry: Object, path: str) -> JsonFields:
    """An entry in the card's form, its settings without a field among its extensions."""
    given = entry.get("extensions")
    extensions: dict[str, JsonValue] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        _put_setting(extensions, name, value, replace=True)
    found = _find_entry_format(entry)
    if found is None:
        return _convert_own_entry(entry, extensions, path)
    names = found[1]
    read = {"extensions"}
    fields: dict[str, JsonValue] = {}
    if names is _WORLD_INFO:
        fields = {"selective": True, **_read_switch(entry)}
        read |= {"disable", "enabled"}
    for name, value in entry.items():
        if name == "position" and isinstance(value, str) and not value.strip().isdecimal():
            fields[name] = value
        elif name in names:
            fields[names[name]] = value
        elif name not in read:
            _put_setting(extensions, name, value, replace=True)
    if names is _RISU:
        _finish_risu(entry, fields, extensions)
    budget = entry.get("contextConfig")
    if names is _NOVELAI and isinstance(budget, dict) and budget.get("budgetPriority") is not None:
        fields["insertion_order"] = budget["budgetPriority"]
    switch = {"enabled": "disable"} if names is _WORLD_INFO and entry.get("disable") is not None else {}
    called = switch | {ours: theirs for theirs, ours in names.items()}
    return JsonFields({**fields, "extensions": extensions}, path, called)


def _read_switch(entry: Object) -> dict[str, JsonValue]:
    """Of world info, which has `disable`; some tools write a card's `enabled` there."""
    if entry.get("disable") is not None:
        return {"enabled": _negate(entry["disable"])}
    return {"enabled": entry["enabled"]} if "enabled" in entry else {}


def _put_setting(extensions: dict[str, JsonValue], name: str, value: JsonValue, *, replace: bool) -> None:
    """Null is absent: it neither stays before a value nor replaces one."""
    called = _EXTENSIONS.get(name, name)
    if extensions.get(called) is None or (replace and value is not None):
        extensions[called] = value


def _convert_own_entry(entry: Object, extensions: dict[str, JsonValue], path: str) -> JsonFields:
    """Some tools write world info's settings beside a card's fields."""
    fields = dict(entry)
    for name in (*_EXTENSIONS, *_EXTENSIONS.values()):
        if name in fields and name not in ("position", "case_sensitive"):
            _put_setting(extensions, name, fields.pop(name), replace=False)
    negated = "disable" in entry and entry.get("enabled") is None
    if negated:
        fields["enabled"] = _negate(fields.pop("disable"))
    if "keywords" in entry and "keys" not in entry:
        fields["keys"] = fields.pop("keywords")
    if "order" in entry and "insertion_order" not in entry:
        fields["insertion_order"] = fields.pop("order")
    if extensions:
        fields["extensions"] = extensions
    return JsonFields(fields, path, {"enabled": "disable"} if negated else {})


def _negate(disable: JsonValue) -> JsonValue:
    """Of the type that it has, so that whoever reads it notes how; unchanged if it is no switch."""
    read = clean_fields(JsonFields({"disable": disable}), {"disable": "flag"}, ImportNotes()).get_flag("disable")
    if read is None or not isinstance(disable, bool | int | float | str):
        return disable
    return type(disable)(not read)


def _finish_risu(entry: Object, fields: dict[str, JsonValue], extensions: dict[str, JsonValue]) -> None:
    """One text holds all keys, or one pattern."""
    key = entry.get("key")
    if entry.get("useRegex") is True and isinstance(key, str):
        fields["keys"] = [key]
        fields["use_regex"] = SLASHED_KEY.fullmatch(key) is None
        del extensions["useRegex"]
    if entry.get("mode") == "constant":
        fields["constant"] = True
    own = entry.get("extentions")
    if isinstance(own, dict) and "risu_case_sensitive" in own:
        _put_setting(extensions, "case_sensitive", own["risu_case_sensitive"], replace=False)
