"""`atropos-envs sheets`: check, try, import and export character sheets.

All of it works on files and runs in this process, without a service and without a trace in the store, except that the
judges of `try` count against their budgets. Texts of cards and replies are untrusted: what is printed has
its control characters escaped, and files are written whole, never through a symbolic link."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue, TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.characters.archives import list_world_files, read_world
from app.characters.cards.fields import ImportReport
from app.characters.cards.files import MAX_BYTES, MAX_JSON_BYTES, CardFile, embed_card, read_file
from app.characters.cards.formats import Version
from app.characters.cards.lorebooks import write_lorebook
from app.characters.cards.sheets import (
    NATIVE,
    ImportResult,
    SheetNaming,
    build_card,
    build_slug,
    dump_sheet,
    import_document,
    import_file,
)
from app.characters.loading import (
    SCENES,
    find_lorebook_beside,
    list_yaml_files,
    read_own_lorebooks,
    read_own_scenes,
    read_scenes,
    read_sheet,
)
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet, Language
from app.characters.sheet_checks import SheetCheckResult, SheetFinding, build_check_context, check_sheets
from app.cli.judge_bench import open_judge_panels
from app.cli.scene_drafts import scenes as draft_scenes
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import Conflict, GatewayError, InvalidRequest, NotFound, TooLarge, UserError
from app.domain.faults import describe_os_error, explain_faults, explain_os_error
from app.domain.judging import Judgement
from app.domain.scores import Score, explain_verified
from app.domain.tasks import Completion
from app.domain.values import FiniteJson, Name, suggest
from app.domain.worlds import Lorebook
from app.envs.npc_arena.environment import PACKAGED_SCENES, NpcArena, NpcArenaDraft
from app.envs.npc_arena.roster import DraftEvent
from app.inference.policies import ChatPolicy
from app.judges.gates import GATES
from app.ports.environment import NoPrograms, NoWorkers
from app.ports.retrieval import NoRetriever
from app.sandbox.workers import InProcessWorkers
from app.service.catalogue import Catalogue
from app.service.retrieval import DraftBuilder, PreviewOptions, PreviewResult, PreviewService, RetrievalService
from app.settings import Settings, read_settings
from app.telemetry.metrics import NullObserver
from app.terminal.client import check_url
from app.terminal.completion import complete_character
from app.terminal.consoles import AsJson, errors, format_figure, output_console, print_outcome, stop, stop_on_errors
from app.toolkit.templates import find_packaged_folder
from app.toolkit.texts import escape_invisible

sheets = typer.Typer(help="Check, try, import and export character sheets.", no_args_is_help=True)
_console = output_console()


@sheets.callback()
def callback() -> None:
    """Check, try, import and export character sheets."""


# `try`.


class SheetTrial(PreviewResult):
    """A preview with the replies that were judged."""

    replies: tuple[Completion, ...]
    """In the order of `completions`."""


@sheets.command("try")
def try_sheet(
    sheet: Annotated[
        str, typer.Argument(help="Sheet file (YAML or JSON) or character id.", autocompletion=complete_character)
    ],
    line: Annotated[str | None, typer.Option(help="Player's line.")] = None,
    scene: Annotated[str | None, typer.Option(help="Scene id, instead of a line.")] = None,
    scenes: Annotated[
        Path | None,
        typer.Option(help="Folder of the character's own scenes.", show_default="the folder `scenes` beside the sheet"),
    ] = None,
    event: Annotated[list[str] | None, typer.Option(help="Event that the character knows about; repeatable.")] = None,
    reply: Annotated[list[str] | None, typer.Option(help="Reply to judge; repeat to compare several.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="URL of an OpenAI-compatible server to sample replies from.", callback=check_url),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name on that server.")] = None,
    count: Annotated[int, typer.Option(min=1, max=16, help="Number of replies to sample.")] = 4,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable with the server's API key.")] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Show the full system prompt.")] = False,
    as_json: AsJson = False,
) -> None:
    """Preview a character: show the prompt, and judge replies to it. Nothing is stored."""
    with stop_on_errors():
        settings = read_settings()
        draft = _build_draft(sheet, line, scene, event or ())
        folders = {
            "character_sheets": settings.character_sheets,
            "character_scenes": scenes or _find_scenes_beside(Path(sheet)),
        }
        player = _build_policy(settings, policy, model, api_key_env)
        trial = asyncio.run(_preview_draft(settings, folders, draft, reply or (), player, count))
    if as_json:
        typer.echo(trial.model_dump_json(indent=2))
    else:
        _print_trial(output_console(), trial, whole_prompt=prompt)


def _build_draft(sheet: str, line: str | None, scene: str | None, events: Sequence[str]) -> NpcArenaDraft:
    """`sheet` is a file, or a character id where there is no such file."""
    path = Path(sheet)
    named = not path.exists() and path.name == sheet and not path.suffix
    return NpcArenaDraft(
        character=sheet if named else None,
        sheet=None if named else _read_draft(path),
        line=line,
        scene=scene,
        events=tuple(DraftEvent(text=text) for text in events),
    )


def _read_draft(path: Path) -> str | dict[str, FiniteJson]:
    """The text, which errors are found in; with a lorebook beside it the whole sheet."""
    if find_lorebook_beside(path) is None:
        return path.read_text(encoding="utf-8-sig")
    return read_sheet(path).model_dump(mode="json", exclude_none=True)


def _find_scenes_beside(sheet: Path) -> Path | None:
    folder = sheet.parent / SCENES
    return folder if sheet.is_file() and folder.is_dir() else None


def _build_policy(
    settings: Settings, url: str | None, model: str | None, key_variable: str | None
) -> ChatPolicy | None:
    if url is None:
        return None
    if model is None:
        raise UserError("--policy needs --model")
    key = None if key_variable is None else settings.read_secret(key_variable)
    if key_variable is not None and key is None:
        raise UserError(f"--api-key-env: the environment variable {key_variable} is not set")
    return ChatPolicy(url, model, api_key=key)


async def _preview_draft(
    settings: Settings,
    folders: Mapping[str, Path | None],
    draft: NpcArenaDraft,
    replies: Sequence[str],
    policy: ChatPolicy | None,
    count: int,
) -> SheetTrial:
    """Runs the service's preview in this process, with the configured judges."""
    catalogue = Catalogue({NpcArena.name: NpcArena})
    catalogue.open(ConfiguredDatasets({}, folders=folders))
    gates = {gate.flag: gate.notices for gate in GATES}
    async with open_judge_panels(settings) as panels:
        trier = PreviewService(
            drafting=DraftBuilder(catalogue, RetrievalService(NoRetriever(), NullObserver())),
            panels=panels,
            workers=NoWorkers(),
            authors=InProcessWorkers(),  # the files are those of whoever waits here
            programs=NoPrograms(),
            observer=NullObserver(),
            gates=gates,
        )
        completions = [Completion(text=reply) for reply in replies]
        if policy is not None:
            built = trier.build_draft(NpcArena.name, draft)
            completions += await policy.answer(built.environment, built.task, count)
        options = PreviewOptions(completions=tuple(completions))
        judged = await trier.preview(NpcArena.name, draft, options)
        return SheetTrial(**dict(judged), replies=options.completions)


