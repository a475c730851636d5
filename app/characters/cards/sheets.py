"""Character cards as sheets, and sheets as cards.

An imported card is kept whole in its sheet. A sheet that nobody has changed since is exported as that very card; any
other has the sheet embedded, so that importing it again restores the sheet, with later changes of other tools to the
card's own fields.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from app.characters.cards.fields import (
    ImportNotes,
    ImportReport,
    JsonFields,
    Kind,
    MendedField,
    Object,
    build_refusal,
    clean_fields,
    measure_depth,
    prune_depth,
)
from app.characters.cards.files import CardFile
from app.characters.cards.formats import SPECS, ParsedCard, Version, parse_card
from app.characters.cards.lorebooks import (
    MacroNames,
    build_book,
    build_lorebook,
    name_macro,
    read_lorebook,
    replace_macros,
    strip_control_characters,
    update_book,
)
from app.characters.loading import MAX_FILE_BYTES, dump_yaml, parse_model
from app.characters.schema import SCHEMA_VERSION, CharacterSheet
from app.domain.errors import InvalidRequest, TooLarge
from app.domain.faults import explain_faults
from app.domain.worlds import Lorebook

# Example dialogue: blocks that begin with <START>, lines that begin with the speaker

_START: Final = re.compile(r"^[ \t]*<START>[ \t]*$", re.IGNORECASE | re.MULTILINE)
_MOST_SPOKEN: Final = 4000
"""Characters of a line or a reply."""


@dataclass(frozen=True)
class _ExampleDialogue:
    """Exchanges of a line and a reply, and the remaining text with its speakers renamed to They and You, as in the
    prompt."""

    exchanges: tuple[tuple[str, str], ...]
    rest: str


def _parse_dialogue(text: str, names: tuple[str, ...]) -> _ExampleDialogue:
    """`names`: other names of the character besides `{{char}}`. A block is parsed as a whole or left as text."""
    character = "|".join([r"\{\{char\}\}", "<bot>", "<char>", *map(re.escape, filter(None, names))])
    speaker = re.compile(rf"^[ \t]*(?:(\{{\{{user\}}\}}|<user>)|({character}))[ \t]*:", re.IGNORECASE | re.MULTILINE)
    exchanges: list[tuple[str, str]] = []
    rest: list[str] = []
    for block in (one.strip() for one in _START.split(text)):
        parsed = _parse_exchanges(block, speaker)
        if parsed:
            exchanges += parsed
        elif block:
            rest.append(speaker.sub(lambda match: "They:" if match[1] else "You:", block))
    return _ExampleDialogue(tuple(exchanges), "\n\n".join(rest))


def _parse_exchanges(block: str, speaker: re.Pattern[str]) -> list[tuple[str, str]]:
    """Empty unless player and character alternate, player first."""
    marks = list(speaker.finditer(block))
    if not marks or marks[0].start() != 0 or len(marks) % 2:
        return []
    lines = [
        block[mark.end() : following.start() if following is not None else len(block)].strip()
        for mark, following in zip(marks, [*marks[1:], None], strict=True)
    ]
    turns = [mark[1] is not None for mark in marks]
    if turns != [True, False] * (len(marks) // 2) or not all(0 < len(line) <= _MOST_SPOKEN for line in lines):
        return []
    return list(zip(lines[::2], lines[1::2], strict=True))


# Import of a card as a sheet

ORIGINAL: Final = "character_card/original"
"""Extension key of the original card."""
_MAX_DEPTH: Final = 24
"""Maximum nesting of a card, which is embedded in a sheet, and the sheet in a card."""
_UNKNOWN: Final = "unknown"
_YOU: Final = {"de": "du", "en": "you", "es": "tú", "fr": "toi", "it": "tu", "pt": "você"}
_YOUR: Final = {"en": "your"}

_ORDERS: Final = "the author's instructions to a model; not used in any prompt"
_KEPT: Final = {
    "creator_notes": "notes for people; not used in prompts",
    "creator_notes_multilingual": "notes for people; not used in prompts",
    "system_prompt": _ORDERS,
    "post_history_instructions": _ORDERS,
    "group_only_greetings": "scenes have one character",
    "assets": "neither fetched nor used",
    "source": "where the card came from",
    "creation_date": "a fact about the card",
    "modification_date": "a fact about the card",
}
_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("name", "nickname", "description", "personality", "scenario", "first_mes", "mes_example"), "text"),
    **dict.fromkeys(("creator", "character_version"), "text"),
    "alternate_greetings": "texts",
    "tags": "words",
    "character_book": "book",
    "extensions": "object",
}
_TEXTS: Final = {"description": "core.description", "personality": "core.personality", "scenario": "scenario.situation"}


@dataclass(frozen=True)
class SheetNaming:
    """Values that a card lacks. Defaults: `id` from the name, `world` from the id."""

    id: str | None = None
    language: str = "en"
    world: str | None = None


def _build_sheet(card: ParsedCard, naming: SheetNaming, notes: ImportNotes) -> CharacterSheet:
    """InvalidRequest if the card has no name."""
    if measure_depth(dict(card.document)) > _MAX_DEPTH:
        card = _prune(card, notes)
    fields = clean_fields(card.fields, _KINDS, notes)
    sheet_id = naming.id or build_slug(fields.get_text("name"))
    parts = _SheetPartsReader(fields, naming.language, notes).read()
    parts["meta"] = {
        **_build_meta(card.format, fields, notes),
        "schema_version": SCHEMA_VERSION,
        "id": sheet_id,
        "licence": _UNKNOWN,
        "genre": _UNKNOWN,
        "world": naming.world or sheet_id,
        "extensions": {ORIGINAL: dict(card.document)},
    }
    sheet = _validate_mending(parts, fields, notes)
    _note_remaining(card, fields, notes)
    return sheet


def _prune(card: ParsedCard, notes: ImportNotes) -> ParsedCard:
    notes.add_dropped("the document", f"what is nested deeper than {_MAX_DEPTH} levels")
    pruned = parse_card(prune_depth(dict(card.document), _MAX_DEPTH))
    if pruned is None:
        raise build_refusal("the document", f"is nested deeper than {_MAX_DEPTH} levels")
    return pruned


_MOST_MENDS: Final = 4
"""Rounds: what a cut or a removal uncovers is mended in the next one."""


def _validate_mending(parts: dict[str, object], fields: JsonFields, notes: ImportNotes) -> CharacterSheet:
    """Cuts texts that are too long, and leaves out whatever else a sheet cannot hold."""
    for _ in range(_MOST_MENDS):
        try:
            return CharacterSheet.model_validate(parts)
        except ValidationError as error:
            faults = error.errors(include_url=False)
        # from the back, so that places in lists stay where they are
        mended = [_mend_part(parts, fault["loc"], fault, fields, notes) for fault in reversed(faults)]
        if not all(mended):
            raise _explain_refusal(fields, faults[-1 - mended.index(False)])
    raise _explain_refusal(fields, faults[0])


def _mend_part(
    parts: dict[str, object], at: tuple[int | str, ...], fault: ErrorDetails, fields: JsonFields, notes: ImportNotes
) -> bool:
    source = _SOURCES.get(".".join(map(str, at[:2])))
    field = at[0] if source is None else source
    inside: object = parts
    for step in at[:-1]:
        inside = _look_up(inside, step)
    found = _look_up(inside, at[-1]) if at else None
    most = fault.get("ctx", {}).get("max_length")
    if isinstance(found, str) and fault["type"] == "string_too_long" and isinstance(most, int):
        notes.add_dropped(fields.build_path(str(field)), f"what stands behind {most} characters")
        _put(inside, at[-1], found[:most].strip())
        return True
    if not at or ".".join(map(str, at)) == "identity.name" or (at[:1] == ("meta",) and source is None):
        return False
    notes.add_dropped(fields.build_path(str(field)), explain_faults([fault])[0].words[:200])
    return _remove(inside, at[-1])


def _look_up(inside: object, step: int | str) -> object:
    if isinstance(inside, dict):
        return inside.get(step)
    return inside[step] if isinstance(inside, list) and isinstance(step, int) and step < len(inside) else None


def _put(inside: object, step: int | str, value: str) -> None:
    if isinstance(inside, dict):
        inside[step] = value
    if isinstance(inside, list) and isinstance(step, int):
        inside[step] = value


def _remove(inside: object, step: int | str) -> bool:
    """Returns whether it was there."""
    if isinstance(inside, dict):
        return inside.pop(step, None) is not None
    if isinstance(inside, list) and isinstance(step, int) and step < len(inside):
        del inside[step]
        return True
    return False


def _explain_refusal(fields: JsonFields, fault: ErrorDetails) -> InvalidRequest:
    field = _SOURCES.get(".".join(str(step) for step in fault["loc"][:2]))
    explained = explain_faults([fault])[0]
    if field is None:
        return InvalidRequest(explained.sentence)
    return build_refusal(fields.build_path(field), explained.words)


def build_slug(name: str, otherwise: str = "character") -> str:
    """A file-safe id from any name. One without letters of ASCII and digits begins with `otherwise`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().casefold()
    slug = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:48].strip("_")
    return slug or f"{otherwise}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _find_char_name(fields: JsonFields) -> str:
    """The replacement of `{{char}}`."""
    return _collapse_whitespace(fields.get_text("nickname")) or _collapse_whitespace(fields.get_text("name"))


