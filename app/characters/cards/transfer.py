"""Import of cards and lorebooks; a card with an embedded sheet restores it, with later changes to the card."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue, ValidationError

from app.characters.cards.books import read_lorebook
from app.characters.cards.given import Given, Object, refused
from app.characters.cards.kinds import Card, card_of
from app.characters.cards.reading import Naming, sheet_of
from app.characters.cards.report import ImportReport, Notes
from app.characters.cards.writing import NATIVE, written_card
from app.characters.schema import CharacterSheet
from app.domain.errors import InvalidRequest
from app.domain.lorebooks import Lorebook


@dataclass(frozen=True)
class Imported:
    """An imported character sheet or lorebook."""

    content: CharacterSheet | Lorebook
    report: ImportReport


def imported(value: JsonValue, naming: Naming) -> Imported:
    """InvalidRequest or TooLarge naming the field if it is neither a card nor a lorebook."""
    card = card_of(value)
    if card is None:
        return Imported(*read_lorebook(value))
    notes = Notes()
    native = _native(card)
    if native is None:
        return Imported(sheet_of(card, naming, notes), notes.report(f"character card {card.version}"))
    sheet = _reunited(card, *native, naming, notes)
    return Imported(sheet, notes.report(f"character card {card.version} with a sheet"))


def _native(card: Card) -> tuple[CharacterSheet, Object] | None:
    """The sheet embedded in a card, and the card that this sheet exports to."""
    if card.version == "V1":
        return None
    extensions = card.fields.part("extensions")
    if NATIVE not in extensions.values:
        return None
    try:
        sheet = CharacterSheet.model_validate(extensions.values[NATIVE])
        return sheet, written_card(sheet, card.version)
    except InvalidRequest as error:
        raise refused(extensions.at(NATIVE), f"the original card is invalid: {error.detail}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join([extensions.at(NATIVE), *map(str, first["loc"])])
        raise refused(field, " ".join(first["msg"].split())) from None


def _reunited(card: Card, native: CharacterSheet, written: Object, naming: Naming, notes: Notes) -> CharacterSheet:
    """Changes that other tools made to the card override the embedded sheet."""
    notes.mapped(card.fields.part("extensions").at(NATIVE), "the whole sheet, including fields for judges only")
    if native.gates.disabled:
        notes.assumed(f"the sheet disables gates: {', '.join(native.gates.disabled)}")
    sheet = native
    if written != card.document:
        alone = _without_native(card)
        fresh = sheet_of(alone, Naming(native.id, native.voice.language, native.meta.world), Notes())
        sheet = _taken(native, fresh, _changed(card, card_of(dict(written)), notes))
    if naming.id is not None:
        sheet = sheet.model_copy(update={"meta": sheet.meta.model_copy(update={"id": naming.id})})
    return sheet


def _changed(card: Card, written: Card | None, notes: Notes) -> list[str]:
    """Parts of the sheet whose card fields were changed."""
    then = {} if written is None else written.fields.values
    now = card.fields.values
    changed = [name for name in _PARTS if now.get(name) != then.get(name)]
    for name in changed:
        notes.mapped(card.fields.at(name), f"{' and '.join(_PARTS[name])}, changed since the sheet was embedded")
    if {"name", "nickname"} & set(changed):
        changed += [name for name in _PARTS if "{{char}}" in str(now.get(name)).casefold()]
    return ["meta.extensions", *(part for name in changed for part in _PARTS[name])]


def _without_native(card: Card) -> Card:
    extensions = {k: v for k, v in card.fields.part("extensions").values.items() if k != NATIVE}
    data: dict[str, JsonValue] = {**card.fields.values, "extensions": extensions}
    return Card(card.version, {**card.document, "data": data}, Given(data, card.fields.path), card.newer)


def _taken(sheet: CharacterSheet, fresh: CharacterSheet, parts: list[str]) -> CharacterSheet:
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
