"""`atropos-envs sheets`: check, try, import and export character sheets."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from app.characters.loading import (
    list_yaml_files,
    read_own_lorebooks,
    read_own_scenes,
    read_scenes,
    read_sheet,
    read_sheets,
)
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from app.characters.sheet_checks import SheetCheckContext, SheetCheckResult, check_sheets
from app.characters.sheet_sources import SheetFinding
from app.characters.world_files import list_world_files, read_world
from app.cli.cards import export_card, import_cards
from app.cli.character_discrimination import DiscriminationFigures, tell_apart
from app.cli.consoles import AsJson, errors, format_figure, output_console
from app.cli.judge_setup import open_judge_panels
from app.cli.scene_drafts import scenes as draft_scenes
from app.cli.sheet_preview import try_sheet
from app.cli.sheet_transfer import pull, push
from app.domain.errors import GatewayError
from app.envs.npc_arena.environment import PACKAGED_SCENES, NpcArena
from app.judges.gates.gate_registry import GATES
from app.settings import Settings, read_settings
from app.toolkit.package_data import find_packaged_folder

sheets = typer.Typer(help="Check, try, import and export character sheets.", no_args_is_help=True)
sheets.command("try")(try_sheet)
sheets.command("import")(import_cards)
sheets.command("export")(export_card)
sheets.command("scenes")(draft_scenes)
sheets.command("pull")(pull)
sheets.command("push")(push)
console = output_console()

SHIPPED = "character_sheets"


@sheets.callback()
def callback() -> None:
    """Check, try, import and export character sheets."""


@sheets.command()
def check(
    paths: Annotated[list[Path] | None, typer.Argument(help="Files or folders; the bundled sheets by default.")] = None,
    scenes: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the characters' own scenes.", show_default="the folder `scenes` beside the sheets"
        ),
    ] = None,
    strict: Annotated[bool, typer.Option(help="Treat warnings as errors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check character sheets for errors, and the scenes, worlds and lorebooks that their folder brings.

    Exit code 1: errors found. Exit code 2: nothing to check."""
    try:
        files = _list_files(paths or [find_packaged_folder(SHIPPED)])
        surroundings = SheetCheckContext(
            (*_read_own_scenes(files, scenes), *read_scenes(PACKAGED_SCENES)),
            frozenset(gate.flag for gate in GATES),
            _read_neighbours(files),
        )
        _read_companions(paths or ())
    except (GatewayError, OSError) as error:
        errors.print(str(error), style="red", highlight=False, markup=False)
        raise typer.Exit(2) from None
    checked = check_sheets(files, surroundings)
    if as_json:
        typer.echo(json.dumps(_build_report(checked), ensure_ascii=False, indent=2))
    else:
        print_findings(checked.findings, format_count(len(checked.sheets), "sheet"))
    if checked.errors or (strict and checked.warnings):
        raise typer.Exit(1)


@sheets.command()
def apart(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of sheets.", show_default="the configured one, else the bundled sheets"),
    ] = None,
    scenes: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the characters' own scenes.", show_default="the folder `scenes` beside the sheets"
        ),
    ] = None,
    others: Annotated[
        int, typer.Option(min=1, max=64, help="Number of other characters' replies to compare with each own reply.")
    ] = 7,
    as_json: AsJson = False,
) -> None:
    """Measure how well the configured judges tell characters apart, from one another and from those that ship."""
    try:
        settings = read_settings()
        arena = NpcArena.read(folder or settings.character_sheets or find_packaged_folder(SHIPPED), scenes)
        figures = asyncio.run(_measure_discrimination(arena, settings, others))
    except (GatewayError, ValueError) as error:
        errors.print(str(error), style="red", highlight=False, markup=False)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(figures.model_dump_json(indent=2))
    else:
        _print_figures(figures)


async def _measure_discrimination(arena: NpcArena, settings: Settings, others: int) -> DiscriminationFigures:
    async with open_judge_panels(settings) as panels:
        return await tell_apart(arena, panels, others, read_sheets(find_packaged_folder(SHIPPED)))


def _list_files(paths: Sequence[Path]) -> list[Path]:
    """NotFound for a folder without sheets."""
    return [file for path in paths for file in (list_yaml_files(path) if path.is_dir() else [path])]


def _read_own_scenes(files: Sequence[Path], scenes: Path | None) -> tuple[SceneSet, ...]:
    """The scenes of `scenes`, or those that the sheets' folders bring."""
    if scenes is not None:
        return read_scenes(scenes)
    return tuple(one for folder in dict.fromkeys(file.parent for file in files) for one in read_own_scenes(folder))


def _read_companions(paths: Sequence[Path]) -> None:
    """Reads the lorebooks and worlds of folders. InvalidRequest naming the file and field of an error."""
    for folder in (path for path in paths if path.is_dir()):
        read_own_lorebooks(folder)
        for file in list_world_files(folder):
            read_world(file)


def _read_neighbours(files: Sequence[Path]) -> dict[str, CharacterSheet]:
    """Sheets in the same folders, as targets of relationships; broken ones are skipped."""
    found: dict[str, CharacterSheet] = {}
    for file in {other for path in files for other in path.parent.glob("*.yaml")} - set(files):
        try:
            sheet = read_sheet(file)
        except (GatewayError, OSError):
            continue
        found[sheet.id] = sheet
    return found


def _build_report(checked: SheetCheckResult) -> dict[str, object]:
    return {
        "sheets": len(checked.sheets),
        "errors": checked.errors,
        "warnings": checked.warnings,
        "findings": [finding.model_dump() for finding in checked.findings],
    }


def print_findings(findings: Sequence[SheetFinding], read: str) -> None:
    """By file, with the counts below. `read` says what was found to be valid."""
    file = ""
    for finding in findings:
        if finding.file != file:
            file = finding.file
            console.print(Text(file, style="bold"), soft_wrap=True)
        console.print(_format_finding(finding), soft_wrap=True)
    broken = sum(finding.level == "error" for finding in findings)
    style = "red" if broken else "yellow" if findings else "green"
    counts = (format_count(broken, "error"), format_count(len(findings) - broken, "warning"))
    console.print(f"{read} read, {', '.join(counts)}", style=style, highlight=False)


def _format_finding(finding: SheetFinding) -> Text:
    colour = "red" if finding.level == "error" else "yellow"
    place = f"  {finding.line or '-'}: "
    return Text.assemble((place, "dim"), (f"{finding.level} ", colour), (f"{finding.field} ", "cyan"), finding.message)


def format_count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _print_figures(figures: DiscriminationFigures) -> None:
    low, high = figures.interval
    table = Table(
        "character", "pairs", "told apart", title=f"Own reply above another's, by {', '.join(figures.judges)}"
    )
    for row in figures.characters:
        table.add_row(row.character, str(row.pairs), f"{row.right:g}")
    console.print(table)
    told = f"{format_figure(figures.share)} of {figures.pairs} pairs (95 % interval {low:.3f} to {high:.3f})"
    console.print(told + (f"; {figures.unscored} not scored" if figures.unscored else ""), highlight=False)