def _collapse_whitespace(text: str) -> str:
    return " ".join(strip_control_characters(text).split())


class _SheetPartsReader:
    """Reads the sheet's blocks except `meta` from the card's fields."""

    def __init__(self, fields: JsonFields, language: str, notes: ImportNotes) -> None:
        self._fields = fields
        self._notes = notes
        self._language = language
        self._name = _collapse_whitespace(fields.get_text("name"))
        if not self._name:
            raise build_refusal(fields.build_path("name"), "is missing")
        self._nickname = _collapse_whitespace(fields.get_text("nickname"))
        name = _find_char_name(fields)
        self._wording = MacroNames(char=name)
        you = _YOU.get(language, _YOU["en"])
        self._spoken_wording = MacroNames(char=name, user=you, users=_YOUR.get(language, you))

    def read(self) -> dict[str, object]:
        texts = {name: self._read_text(name, to, self._wording) for name, to in _TEXTS.items()}
        greeting = self._read_text("first_mes", "scenario.greeting", self._spoken_wording)
        greetings = list(filter(None, map(self._read_greeting, self._fields.get_texts("alternate_greetings"))))
        if greetings:
            self._note_mapped("alternate_greetings", "scenario.greetings")
        self._note_mapped("name", "identity.name")
        if self._nickname:
            self._note_mapped("nickname", "identity.aliases")
        return {
            "identity": {"name": self._name, "aliases": [self._nickname] if self._nickname else []},
            "core": {"description": texts["description"], "personality": texts["personality"]},
            "voice": {"language": self._language, **self._read_voice()},
            "scenario": {"situation": texts["scenario"], "greeting": greeting, "greetings": greetings},
            "lorebook": self._read_lorebook(),
        }

    def _note_mapped(self, name: str, to: str) -> None:
        self._notes.add_mapped(self._fields.build_path(name), to)

    def _read_text(self, name: str, to: str, wording: MacroNames) -> str | None:
        text = self._replace_macros(self._fields.get_text(name), name, wording)
        if text:
            self._note_mapped(name, to)
        return text or None

    def _read_greeting(self, text: str) -> str:
        return self._replace_macros(text, "alternate_greetings", self._spoken_wording)

    def _replace_macros(self, text: str, name: str, wording: MacroNames) -> str:
        replaced = replace_macros(text, wording)
        for macro in dict.fromkeys(map(name_macro, replaced.left)):
            self._notes.add_kept(self._fields.build_path(name), f"{macro} is left unchanged")
        return replaced.text.strip()

    def _read_voice(self) -> Mapping[str, object]:
        talk = _parse_dialogue(self._fields.get_text("mes_example"), (self._name, self._nickname))
        lines = [
            [self._replace_macros(line, "mes_example", self._spoken_wording) for line in one] for one in talk.exchanges
        ]
        fitting = [one for one in lines if all(0 < len(line) <= _MOST_SPOKEN for line in one)]
        examples = [{"player": player, "reply": reply} for player, reply in fitting]
        if len(fitting) < len(lines):
            self._notes.add_kept(
                self._fields.build_path("mes_example"), "an exchange is empty or too long after names are filled in"
            )
        dialogue = self._replace_macros(talk.rest, "mes_example", self._spoken_wording)
        if examples:
            self._note_mapped("mes_example", "voice.examples")
        if dialogue:
            self._note_mapped("mes_example", "voice.dialogue")
        return {"examples": examples, "dialogue": dialogue or None}

    def _read_lorebook(self) -> object:
        if self._fields.values.get("character_book") is None:
            return None
        book = self._fields.get_part("character_book")
        return build_lorebook(book, self._wording, self._notes)


