"""`atropos-envs sheets import` and `export`: conversion of character cards and lorebooks."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue, TypeAdapter, ValidationError
from rich.text import Text

from app.characters.cards.card_export import NATIVE, build_card
from app.characters.cards.card_import import SheetNaming, build_slug
from app.characters.cards.card_versions import Version
from app.characters.cards.files import MAX_BYTES, CardFile, read_file
from app.characters.cards.lorebook_export import write_lorebook
from app.characters.cards.png import embed_card
from app.characters.cards.report import ImportReport
from app.characters.cards.sheet_files import dump_sheet
from app.characters.cards.strict_json import MAX_JSON_BYTES
from app.characters.cards.transfer import ImportResult, import_document
from app.characters.loading import read_sheet
from app.characters.schema import CharacterSheet, Language
from app.cli.consoles import errors, output_console, stop, stop_on_errors
from app.domain.errors import Conflict, GatewayError, InvalidRequest, NotFound, TooLarge
from app.domain.lorebooks import Lorebook
from app.domain.suggestions import suggest
from app.domain.values import Name
from app.settings import read_settings
from app.toolkit.package_data import find_packaged_folder

console = output_console()
MOST_LINES = 200
_LOREBOOK = ".lorebook.json"
_name = TypeAdapter[str](Name)
_language = TypeAdapter[str](Language)

AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per file and line.")]


def import_cards(
    files: Annotated[list[Path], typer.Argument(help="Character cards and lorebooks: JSON, PNG or CHARX.")],
    to: Annotated[Path, typer.Option(help="Output folder; created if missing.")] = Path(),
    sheet_id: Annotated[
        str | None, typer.Option("--id", help="Sheet id; derived from the character's name by default.")
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the character, as an ISO 639-1 code.")] = "en",
    world: Annotated[str | None, typer.Option(help="World of the character; its own id by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing sheets.")] = False,
    as_json: AsJsonLines = False,
) -> None:
    """Convert character cards (V1, V2, V3) and lorebooks to sheets, and report the outcome of each field."""
    with stop_on_errors():
        naming = _parse_naming(sheet_id, language, world)
        if sheet_id is not None and len(files) > 1:
            raise InvalidRequest("--id works with a single file only")
    failed = False
    for file in files:
        try:
            found = read_file(file)
            brought = _import_file(file, found, naming)
            path = _save_imported(file, brought, to, naming, force)
        except (GatewayError, OSError) as error:
            failed = True
            errors.print(Text(_describe_error(file, error)), style="red", soft_wrap=True)
        else:
            _print_report(file, found, brought.report, path, as_json)
    if failed:
        raise typer.Exit(2)


def export_card(
    sheet: Annotated[str, typer.Argument(help="Sheet file or character id.")],
    v2: Annotated[bool, typer.Option("--v2", help="Write a V2 card.")] = False,
    v3: Annotated[bool, typer.Option("--v3", help="Write a V3 card.")] = False,
    png: Annotated[Path | None, typer.Option(help="PNG image to embed the card in.")] = None,
    out: Annotated[Path | None, typer.Option(help="Output file; <id>.json or <id>.png by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a sheet as a character card, or a lorebook in its original format.

    Imported cards keep their version by default; other sheets become V2."""
    if v2 and v3:
        stop("give either --v2 or --v3")
    version: Version | None = "V2" if v2 else "V3" if v3 else None
    try:
        name, card = _build_card(sheet, version)
        content = (json.dumps(card, ensure_ascii=False, indent=2) + "\n").encode()
        if len(content) > MAX_JSON_BYTES:
            raise TooLarge(f"{name}: the card would exceed {MAX_JSON_BYTES} bytes")
        if png is not None:
            content = _embed_in_image(png, card)
        path = out or Path(f"{name}{'.json' if png is None else '.png'}")
        _write_file(path, content, force)
    except (GatewayError, OSError) as error:
        stop(_describe_error(None, error))
    console.print(
        Text.assemble((f"{path}", "bold"), f": {_describe_kind(card)}, {len(content):,} bytes"), soft_wrap=True
    )
    if _holds_whole_sheet(card):
        console.print("It contains the whole sheet, including its secrets and fields for judges only.", style="yellow")


def _parse_naming(sheet_id: str | None, language: str, world: str | None) -> SheetNaming:
    for option, value, kind in (
        ("--id", sheet_id, _name),
        ("--language", language, _language),
        ("--world", world, _name),
    ):
        try:
            if value is not None:
                kind.validate_python(value)
        except ValidationError as error:
            raise InvalidRequest(f"{option}: {error.errors()[0]['msg']}") from None
    return SheetNaming(id=sheet_id, language=language, world=world)


def _import_file(file: Path, found: CardFile, naming: SheetNaming) -> ImportResult:
    try:
        return import_document(found.value, naming)
    except GatewayError as error:
        raise type(error)(f"{file.name}: {error.detail}", field=error.field) from None