# The report of `try`: prompt, replies, gates, judgements and scores.

_MOST_QUOTED = 70
"""Characters of a quotation."""


def _print_trial(_console: Console, trial: SheetTrial, *, whole_prompt: bool) -> None:
    """Prints without markup, and escapes control characters, since replies are untrusted."""
    _print_prompt(_console, trial, whole_prompt)
    names = _number_candidates(trial)
    for number, reply in enumerate(trial.replies, start=1):
        _print_reply(_console, number, reply)
    if trial.completions:
        _console.print(_build_scores_table(trial))
    for number, tried in enumerate(trial.completions, start=1):
        for gate in tried.gates:
            _print_text(_console, f"{number} {gate.flag}: {gate.notices or tried.score.rationale}", style="red")
        if not tried.gates and tried.score.rationale:
            _print_text(_console, f"{number} {tried.score.rationale}", style="dim")
        if tried.score.judges and (verified := explain_verified(tried.score)):
            _print_text(_console, f"{number} {verified}", style="dim")
    for judgement in trial.judgements:
        _print_judgement(_console, judgement, names)
    if trial.completions:
        cost = "unknown price" if trial.cost_usd is None else f"{trial.cost_usd:.4f} USD"
        words = f"{trial.seconds:.2f} s, {trial.calls} calls to judge models, {cost}; nothing was stored"
        _console.print(Text(words, style="bold"))


