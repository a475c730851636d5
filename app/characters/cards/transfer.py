"""Import of cards and lorebooks; a card with an embedded sheet restores it, with later changes to the card."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue, ValidationError

from app.characters.cards.card_export import NATIVE, build_card
from app.characters.cards.card_import import SheetNaming, build_sheet
from app.characters.cards.card_versions import ParsedCard, parse_card
from app.characters.cards.json_fields import JsonFields, Object, build_refusal
from app.characters.cards.lorebook_import import read_lorebook
from app.characters.cards.report import ImportNotes, ImportReport
from app.characters.schema import CharacterSheet
from app.domain.errors import InvalidRequest
from app.domain.lorebooks import Lorebook


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
    native = _find_native_sheet(card)
    if native is None:
        return ImportResult(build_sheet(card, naming, notes), notes.build_report(f"character card {card.version}"))
    sheet = _merge_native_sheet(card, *native, naming, notes)
    return ImportResult(sheet, notes.build_report(f"character card {card.version} with a sheet"))


def _find_native_sheet(card: ParsedCard) -> tuple[CharacterSheet, Object] | None:
    """The sheet embedded in a card, and the card that this sheet exports to."""
    if card.version == "V1":
        return None
    extensions = card.fields.get_part("extensions")
    if NATIVE not in extensions.values:
        return None
    try:
        sheet = CharacterSheet.model_validate(extensions.values[NATIVE])
        return sheet, build_card(sheet, card.version)
    except InvalidRequest as error:
        raise build_refusal(extensions.build_path(NATIVE), f"the original card is invalid: {error.detail}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join([extensions.build_path(NATIVE), *map(str, first["loc"])])
        raise build_refusal(field, " ".join(first["msg"].split())) from None


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
        fresh = build_sheet(alone, SheetNaming(native.id, native.voice.language, native.meta.world), ImportNotes())
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
    return ParsedCard(card.version, {**card.document, "data": data}, JsonFields(data, card.fields.path), card.newer)


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
