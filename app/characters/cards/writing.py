"""Export of a sheet as a card: the original card if unchanged, else one with the sheet embedded."""

from collections.abc import Callable
from typing import Final

from pydantic import JsonValue

from app.characters.cards.book_writing import rewritten_book, written_book
from app.characters.cards.kinds import SPECS, Card, Version, card_of
from app.characters.cards.macros import Wording
from app.characters.cards.reading import ORIGINAL, Naming, called, sheet_of
from app.characters.cards.report import Notes
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


def written_card(sheet: CharacterSheet, version: Version | None = None) -> dict[str, JsonValue]:
    """Without `version`: the original version, or V2 for a sheet that was never a card."""
    original = original_of(sheet)
    unchanged = original is not None and _read_again(original, sheet) == sheet
    if original is not None and unchanged and version in (None, original.version):
        return dict(original.document)
    wanted: Version = version or (original.version if original is not None else "V2")
    if wanted == "V1":
        wanted = "V2"
    data = _fields(sheet, original, wanted)
    extensions = data["extensions"] if isinstance(data["extensions"], dict) else {}
    data["extensions"] = {**extensions, NATIVE: sheet.model_dump(mode="json")}
    spec, spec_version = SPECS[wanted]
    around = {} if original is None or original.version == "V1" else dict(original.document)
    return {**around, "spec": spec, "spec_version": spec_version, "data": data}


def original_of(sheet: CharacterSheet) -> Card | None:
    document = sheet.meta.extensions.get(ORIGINAL)
    return card_of(document) if isinstance(document, dict) else None


def _read_again(original: Card, sheet: CharacterSheet) -> CharacterSheet:
    naming = Naming(id=sheet.id, language=sheet.voice.language, world=sheet.meta.world)
    return sheet_of(original, naming, Notes())


def _fields(sheet: CharacterSheet, original: Card | None, version: Version) -> dict[str, JsonValue]:
    """Card fields; unchanged ones keep their original text."""
    data: dict[str, JsonValue] = dict(_DEFAULTS)
    if version == "V3":
        data["group_only_greetings"] = []
    before = None if original is None else _read_again(original, sheet)
    if original is not None:
        data |= original.fields.values
    for name, write in _WRITERS.items():
        if before is None or write(sheet) != write(before):
            data[name] = write(sheet)
    data.pop("character_book", None)
    book = _book(sheet, original, version)
    return data if book is None else {**data, "character_book": book}


def _book(sheet: CharacterSheet, original: Card | None, version: Version) -> JsonValue:
    if sheet.lorebook is None:
        return None
    if original is None or original.fields.values.get("character_book") is None:
        return written_book(sheet.lorebook, version)
    given, wording = original.fields.part("character_book"), Wording(char=called(original.fields))
    return rewritten_book(sheet.lorebook, given, wording, version, converted=original.version != version)


def _portrait(sheet: CharacterSheet) -> str:
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


def _dialogue(sheet: CharacterSheet) -> str:
    talks = [f"{{{{user}}}}: {one.player}\n{{{{char}}}}: {one.reply}" for one in sheet.voice.examples]
    blocks = [*talks, *([sheet.voice.dialogue] if sheet.voice.dialogue else [])]
    return "\n".join(f"<START>\n{block}" for block in blocks)


_WRITERS: Final[dict[str, Callable[[CharacterSheet], JsonValue]]] = {
    "name": lambda sheet: sheet.identity.name,
    "description": lambda sheet: sheet.core.description or _portrait(sheet),
    "personality": lambda sheet: sheet.core.personality or "; ".join(sheet.core.traits),
    "scenario": lambda sheet: sheet.scenario.situation or "",
    "first_mes": lambda sheet: sheet.scenario.greeting or "",
    "mes_example": _dialogue,
    "alternate_greetings": lambda sheet: list(sheet.scenario.greetings),
    "tags": lambda sheet: list(sheet.meta.tags),
    "character_version": lambda sheet: sheet.meta.version,
}