def _print_prompt(_console: Console, trial: PreviewResult, whole: bool) -> None:
    system, *conversation = trial.messages
    text = system.content or ""
    if whole:
        _print_text(_console, text)
    else:
        _console.print(Text(f"system prompt of {len(text.split())} words; --prompt shows it", style="dim"))
    for passage in trial.passages:
        _print_text(_console, f"retrieved: {passage.text}", style="dim")
    if trial.tools:
        _print_text(_console, f"tools: {', '.join(tool.function.name for tool in trial.tools)}", style="dim")
    for message in conversation:
        _print_said(_console, message.role, message.content or "")


def _print_reply(_console: Console, number: int, reply: Completion) -> None:
    """Prints every message of an episode. What the model said is marked with the number of the reply."""
    for role, text in _list_lines(reply):
        _print_said(_console, f"{number} {role}", text)
    if reply.truncated:
        _print_text(_console, f"{number} was cut off at the token limit", style="dim")


def _list_lines(reply: Completion) -> Iterator[tuple[str, str]]:
    if reply.messages is None:
        yield "assistant", reply.text or ""
    for message in reply.messages or ():
        called = [f"{call.function.name}({call.function.arguments})" for call in message.tool_calls or ()]
        yield message.role, "\n".join([*filter(None, [message.content]), *called])


def _print_said(_console: Console, head: str, text: str) -> None:
    """Indents all lines but the first, so that none of them looks like a line of the report."""
    indented = escape_invisible(text).replace("\n", "\n    ")
    _console.print(Text.assemble((f"{head}: ", "bold"), indented))


def _print_text(_console: Console, text: str, style: str = "") -> None:
    _console.print(Text(escape_invisible(text), style=style))


def _number_candidates(trial: PreviewResult) -> dict[str, str]:
    """Completion numbers by candidate id; equal completions share one."""
    names: dict[str, str] = {}
    for number, tried in enumerate(trial.completions, start=1):
        if tried.score.candidate:
            earlier = names.get(tried.score.candidate)
            names[tried.score.candidate] = str(number) if earlier is None else f"{earlier}={number}"
    return names


def _build_scores_table(trial: PreviewResult) -> Table:
    """Fits 80 columns without splitting names."""
    table = Table("#", "reward", "parts", title="Scores", show_lines=True, show_edge=False)
    table.add_column("criteria", no_wrap=True)
    table.add_column("flags", overflow="fold")
    for number, tried in enumerate(trial.completions, start=1):
        score = tried.score
        parts = {"gate": score.gate, "absolute": score.absolute, "relative": score.relative}
        criteria = {criterion.name: criterion.value for criterion in score.criteria}
        cells = (
            str(number),
            _format_reward(score),
            _format_lines(parts),
            _format_lines(criteria),
            "\n".join(score.flags),
        )
        table.add_row(*map(Text, cells))
    return table


def _format_lines(figures: Mapping[str, float | None]) -> str:
    return "\n".join(f"{name} {format_figure(value, '.2f')}" for name, value in figures.items())


def _format_reward(score: Score) -> str:
    return f"none: {score.reason}" if score.reward is None else f"{score.reward:.3f}"


