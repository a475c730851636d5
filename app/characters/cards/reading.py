"""Import of a character card as a sheet; the original card is kept."""

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from app.characters.cards.books import lorebook_of
from app.characters.cards.dialogue import MOST, talk_of
from app.characters.cards.given import Given, refused
from app.characters.cards.kinds import Card
from app.characters.cards.macros import Wording, macro_name, shown, worded
from app.characters.cards.report import Notes
from app.characters.cards.strict_json import depth_of
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
class Naming:
    """Values that a card lacks. Defaults: `id` from the name, `world` from the id."""

    id: str | None = None
    language: str = "en"
    world: str | None = None


def sheet_of(card: Card, naming: Naming, notes: Notes) -> CharacterSheet:
    """InvalidRequest naming the card's field."""
    if depth_of(dict(card.document)) > MAX_DEPTH:
        raise refused("the document", f"is nested deeper than {MAX_DEPTH} levels")
    sheet_id = naming.id or slug(card.fields.text("name"))
    parts = _Parts(card.fields, naming.language, notes).read()
    parts["meta"] = {
        **_described(card, notes),
        "schema_version": SCHEMA_VERSION,
        "id": sheet_id,
        "licence": UNKNOWN,
        "genre": UNKNOWN,
        "world": naming.world or sheet_id,
        "extensions": {ORIGINAL: dict(card.document)},
    }
    _name_the_rest(card, notes)
    try:
        return CharacterSheet.model_validate(parts)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = _SOURCES.get(".".join(str(step) for step in first["loc"][:2]))
        said = " ".join(first["msg"].split())
        if field is None:
            raise InvalidRequest(f"{'.'.join(map(str, first['loc']))}: {said}") from None
        raise refused(card.fields.at(field), said) from None


def slug(name: str) -> str:
    """A file-safe id from any name."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().casefold()
    found = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:48].strip("_")
    return found or f"character_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def called(fields: Given) -> str:
    """The replacement of `{{char}}`."""
    return _one_line(fields.text("nickname")) or _one_line(fields.text("name"))


def _one_line(text: str) -> str:
    return " ".join(shown(text).split())


class _Parts:
    """Reads the sheet's blocks except `meta` from the card's fields."""

    def __init__(self, fields: Given, language: str, notes: Notes) -> None:
        self._fields = fields
        self._notes = notes
        self._language = language
        self._name = _one_line(fields.text("name"))
        if not self._name:
            raise refused(fields.at("name"), "is missing")
        self._nickname = _one_line(fields.text("nickname"))
        name = called(fields)
        self._told = Wording(char=name)
        you = _YOU.get(language, _YOU["en"])
        self._spoken = Wording(char=name, user=you, users=_YOUR.get(language, you))

    def read(self) -> dict[str, object]:
        told = {name: self._text(name, to, self._told) for name, to in _TEXTS.items()}
        greeting = self._text("first_mes", "scenario.greeting", self._spoken)
        greetings = tuple(filter(None, map(self._spoken_text, self._fields.texts("alternate_greetings"))))
        if greetings:
            self._map("alternate_greetings", "scenario.greetings")
        self._map("name", "identity.name")
        if self._nickname:
            self._map("nickname", "identity.aliases")
        return {
            "identity": {"name": self._name, "aliases": [self._nickname] if self._nickname else []},
            "core": {"description": told["description"], "personality": told["personality"]},
            "voice": {"language": self._language, **self._voice()},
            "scenario": {"situation": told["scenario"], "greeting": greeting, "greetings": greetings},
            "lorebook": self._lorebook(),
        }

    def _map(self, name: str, to: str) -> None:
        self._notes.mapped(self._fields.at(name), to)

    def _text(self, name: str, to: str, wording: Wording) -> str | None:
        text = self._worded(self._fields.text(name), name, wording)
        if text:
            self._map(name, to)
        return text or None

    def _spoken_text(self, text: str) -> str:
        return self._worded(text, "alternate_greetings", self._spoken)

    def _worded(self, text: str, name: str, wording: Wording) -> str:
        found = worded(text, wording)
        for macro in dict.fromkeys(map(macro_name, found.left)):
            self._notes.kept(self._fields.at(name), f"{macro} is left unchanged")
        return found.text.strip()

    def _voice(self) -> Mapping[str, object]:
        talk = talk_of(self._fields.text("mes_example"), (self._name, self._nickname))
        lines = [[self._worded(line, "mes_example", self._spoken) for line in one] for one in talk.exchanges]
        fitting = [one for one in lines if all(0 < len(line) <= MOST for line in one)]
        examples = [{"player": player, "reply": reply} for player, reply in fitting]
        if len(fitting) < len(lines):
            self._notes.kept(
                self._fields.at("mes_example"), "an exchange is empty or too long after names are filled in"
            )
        dialogue = self._worded(talk.rest, "mes_example", self._spoken)
        if examples:
            self._map("mes_example", "voice.examples")
        if dialogue:
            self._map("mes_example", "voice.dialogue")
        return {"examples": examples, "dialogue": dialogue or None}

    def _lorebook(self) -> object:
        if self._fields.values.get("character_book") is None:
            return None
        book = self._fields.part("character_book")
        return lorebook_of(book, self._told, self._notes, where=f"{book.path}.")


def _described(card: Card, notes: Notes) -> dict[str, object]:
    fields = card.fields
    given = tuple(dict.fromkeys(_one_line(tag) for tag in fields.texts("tags")))
    tags = tuple(tag for tag in given if 0 < len(tag) <= 120)
    if len(tags) < len(given):
        notes.kept(fields.at("tags"), "empty tags and tags longer than 120 characters are not used")
    version, creator = _one_line(fields.text("character_version"))[:120].strip(), _one_line(fields.text("creator"))
    for name, value, to in (
        ("tags", tags, "meta.tags"),
        ("character_version", version, "meta.version"),
        ("creator", creator, "meta.source"),
    ):
        if value:
            notes.mapped(fields.at(name), to)
    notes.assumed("the licence is unknown: ask the card's author before you redistribute the sheet")
    return {
        "version": version or "1",
        "source": f"character card {card.version}{f' by {creator}' if creator else ''}"[:120].strip(),
        "summary": f"{_one_line(fields.text('name'))[:200]}, from a character card.",
        "tags": tags,
    }


def _name_the_rest(card: Card, notes: Notes) -> None:
    fields = card.fields
    for name, value in fields.values.items():
        if name in KEPT and value not in (None, "", [], {}):
            notes.kept(fields.at(name), KEPT[name])
        elif name not in KEPT and name not in _READ:
            notes.kept(fields.at(name[:60]), "not a sheet field")
    for name in fields.part("extensions").values:
        notes.kept(f"{fields.at('extensions')}.{name[:60]}", "used by other tools only")
    for name in card.outside:
        notes.kept(name[:60], "outside the card's fields")
    if card.newer is not None:
        notes.assumed(f"{card.newer} is a newer version; it is read as {card.version}")


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