def _build_meta(source: str, fields: JsonFields, notes: ImportNotes) -> dict[str, object]:
    listed = tuple(dict.fromkeys(_collapse_whitespace(tag) for tag in fields.get_texts("tags")))
    tags = [tag for tag in listed if 0 < len(tag) <= 120]
    if len(tags) < len(listed):
        notes.add_kept(fields.build_path("tags"), "empty tags and tags longer than 120 characters are not used")
    version, creator = (
        _collapse_whitespace(fields.get_text("character_version"))[:120].strip(),
        _collapse_whitespace(fields.get_text("creator")),
    )
    for name, value, to in (
        ("tags", tags, "meta.tags"),
        ("character_version", version, "meta.version"),
        ("creator", creator, "meta.source"),
    ):
        if value:
            notes.add_mapped(fields.build_path(name), to)
    notes.add_assumed("the licence is unknown: ask the card's author before you redistribute the sheet")
    return {
        "version": version or "1",
        "source": f"{source}{f' by {creator}' if creator else ''}"[:120].strip(),
        "summary": f"{_collapse_whitespace(fields.get_text('name'))[:200]}, from a character card.",
        "tags": tags,
    }


def _note_remaining(card: ParsedCard, fields: JsonFields, notes: ImportNotes) -> None:
    """Says what became of each field that is not yet named."""
    for name, value in card.fields.values.items():
        path = fields.build_path(name[:60])
        if name in _KEPT and value not in (None, "", [], {}):
            notes.add_kept(path, _KEPT[name])
        elif name not in _KEPT and name not in _READ:
            notes.add_kept(path, "not a sheet field")
    extensions = fields.get_part("extensions")
    for name in extensions.values:
        why = _ORDERS if name == "depth_prompt" else "used by other tools only"
        notes.add_kept(extensions.build_path(name[:60]), why)
    for name in card.outside:
        notes.add_kept(name[:60], "outside the card's fields")
    for name in card.fields.values:
        if (name in _KEPT or name in _READ) and not notes.mentions(fields.build_path(name)):
            notes.add_kept(fields.build_path(name), "empty")
    if card.assumed is not None:
        notes.add_assumed(card.assumed)


