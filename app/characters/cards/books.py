"""Import of lorebooks: `lorebook_v3`, a card's `character_book`, and world info exports."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue, ValidationError

from app.characters.cards.entries import MOST_DEPTH, EntryReader
from app.characters.cards.given import Given, Object, refused
from app.characters.cards.macros import Wording
from app.characters.cards.report import ImportReport, Notes
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
        raise refused("the document", "must be a JSON object")
    own = _own(value)
    if own is not None:
        return own, ImportReport(source="lorebook")
    notes = Notes()
    source, book = _book_in(value)
    read = lorebook_of(book, Wording(char=None), notes, where="")
    return read.model_copy(update={"extensions": {ORIGINAL: value}}), notes.report(source)


def _own(value: Object) -> Lorebook | None:
    try:
        return Lorebook.model_validate(value)
    except ValidationError:
        return None


def _book_in(value: Mapping[str, JsonValue]) -> tuple[str, Given]:
    """The format's name, and the book in the card format."""
    spec = value.get("spec")
    if spec == "lorebook_v3":
        if not isinstance(value.get("data"), dict):
            raise refused("data", "must be an object: the lorebook")
        return "lorebook V3", Given(value).part("data")
    if isinstance(spec, str) and spec.startswith("chara_card"):
        raise refused("spec", "is a character card, not a lorebook")
    if isinstance(value.get("entries"), dict):
        return "world info", from_world_info(Given(value))
    if "entries" not in value:
        raise refused("entries", "is missing: not a supported lorebook format")
    return "lorebook V2", Given(value)


def entries_of(book: Given, wording: Wording, notes: Notes, where: str) -> tuple[tuple[Given, LoreEntry | None], ...]:
    """Original entries with their parsed form; None for an unsupported entry."""
    entries = tuple(book.parts("entries"))
    if len(entries) > MOST_ENTRIES:
        raise TooLarge(f"{book.at('entries')}: more than {MOST_ENTRIES} entries", field=book.at("entries"))
    reader = EntryReader(wording, notes, where)
    return tuple((entry, reader.read(entry, number)) for number, entry in enumerate(entries, start=1))


def lorebook_of(book: Given, wording: Wording, notes: Notes, where: str) -> Lorebook:
    """Builds the book without keeping the original. `where`: prefix of fields in the notes, with its full stop."""
    read = entries_of(book, wording, notes, where)
    depth, budget = book.number("scan_depth"), book.number("token_budget")
    values: dict[str, object] = {
        "name": book.text("name"),
        "description": book.text("description"),
        "recursive": book.flag("recursive_scanning") is True,
        "entries": tuple(entry for _, entry in read if entry is not None),
    }
    if depth is not None:
        values["scan_depth"] = int(max(0, min(MOST_DEPTH, depth)))
    if budget is not None:
        values["token_budget"] = int(max(0, min(MOST_TOKENS, budget)))
    for name, given in book.values.items():
        if name in _BOOK_FIELDS:
            notes.mapped(f"{where}{name}", f"lorebook.{_BOOK_FIELDS[name]}")
        elif name not in ("entries", "extensions") or (name == "extensions" and given):
            notes.kept(f"{where}{name[:60]}", "not a lorebook field")
    return Lorebook.model_validate(values)
