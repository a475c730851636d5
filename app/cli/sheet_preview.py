"""`atropos-envs sheets try`: previews a character sheet with a line or scene."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.characters.loading import SCENES, find_lorebook_beside, read_sheet
from app.cli.consoles import output_console, stop_on_errors
from app.cli.judge_setup import open_judge_panels
from app.cli.preview_report import SheetTrial, print_trial
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Completion
from app.domain.values import FiniteJson
from app.envs.npc_arena.environment import NpcArena, NpcArenaDraft
from app.envs.npc_arena.sheet_drafts import DraftEvent
from app.inference.chat import ChatPolicy
from app.judges.gates.gate_registry import GATES
from app.ports.retrieval import NoRetriever
from app.ports.sandbox import NoPrograms, NoWorkers
from app.service.catalogue import Catalogue
from app.service.draft_building import DraftBuilder
from app.service.previews import PreviewOptions, PreviewService
from app.service.retrieval import RetrievalService
from app.settings import Settings, read_settings
from app.telemetry.null_observer import NullObserver


def try_sheet(
    sheet: Annotated[str, typer.Argument(help="Sheet file (YAML or JSON) or character id.")],
    line: Annotated[str | None, typer.Option(help="Player's line.")] = None,
    scene: Annotated[str | None, typer.Option(help="Scene id, instead of a line.")] = None,
    scenes: Annotated[
        Path | None,
        typer.Option(help="Folder of the character's own scenes.", show_default="the folder `scenes` beside the sheet"),
    ] = None,
    event: Annotated[list[str] | None, typer.Option(help="Event that the character knows about; repeatable.")] = None,
    reply: Annotated[list[str] | None, typer.Option(help="Reply to judge; repeat to compare several.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="URL of an OpenAI-compatible server to sample replies from.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name on that server.")] = None,
    count: Annotated[int, typer.Option(min=1, max=16, help="Number of replies to sample.")] = 4,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable with the server's API key.")] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Show the full system prompt.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
        print_trial(output_console(), trial, whole_prompt=prompt)


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
        raise ValueError("--policy needs --model")
    key = None if key_variable is None else settings.read_secret(key_variable)
    if key_variable is not None and key is None:
        raise ValueError(f"--api-key-env: the environment variable {key_variable} is not set")
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
            programs=NoPrograms(),
            observer=NullObserver(),
            gates=gates,
        )
        completions = [Completion(text=reply) for reply in replies]
        if policy is not None:
            made = trier.build_draft(NpcArena.name, draft)
            completions += await policy.answer(made.environment, made.task, count)
        options = PreviewOptions(completions=tuple(completions))
        judged = await trier.preview(NpcArena.name, draft, options)
        return SheetTrial(**dict(judged), replies=options.completions)