_SOURCES: Final = {
    "identity.name": "name",
    "identity.aliases": "nickname",
    "core.description": "description",
    "core.personality": "personality",
    "scenario.situation": "scenario",
    "scenario.greeting": "first_mes",
    "scenario.greetings": "alternate_greetings",
    "voice.examples": "mes_example",
    "voice.dialogue": "mes_example",
    "meta.tags": "tags",
    "meta.version": "character_version",
    "meta.source": "creator",
    "meta.extensions": "extensions",
}
"""The card's field from which each part of a sheet comes."""
_READ: Final = {*_SOURCES.values(), "character_book", "extensions"}


# Export of a sheet as a card

NATIVE: Final = "npc_arena/sheet"
"""Extension key of the embedded sheet."""

_DEFAULTS: Final[dict[str, JsonValue]] = {
    "name": "",
    "description": "",
    "personality": "",
    "scenario": "",
    "first_mes": "",
    "mes_example": "",
    "creator_notes": "",
    "system_prompt": "",
    "post_history_instructions": "",
    "alternate_greetings": [],
    "tags": [],
    "creator": "",
    "character_version": "",
    "extensions": {},
}


def build_card(sheet: CharacterSheet, version: Version | None = None) -> dict[str, JsonValue]:
    """Without `version`: the original version, or V2 for a sheet that was never a card."""
    original = _find_original(sheet)
    unchanged = original is not None and _reimport_original(original, sheet) == sheet
    if original is not None and unchanged and version in (None, original.version):
        return dict(original.document)
    target: Version = version or (original.version if original is not None else "V2")
    if target == "V1":
        target = "V2"
    data = _build_fields(sheet, original, target)
    extensions = data["extensions"] if isinstance(data["extensions"], dict) else {}
    data["extensions"] = {**extensions, NATIVE: sheet.model_dump(mode="json")}
    spec, spec_version = SPECS[target]
    around = {} if original is None or original.version == "V1" else dict(original.document)
    return {**around, "spec": spec, "spec_version": spec_version, "data": data}


def _find_original(sheet: CharacterSheet) -> ParsedCard | None:
    document = sheet.meta.extensions.get(ORIGINAL)
    return parse_card(document) if isinstance(document, dict) else None


def _reimport_original(original: ParsedCard, sheet: CharacterSheet) -> CharacterSheet:
    naming = SheetNaming(id=sheet.id, language=sheet.voice.language, world=sheet.meta.world)
    return _build_sheet(original, naming, ImportNotes())


