"""Import of a character card as a sheet; the original card is kept."""

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from app.characters.cards.card_versions import ParsedCard
from app.characters.cards.dialogue import MOST, parse_dialogue
from app.characters.cards.json_fields import JsonFields, build_refusal
from app.characters.cards.lorebook_import import build_lorebook
from app.characters.cards.macros import MacroNames, name_macro, replace_macros, strip_control_characters
from app.characters.cards.report import ImportNotes
from app.characters.cards.strict_json import measure_depth
from app.characters.schema import SCHEMA_VERSION, CharacterSheet
from app.domain.errors import InvalidRequest

ORIGINAL: Final = "character_card/original"
"""Extension key of the original card."""
MAX_DEPTH: Final = 24
"""Maximum nesting of a card, which is embedded in a sheet, and the sheet in a card."""
UNKNOWN: Final = "unknown"
_YOU: Final = {"de": "du", "en": "you", "es": "tú", "fr": "toi", "it": "tu", "pt": "você"}
_YOUR: Final = {"en": "your"}

KEPT: Final = {
    "creator_notes": "notes for people; not used in prompts",
    "creator_notes_multilingual": "notes for people; not used in prompts",
    "system_prompt": "the author's instructions to a model; not used in any prompt",
    "post_history_instructions": "the author's instructions to a model; not used in any prompt",
    "group_only_greetings": "scenes have one character",
    "assets": "neither fetched nor used",
    "source": "where the card came from",
    "creation_date": "a fact about the card",
    "modification_date": "a fact about the card",
}
_TEXTS: Final = {"description": "core.description", "personality": "core.personality", "scenario": "scenario.situation"}


@dataclass(frozen=True)
class SheetNaming:
    """Values that a card lacks. Defaults: `id` from the name, `world` from the id."""

    id: str | None = None
    language: str = "en"
    world: str | None = None


def build_sheet(card: ParsedCard, naming: SheetNaming, notes: ImportNotes) -> CharacterSheet:
    """InvalidRequest naming the card's field."""
    if measure_depth(dict(card.document)) > MAX_DEPTH:
        raise build_refusal("the document", f"is nested deeper than {MAX_DEPTH} levels")
    sheet_id = naming.id or build_slug(card.fields.get_text("name"))
    parts = _SheetPartsReader(card.fields, naming.language, notes).read()
    parts["meta"] = {
        **_build_meta(card, notes),
        "schema_version": SCHEMA_VERSION,
        "id": sheet_id,
        "licence": UNKNOWN,
        "genre": UNKNOWN,
        "world": naming.world or sheet_id,
        "extensions": {ORIGINAL: dict(card.document)},
    }
    _note_remaining(card, notes)
    try:
        return CharacterSheet.model_validate(parts)
    except ValidationError as error:
        raise _explain_refusal(card, error) from None


def _explain_refusal(card: ParsedCard, error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_input=False)[0]
    field = _SOURCES.get(".".join(str(step) for step in first["loc"][:2]))
    said = " ".join(first["msg"].split())
    if field is None:
        return InvalidRequest(f"{'.'.join(map(str, first['loc']))}: {said}")
    return build_refusal(card.fields.build_path(field), said)


def build_slug(name: str) -> str:
    """A file-safe id from any name."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().casefold()
    found = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:48].strip("_")
    return found or f"character_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def find_char_name(fields: JsonFields) -> str:
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
        name = find_char_name(fields)
        self._told = MacroNames(char=name)
        you = _YOU.get(language, _YOU["en"])
        self._spoken = MacroNames(char=name, user=you, users=_YOUR.get(language, you))

    def read(self) -> dict[str, object]:
        told = {name: self._read_text(name, to, self._told) for name, to in _TEXTS.items()}
        greeting = self._read_text("first_mes", "scenario.greeting", self._spoken)
        greetings = tuple(filter(None, map(self._read_greeting, self._fields.get_texts("alternate_greetings"))))
        if greetings:
            self._note_mapped("alternate_greetings", "scenario.greetings")
        self._note_mapped("name", "identity.name")
        if self._nickname:
            self._note_mapped("nickname", "identity.aliases")
        return {
            "identity": {"name": self._name, "aliases": [self._nickname] if self._nickname else []},
            "core": {"description": told["description"], "personality": told["personality"]},
            "voice": {"language": self._language, **self._read_voice()},
            "scenario": {"situation": told["scenario"], "greeting": greeting, "greetings": greetings},
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
        return self._replace_macros(text, "alternate_greetings", self._spoken)

    def _replace_macros(self, text: str, name: str, wording: MacroNames) -> str:
        found = replace_macros(text, wording)
        for macro in dict.fromkeys(map(name_macro, found.left)):
            self._notes.add_kept(self._fields.build_path(name), f"{macro} is left unchanged")
        return found.text.strip()

    def _read_voice(self) -> Mapping[str, object]:
        talk = parse_dialogue(self._fields.get_text("mes_example"), (self._name, self._nickname))
        lines = [[self._replace_macros(line, "mes_example", self._spoken) for line in one] for one in talk.exchanges]
        fitting = [one for one in lines if all(0 < len(line) <= MOST for line in one)]
        examples = [{"player": player, "reply": reply} for player, reply in fitting]
        if len(fitting) < len(lines):
            self._notes.add_kept(
                self._fields.build_path("mes_example"), "an exchange is empty or too long after names are filled in"
            )
        dialogue = self._replace_macros(talk.rest, "mes_example", self._spoken)
        if examples:
            self._note_mapped("mes_example", "voice.examples")
        if dialogue:
            self._note_mapped("mes_example", "voice.dialogue")
        return {"examples": examples, "dialogue": dialogue or None}

    def _read_lorebook(self) -> object:
        if self._fields.values.get("character_book") is None:
            return None
        book = self._fields.get_part("character_book")
        return build_lorebook(book, self._told, self._notes, where=f"{book.path}.")


def _build_meta(card: ParsedCard, notes: ImportNotes) -> dict[str, object]:
    fields = card.fields
    given = tuple(dict.fromkeys(_collapse_whitespace(tag) for tag in fields.get_texts("tags")))
    tags = tuple(tag for tag in given if 0 < len(tag) <= 120)
    if len(tags) < len(given):
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
        "source": f"character card {card.version}{f' by {creator}' if creator else ''}"[:120].strip(),
        "summary": f"{_collapse_whitespace(fields.get_text('name'))[:200]}, from a character card.",
        "tags": tags,
    }


def _note_remaining(card: ParsedCard, notes: ImportNotes) -> None:
    fields = card.fields
    for name, value in fields.values.items():
        if name in KEPT and value not in (None, "", [], {}):
            notes.add_kept(fields.build_path(name), KEPT[name])
        elif name not in KEPT and name not in _READ:
            notes.add_kept(fields.build_path(name[:60]), "not a sheet field")
    for name in fields.get_part("extensions").values:
        notes.add_kept(f"{fields.build_path('extensions')}.{name[:60]}", "used by other tools only")
    for name in card.outside:
        notes.add_kept(name[:60], "outside the card's fields")
    if card.newer is not None:
        notes.add_assumed(f"{card.newer} is a newer version; it is read as {card.version}")


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