def _save_imported(file: Path, brought: ImportResult, to: Path, naming: SheetNaming, force: bool) -> Path:
    if isinstance(brought.content, Lorebook):
        book = brought.content
        path = to / f"{naming.id or build_slug(book.name or file.stem)}{_LOREBOOK}"
        content = book.model_dump_json(indent=2) + "\n"
    else:
        path = to / f"{brought.content.id}.yaml"
        content = dump_sheet(brought.content)
    to.mkdir(parents=True, exist_ok=True)
    _write_file(path, content.encode(), force)
    return path


def _write_file(path: Path, content: bytes, force: bool) -> None:
    """Writes atomically, and never follows a symbolic link."""
    if not force:
        if os.path.lexists(path):
            raise Conflict(f"{path}: already exists; use --force to overwrite it")
        with path.open("xb") as file:
            file.write(content)
        return
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with beside.open("xb") as file:
        file.write(content)
    beside.replace(path)


def _build_card(name: str, version: Version | None) -> tuple[str, dict[str, JsonValue]]:
    """The file's name without suffix, and its content."""
    path = Path(name)
    if path.name.endswith(_LOREBOOK):
        book = import_document(read_file(path).value, SheetNaming()).content
        written = write_lorebook(book) if isinstance(book, Lorebook) else None
        if not isinstance(written, dict):
            raise InvalidRequest(f"{path.name}: not a lorebook")
        return path.name.removesuffix(_LOREBOOK), written
    sheet = _find_sheet(name)
    return sheet.id, build_card(sheet, version)


def _describe_kind(card: dict[str, JsonValue]) -> str:
    """The card's spec; lorebooks of some tools have none."""
    spec = card.get("spec")
    return str(spec)[:40] if spec is not None else "lorebook" if "entries" in card else "chara_card_v1"


def _find_sheet(name: str) -> CharacterSheet:
    """Reads a file, or the sheet of a character id where there is no such file."""
    path = Path(name)
    if path.exists() or path.suffix or path.name != name:
        return read_sheet(path)
    try:
        _name.validate_python(name)
        folder = read_settings().character_sheets or find_packaged_folder("character_sheets")
    except ValueError:
        raise InvalidRequest(f"{name!r} is neither a file nor a character id") from None
    sheet = folder / f"{name}.yaml"
    if not sheet.exists():
        raise NotFound(f"there is no character {name!r}{suggest(name, (path.stem for path in folder.glob('*.yaml')))}")
    return read_sheet(sheet)


def _embed_in_image(image: Path, card: dict[str, JsonValue]) -> bytes:
    with image.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InvalidRequest(f"{image.name}: larger than {MAX_BYTES} bytes")
    keyword = "ccv3" if card.get("spec") == "chara_card_v3" else "chara"
    return embed_card(content, image.name, keyword, json.dumps(card, ensure_ascii=False).encode())


def _holds_whole_sheet(card: dict[str, JsonValue]) -> bool:
    data = card.get("data")
    extensions = data.get("extensions") if isinstance(data, dict) else None
    return isinstance(extensions, dict) and NATIVE in extensions


def _print_report(file: Path, found: CardFile, report: ImportReport, path: Path, as_json: bool) -> None:
    beside = tuple(f"{what} stays in {file.name}" for what in found.beside)
    if as_json:
        shown = {"file": str(file), "sheet": str(path), "container": found.container, **report.model_dump(mode="json")}
        typer.echo(json.dumps({**shown, "beside": beside}, ensure_ascii=False))
        return
    console.print(Text.assemble((str(file), "bold"), f": {report.source} ({found.container})"), soft_wrap=True)
    _print_rows("→", [(one.field, one.to, one.times) for one in report.mapped], "green")
    _print_rows("is kept unchanged:", [(one.field, one.why, one.times) for one in report.kept], "yellow")
    for assumed in (*report.assumed, *beside):
        console.print(Text.assemble(("  note ", "cyan"), assumed), soft_wrap=True)
    console.print(Text.assemble("  written to ", (str(path), "bold")), soft_wrap=True)


def _print_rows(between: str, rows: Sequence[tuple[str, str, int]], style: str) -> None:
    for field, says, times in rows[:MOST_LINES]:
        count = f" ({times} times)" if times > 1 else ""
        console.print(
            Text.assemble("  ", (_escape_unprintable(field), style), f" {between} {_escape_unprintable(says)}{count}"),
            soft_wrap=True,
        )
    if len(rows) > MOST_LINES:
        console.print(f"  and {len(rows) - MOST_LINES} more; --json lists them all")


def _escape_unprintable(text: str) -> str:
    """Escapes control characters of untrusted text."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _describe_error(file: Path | None, error: GatewayError | OSError) -> str:
    """The error's message, with the file's name once."""
    if isinstance(error, OSError):
        return f"{error.filename or file}: {error.strerror}"
    return _escape_unprintable(error.detail)