def _build_fields(sheet: CharacterSheet, original: ParsedCard | None, version: Version) -> dict[str, JsonValue]:
    """Card fields; unchanged ones keep their original text."""
    data: dict[str, JsonValue] = dict(_DEFAULTS)
    if version == "V3":
        data["group_only_greetings"] = []
    before = None if original is None else _reimport_original(original, sheet)
    if original is not None:
        data |= original.fields.values
    for name, write in _WRITERS.items():
        if before is None or write(sheet) != write(before):
            data[name] = write(sheet)
    data.pop("character_book", None)
    book = _build_card_book(sheet, original, version)
    return data if book is None else {**data, "character_book": book}


def _build_card_book(sheet: CharacterSheet, original: ParsedCard | None, version: Version) -> JsonValue:
    if sheet.lorebook is None:
        return None
    if original is None or not isinstance(original.fields.values.get("character_book"), dict | list):
        return build_book(sheet.lorebook, version)
    fields = clean_fields(original.fields, _KINDS, ImportNotes())
    book, wording = fields.get_part("character_book"), MacroNames(char=_find_char_name(fields))
    return update_book(sheet.lorebook, book, wording, version, converted=original.version != version)


def _describe_character(sheet: CharacterSheet) -> str:
    """Description of a sheet without free text, for other tools. Secrets are left out."""
    who, core, known = sheet.identity, sheet.core, sheet.knowledge
    lines = [
        ("", ", ".join(filter(None, (who.name, who.role, who.species, who.age, who.pronouns, who.faction)))),
        ("Looks: ", who.appearance or ""),
        ("Past: ", core.backstory or ""),
        ("Principles: ", "; ".join(core.principles)),
        ("Contradictions: ", "; ".join(core.contradictions)),
        ("Goals: ", "; ".join(core.goals)),
        ("Fears: ", "; ".join(core.fears)),
        ("Weaknesses: ", "; ".join(core.flaws)),
        ("Way of speaking: ", " ".join(filter(None, (sheet.voice.style, sheet.voice.dialect)))),
        ("Knows: ", "; ".join((*known.knows, *(fact.text for fact in sheet.lore_facts if fact.known)))),
    ]
    return "\n".join(f"{head}{text}" for head, text in lines if text)


def _format_dialogue(sheet: CharacterSheet) -> str:
    talks = [f"{{{{user}}}}: {one.player}\n{{{{char}}}}: {one.reply}" for one in sheet.voice.examples]
    blocks = [*talks, *([sheet.voice.dialogue] if sheet.voice.dialogue else [])]
    return "\n".join(f"<START>\n{block}" for block in blocks)


_WRITERS: Final[dict[str, Callable[[CharacterSheet], JsonValue]]] = {
    "name": lambda sheet: sheet.identity.name,
    "description": lambda sheet: sheet.core.description or _describe_character(sheet),
    "personality": lambda sheet: sheet.core.personality or "; ".join(sheet.core.traits),
    "scenario": lambda sheet: sheet.scenario.situation or "",
    "first_mes": lambda sheet: sheet.scenario.greeting or "",
    "mes_example": _format_dialogue,
    "alternate_greetings": lambda sheet: list(sheet.scenario.greetings),
    "tags": lambda sheet: list(sheet.meta.tags),
    "character_version": lambda sheet: sheet.meta.version,
}


# Sheets as YAML files


def dump_sheet(sheet: CharacterSheet) -> str:
    """A file that reads back as the same sheet, with the original card, if it has one, at its end. TooLarge beyond the
    import limit; InvalidRequest for text that YAML cannot represent."""
    fields = sheet.model_dump(mode="json")
    if ORIGINAL in sheet.meta.extensions:
        fields["meta"] = fields.pop("meta")
    text = dump_yaml(fields)
    if len(text.encode()) > MAX_FILE_BYTES:
        raise TooLarge(f"{sheet.id}: the sheet would exceed {MAX_FILE_BYTES} bytes")
    if parse_model(text, f"{sheet.id}.yaml", CharacterSheet) != sheet:
        raise InvalidRequest(f"{sheet.id}: contains text that YAML cannot represent")
    return text


# Import of any document: a card, a card with a sheet in it, or a lorebook


@dataclass(frozen=True)
class ImportResult:
    """An imported character sheet or lorebook."""

    content: CharacterSheet | Lorebook
    report: ImportReport


