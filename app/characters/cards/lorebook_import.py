"""Import of lorebooks: `lorebook_v3`, a card's `character_book`, and world info exports."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue, ValidationError

from app.characters.cards.entries import MOST_DEPTH, EntryReader
from app.characters.cards.json_fields import JsonFields, Object, build_refusal
from app.characters.cards.macros import MacroNames
from app.characters.cards.report import ImportNotes, ImportReport
from app.characters.cards.world_info import from_world_info
from app.domain.errors import TooLarge
from app.domain.lorebooks import Lorebook, LoreEntry

ORIGINAL: Final = "lorebook/original"
"""Extension key of the original file."""
MOST_ENTRIES: Final = 5000
MOST_TOKENS: Final = 100_000
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
    if not isinstance(value, dict):
        raise build_refusal("the document", "must be a JSON object")
    require_few_entries(value)
    own = _parse_own_lorebook(value)
    if own is not None:
        return own, ImportReport(source="lorebook")
    notes = ImportNotes()
    source, book = _find_book(value)
    read = build_lorebook(book, MacroNames(char=None), notes, where="")
    return read.model_copy(update={"extensions": {ORIGINAL: value}}), notes.build_report(source)


def require_few_entries(value: Mapping[str, object]) -> None:
    """Counts the entries before any of them is read: to refuse each of a million takes minutes. TooLarge."""
    data = value.get("data")
    for where, book in (("entries", value), ("data.entries", data if isinstance(data, Mapping) else {})):
        entries = book.get("entries")
        if isinstance(entries, (list, tuple, dict)) and len(entries) > MOST_ENTRIES:
            raise TooLarge(f"{where}: more than {MOST_ENTRIES} entries", field=where)


def _parse_own_lorebook(value: Object) -> Lorebook | None:
    try:
        return Lorebook.model_validate(value)
    except ValidationError:
        return None


def _find_book(value: Mapping[str, JsonValue]) -> tuple[str, JsonFields]:
    """The format's name, and the book in the card format."""
    spec = value.get("spec")
    if spec == "lorebook_v3":
        if not isinstance(value.get("data"), dict):
            raise build_refusal("data", "must be an object: the lorebook")
        return "lorebook V3", JsonFields(value).get_part("data")
    if isinstance(spec, str) and spec.startswith("chara_card"):
        raise build_refusal("spec", "is a character card, not a lorebook")
    if isinstance(value.get("entries"), dict):
        return "world info", from_world_info(JsonFields(value))
    if "entries" not in value:
        raise build_refusal("entries", "is missing: not a supported lorebook format")
    return "lorebook V2", JsonFields(value)


def read_entries(
    book: JsonFields, wording: MacroNames, notes: ImportNotes, where: str
) -> tuple[tuple[JsonFields, LoreEntry | None], ...]:
    """Original entries with their parsed form; None for an unsupported entry."""
    entries = tuple(book.iter_parts("entries"))
    if len(entries) > MOST_ENTRIES:
        raise TooLarge(
            f"{book.build_path('entries')}: more than {MOST_ENTRIES} entries", field=book.build_path("entries")
        )
    reader = EntryReader(wording, notes, where)
    return tuple((entry, reader.read(entry, number)) for number, entry in enumerate(entries, start=1))


def build_lorebook(book: JsonFields, wording: MacroNames, notes: ImportNotes, where: str) -> Lorebook:
    """Builds the book without keeping the original. `where`: prefix of fields in the notes, with its full stop."""
    read = read_entries(book, wording, notes, where)
    depth, budget = book.get_number("scan_depth"), book.get_number("token_budget")
    values: dict[str, object] = {
        "name": book.get_text("name"),
        "description": book.get_text("description"),
        "recursive": book.get_flag("recursive_scanning") is True,
        "entries": tuple(entry for _, entry in read if entry is not None),
    }
    if depth is not None:
        values["scan_depth"] = int(max(0, min(MOST_DEPTH, depth)))
    if budget is not None:
        values["token_budget"] = int(max(0, min(MOST_TOKENS, budget)))
    for name, given in book.values.items():
        if name in _BOOK_FIELDS:
            notes.add_mapped(f"{where}{name}", f"lorebook.{_BOOK_FIELDS[name]}")
        elif name not in ("entries", "extensions") or (name == "extensions" and given):
            notes.add_kept(f"{where}{name[:60]}", "not a lorebook field")
    return Lorebook.model_validate(values)