def _print_judgement(_console: Console, judgement: Judgement, names: Mapping[str, str]) -> None:
    order = " ".join(names.get(name, name) for name in judgement.order)
    ranking = " > ".join(" = ".join(names.get(name, name) for name in tier) for tier in judgement.ranking)
    outcome = f"failed: {judgement.error}" if judgement.error is not None else f"ranks {ranking}"
    head = f"{judgement.judge} ({judgement.model}) reads {order}, {outcome}, in {judgement.latency_seconds:.2f} s"
    _print_text(_console, head, style="bold")
    for verdict in judgement.verdicts:
        scores = ", ".join(f"{name} {format_figure(value, '.2f')}" for name, value in verdict.scores.items())
        faults = " ".join(defect.code for defect in verdict.defects)
        quoted = verdict.evidence or [defect.quote for defect in verdict.defects if defect.quote]
        quotes = " | ".join(" ".join(quote.split())[:_MOST_QUOTED] for quote in quoted)
        words = "; ".join(filter(None, (scores, faults, verdict.note, quotes)))
        _print_text(_console, f"  {names.get(verdict.candidate, verdict.candidate)}: {words}")


# `import` and `export`: character cards and lorebooks.

_MOST_LINES = 200
"""Lines of a report of one kind: a card may have thousands of fields of its own."""
_LOREBOOK = ".lorebook.json"
_name = TypeAdapter[str](Name)

_AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per file and line.")]