def import_document(value: JsonValue, naming: SheetNaming) -> ImportResult:
    """InvalidRequest or TooLarge naming the field if it is neither a card nor a lorebook."""
    card = parse_card(value)
    if card is None:
        return ImportResult(*read_lorebook(value))
    notes = ImportNotes()
    native = _find_native_sheet(card, notes)
    if native is None:
        return ImportResult(_build_sheet(card, naming, notes), notes.build_report(card.format))
    sheet = _merge_native_sheet(card, *native, naming, notes)
    return ImportResult(sheet, notes.build_report(f"{card.format} with a sheet"))


def import_file(file: CardFile, naming: SheetNaming) -> ImportResult:
    """The report also says how the file was read. Errors are those of `import_document`."""
    read = import_document(file.value, naming)
    mended = (*(MendedField(field="the file", how=how) for how in file.mended), *read.report.mended)
    return ImportResult(read.content, read.report.model_copy(update={"mended": mended}))


def _find_native_sheet(card: ParsedCard, notes: ImportNotes) -> tuple[CharacterSheet, Object] | None:
    """The sheet embedded in a card, and the card that this sheet exports to. One that is broken is dropped: the card
    has its own fields."""
    if card.version == "V1":
        return None
    extensions = card.fields.get_part("extensions")
    if NATIVE not in extensions.values:
        return None
    try:
        sheet = CharacterSheet.model_validate(extensions.values[NATIVE])
        return sheet, build_card(sheet, card.version)
    except InvalidRequest as error:
        notes.add_dropped(extensions.build_path(NATIVE), f"the original card is invalid: {error.detail}"[:200])
    except ValidationError as error:
        first = explain_faults(error, CharacterSheet)[0]
        notes.add_dropped(".".join(filter(None, (extensions.build_path(NATIVE), first.dotted))), first.words)
    return None


def _merge_native_sheet(
    card: ParsedCard, native: CharacterSheet, written: Object, naming: SheetNaming, notes: ImportNotes
) -> CharacterSheet:
    """Changes that other tools made to the card override the embedded sheet."""
    notes.add_mapped(
        card.fields.get_part("extensions").build_path(NATIVE), "the whole sheet, including fields for judges only"
    )
    if native.gates.disabled:
        notes.add_assumed(f"the sheet disables gates: {', '.join(native.gates.disabled)}")
    sheet = native
    if written != card.document:
        alone = _remove_native_sheet(card)
        fresh = _build_sheet(alone, SheetNaming(native.id, native.voice.language, native.meta.world), ImportNotes())
        sheet = _take_parts(native, fresh, _list_changed_parts(card, parse_card(dict(written)), notes))
    if naming.id is not None:
        sheet = sheet.model_copy(update={"meta": sheet.meta.model_copy(update={"id": naming.id})})
    return sheet


def _list_changed_parts(card: ParsedCard, written: ParsedCard | None, notes: ImportNotes) -> list[str]:
    """Parts of the sheet whose card fields were changed."""
    then = {} if written is None else written.fields.values
    now = card.fields.values
    changed = [name for name in _PARTS if now.get(name) != then.get(name)]
    for name in changed:
        notes.add_mapped(
            card.fields.build_path(name), f"{' and '.join(_PARTS[name])}, changed since the sheet was embedded"
        )
    if {"name", "nickname"} & set(changed):
        changed += [name for name in _PARTS if "{{char}}" in str(now.get(name)).casefold()]
    return ["meta.extensions", *(part for name in changed for part in _PARTS[name])]


def _remove_native_sheet(card: ParsedCard) -> ParsedCard:
    extensions = {k: v for k, v in card.fields.get_part("extensions").values.items() if k != NATIVE}
    data: dict[str, JsonValue] = {**card.fields.values, "extensions": extensions}
    fields = JsonFields(data, card.fields.path)
    return replace(card, document={**card.document, "data": data}, fields=fields)


def _take_parts(sheet: CharacterSheet, fresh: CharacterSheet, parts: list[str]) -> CharacterSheet:
    for part in parts:
        block, _, field = part.partition(".")
        value: object = getattr(fresh, block)
        if field:
            value = getattr(sheet, block).model_copy(update={field: getattr(value, field)})
        sheet = sheet.model_copy(update={block: value})
    return sheet


_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("identity.name",),
    "nickname": ("identity.aliases",),
    "description": ("core.description",),
    "personality": ("core.personality",),
    "scenario": ("scenario.situation",),
    "first_mes": ("scenario.greeting",),
    "alternate_greetings": ("scenario.greetings",),
    "mes_example": ("voice.examples", "voice.dialogue"),
    "character_book": ("lorebook",),
    "tags": ("meta.tags",),
    "character_version": ("meta.version",),
}
