"""Export of a sheet as a card: the original card if unchanged, else one with the sheet embedded."""

from collections.abc import Callable
from typing import Final

from pydantic import JsonValue

from app.characters.cards.card_import import ORIGINAL, SheetNaming, build_sheet, find_char_name
from app.characters.cards.card_versions import SPECS, ParsedCard, Version, parse_card
from app.characters.cards.lorebook_export import build_book, update_book
from app.characters.cards.macros import MacroNames
from app.characters.cards.report import ImportNotes
from app.characters.schema import CharacterSheet

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
    original = find_original(sheet)
    unchanged = original is not None and _reimport_original(original, sheet) == sheet
    if original is not None and unchanged and version in (None, original.version):
        return dict(original.document)
    wanted: Version = version or (original.version if original is not None else "V2")
    if wanted == "V1":
        wanted = "V2"
    data = _build_fields(sheet, original, wanted)
    extensions = data["extensions"] if isinstance(data["extensions"], dict) else {}
    data["extensions"] = {**extensions, NATIVE: sheet.model_dump(mode="json")}
    spec, spec_version = SPECS[wanted]
    around = {} if original is None or original.version == "V1" else dict(original.document)
    return {**around, "spec": spec, "spec_version": spec_version, "data": data}


def find_original(sheet: CharacterSheet) -> ParsedCard | None:
    document = sheet.meta.extensions.get(ORIGINAL)
    return parse_card(document) if isinstance(document, dict) else None


def _reimport_original(original: ParsedCard, sheet: CharacterSheet) -> CharacterSheet:
    naming = SheetNaming(id=sheet.id, language=sheet.voice.language, world=sheet.meta.world)
    return build_sheet(original, naming, ImportNotes())


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
    if original is None or original.fields.values.get("character_book") is None:
        return build_book(sheet.lorebook, version)
    given, wording = original.fields.get_part("character_book"), MacroNames(char=find_char_name(original.fields))
    return update_book(sheet.lorebook, given, wording, version, converted=original.version != version)


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