@sheets.command("import")
def import_cards(
    files: Annotated[list[Path], typer.Argument(help="Character cards and lorebooks: JSON, PNG or CHARX.")],
    to: Annotated[Path, typer.Option(help="Output folder; created if missing.")] = Path(),
    sheet_id: Annotated[
        str | None, typer.Option("--id", help="Sheet id; derived from the character's name by default.")
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the character, as an ISO 639-1 code.")] = "en",
    world: Annotated[str | None, typer.Option(help="World of the character; its own id by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing sheets.")] = False,
    as_json: _AsJsonLines = False,
) -> None:
    """Convert character cards (V1, V2, V3) and lorebooks to sheets, and report the outcome of each field."""
    with stop_on_errors():
        naming = _parse_naming(sheet_id, language, world)
        if sheet_id is not None and len(files) > 1:
            raise InvalidRequest("--id works with a single file only")
    failed = False
    for file in files:
        try:
            card = read_file(file)
            imported = _import_file(file, card, naming)
            path = _save_imported(file, imported, to, naming, force)
        except (GatewayError, OSError) as error:
            failed = True
            errors.print(Text(_describe_error(file, error)), style="red", soft_wrap=True)
        else:
            _print_report(file, card, imported.report, path, as_json)
    if failed:
        raise typer.Exit(2)


@sheets.command("export")
def export_card(
    sheet: Annotated[str, typer.Argument(help="Sheet file or character id.", autocompletion=complete_character)],
    v2: Annotated[bool, typer.Option("--v2", help="Write a V2 card.")] = False,
    v3: Annotated[bool, typer.Option("--v3", help="Write a V3 card.")] = False,
    png: Annotated[Path | None, typer.Option(help="PNG image to embed the card in.")] = None,
    out: Annotated[Path | None, typer.Option(help="Output file; <id>.json or <id>.png by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
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
    if as_json:
        whole = _holds_whole_sheet(card)
        print_outcome(
            "", as_json=True, file=str(path), kind=_describe_kind(card), bytes=len(content), holds_whole_sheet=whole
        )
        return
    _console.print(
        Text.assemble((f"{path}", "bold"), f": {_describe_kind(card)}, {len(content):,} bytes"), soft_wrap=True
    )
    if _holds_whole_sheet(card):
        _console.print("It contains the whole sheet, including its secrets and fields for judges only.", style="yellow")


def _parse_naming(sheet_id: str | None, language: str, world: str | None) -> SheetNaming:
    for option, value, kind in (
        ("--id", sheet_id, Name),
        ("--language", language, Language),
        ("--world", world, Name),
    ):
        try:
            if value is not None:
                TypeAdapter[str](kind).validate_python(value)
        except ValidationError as error:
            raise InvalidRequest(explain_faults(error, kind, base=(option,))[0].sentence) from None
    return SheetNaming(id=sheet_id, language=language, world=world)


def _import_file(file: Path, card: CardFile, naming: SheetNaming) -> ImportResult:
    try:
        return import_file(card, naming)
    except GatewayError as error:
        raise type(error)(f"{file.name}: {error.detail}", field=error.field) from None


def _save_imported(file: Path, imported: ImportResult, to: Path, naming: SheetNaming, force: bool) -> Path:
    if isinstance(imported.content, Lorebook):
        book = imported.content
        path = to / f"{naming.id or build_slug(book.name or file.stem)}{_LOREBOOK}"
        content = book.model_dump_json(indent=2) + "\n"
    else:
        path = to / f"{imported.content.id}.yaml"
        content = dump_sheet(imported.content)
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
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)  # left by a command that was killed; as a link it would be followed
    with fresh.open("xb") as file:
        file.write(content)
    fresh.replace(path)


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


def _print_report(file: Path, card: CardFile, report: ImportReport, path: Path, as_json: bool) -> None:
    beside = tuple(f"{what} stays in {file.name}" for what in card.beside)
    if as_json:
        shown = {"file": str(file), "sheet": str(path), "container": card.container, **report.model_dump(mode="json")}
        typer.echo(json.dumps({**shown, "beside": beside}, ensure_ascii=False))
        return
    _console.print(Text.assemble((str(file), "bold"), f": {report.source} ({card.container})"), soft_wrap=True)
    _print_rows("→", [(one.field, one.to, one.times) for one in report.mapped], "green")
    _print_rows("is mended:", [(one.field, one.how, one.times) for one in report.mended], "yellow")
    _print_rows("is kept unchanged:", [(one.field, one.why, one.times) for one in report.kept], "yellow")
    _print_rows("is dropped:", [(one.field, one.why, one.times) for one in report.dropped], "red")
    for assumed in (*report.assumed, *beside):
        _console.print(Text.assemble(("  note ", "cyan"), assumed), soft_wrap=True)
    _console.print(Text.assemble("  written to ", (str(path), "bold")), soft_wrap=True)


def _print_rows(between: str, rows: Sequence[tuple[str, str, int]], style: str) -> None:
    for field, says, times in rows[:_MOST_LINES]:
        count = f" ({times} times)" if times > 1 else ""
        _console.print(
            Text.assemble("  ", (_escape_unprintable(field), style), f" {between} {_escape_unprintable(says)}{count}"),
            soft_wrap=True,
        )
    if len(rows) > _MOST_LINES:
        _console.print(f"  and {len(rows) - _MOST_LINES} more; --json lists them all")


def _escape_unprintable(text: str) -> str:
    """Escapes control characters of untrusted text."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _describe_error(file: Path | None, error: GatewayError | OSError) -> str:
    """The error's message, with the file's name once."""
    if isinstance(error, OSError):
        return describe_os_error(error) if error.filename else f"{file}: {explain_os_error(error)}"
    return _escape_unprintable(error.detail)


sheets.command("scenes")(draft_scenes)

# `check`.

SHIPPED = "character_sheets"


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
    """Check character sheets for errors, with the scenes, worlds and lorebooks in their folders.

    Exit code 1: errors found. Exit code 2: nothing to check."""
    try:
        files = _list_files(paths or [find_packaged_folder(SHIPPED)])
        surroundings = build_check_context(
            _read_own_scenes(files, scenes),
            (gate.flag for gate in GATES),
            _read_neighbours(files).values(),
            shipped=read_scenes(PACKAGED_SCENES),
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
    sheets: dict[str, CharacterSheet] = {}
    for file in {other for path in files for other in path.parent.glob("*.yaml")} - set(files):
        try:
            sheet = read_sheet(file)
        except (GatewayError, OSError):
            continue
        sheets[sheet.id] = sheet
    return sheets


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
            _console.print(Text(file, style="bold"), soft_wrap=True)
        _console.print(_format_finding(finding), soft_wrap=True)
    broken = sum(finding.level == "error" for finding in findings)
    style = "red" if broken else "yellow" if findings else "green"
    counts = (format_count(broken, "error"), format_count(len(findings) - broken, "warning"))
    _console.print(f"{read} read, {', '.join(counts)}", style=style, highlight=False)


def _format_finding(finding: SheetFinding) -> Text:
    line = f", line {finding.line}" if finding.line else ""
    field = (f"{finding.field}: ", "cyan") if finding.field else ""
    colour = "red" if finding.level == "error" else "yellow"
    return Text.assemble("  ", (f"{finding.level}{line}: ", colour), field, finding.message)


def format_count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
