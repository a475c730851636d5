"""`atropos-envs worlds`: loads a world file into a running gateway."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, NoReturn

import httpx
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from app.characters.loading import WORLDS
from app.characters.world_files import Timeline, WorldFile, list_world_files, read_world
from app.cli.address import build_gateway_headers, find_gateway_url
from app.cli.consoles import output_console
from app.cli.gateway_client import GatewayClient
from app.domain.errors import GatewayError, NotFound
from app.domain.lorebooks import Lorebook

worlds = typer.Typer(help="Load worlds into a running gateway.", no_args_is_help=True)
console = output_console()
errors = Console(stderr=True)

SAMPLE: Final = Path(__file__).parents[1] / "envs" / "npc_arena" / "worlds" / "reedgate.yaml"
EVENTS_A_REQUEST: Final = 500
BEST_SHOWN: Final = 5

Url = Annotated[str, typer.Option(help="Gateway URL.", show_default="from settings")]
ApiKey = Annotated[str, typer.Option(envvar="ATROPOS_ENVS_API_KEY", help="Gateway API key.")]


@dataclass(frozen=True)
class LoadedWorld:
    """Result of loading a world or branch."""

    world: str
    branch_of: str | None
    new: int
    known: int
    withdrawn: int
    lorebooks: int


@worlds.callback()
def callback() -> None:
    """Load worlds into a running gateway."""


@worlds.command()
def load(
    file: Annotated[
        Path,
        typer.Argument(
            help="World file, YAML or JSON, or a folder of characters with `worlds`; see docs/world_files.md."
        ),
    ],
    url: Url = "",
    api_key: ApiKey = "",
) -> None:
    """Load a world from a file: events, branches and lorebooks. Events that are already stored stay unchanged."""
    try:
        found = [read_world(path) for path in (_list_worlds(file) if file.is_dir() else (file,))]
    except (GatewayError, OSError) as error:
        _stop(str(error), 2)
    _load_and_report(found, url, api_key)


@worlds.command()
def sample(url: Url = "", api_key: ApiKey = "") -> None:
    """Load the sample world: a week at the Reedgate crossing, with a branch and a lorebook."""
    _load_and_report([read_world(SAMPLE)], url, api_key)


def _list_worlds(folder: Path) -> Sequence[Path]:
    files = list_world_files(folder)
    if not files:
        raise NotFound(f"{folder}: has no folder {WORLDS!r} with world files")
    return files


def _load_and_report(found: Sequence[WorldFile], url: str, api_key: str) -> None:
    url = url or find_gateway_url()
    headers = build_gateway_headers(api_key)
    try:
        told = [one for world in found for one in asyncio.run(_load_at(world, url, headers))]
    except GatewayError as error:
        _stop(str(error), 1)
    console.print(build_summary(told))
    console.print(f"Open {url}/view/worlds", highlight=False)


async def _load_at(world: WorldFile, url: str, headers: Mapping[str, str]) -> list[LoadedWorld]:
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
        return await load_world(GatewayClient(client), world)


async def load_world(gateway: GatewayClient, world: WorldFile) -> list[LoadedWorld]:
    """Loads the world and its branches in the order of the file. Raises on refusal; events accepted before that stay
    stored, and are recognised when the file is loaded again."""
    total = len(world.events) + sum(len(branch.events) for branch in world.branches)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        bar = progress.add_task("events", total=total)
        telling = _EventSender(gateway, progress, bar)
        loaded = [await telling.send_world(world.world, None, world.events, world.withdrawn, world.lorebooks)]
        for branch in world.branches:
            await gateway.branch_world(branch.world, world.world, branch.at)
            loaded.append(
                await telling.send_world(branch.world, world.world, branch.events, branch.withdrawn, branch.lorebooks)
            )
    return loaded


@dataclass(frozen=True)
class _EventSender:
    gateway: GatewayClient
    progress: Progress
    bar: TaskID

    async def send_world(
        self,
        world: str,
        branch_of: str | None,
        events: Timeline,
        withdrawn: tuple[str, ...],
        lorebooks: Mapping[str, Lorebook],
    ) -> LoadedWorld:
        new = known = 0
        for start in range(0, len(events), EVENTS_A_REQUEST):
            some = events[start : start + EVENTS_A_REQUEST]
            answer = await self.gateway.tell_events(world, some)
            new, known = new + answer.new, known + answer.known
            self.progress.update(self.bar, advance=len(some))
        for event in withdrawn:
            await self.gateway.withdraw_event(world, event)
        for name, book in lorebooks.items():
            await self.gateway.put_lorebook(world, name, book)
        return LoadedWorld(world, branch_of, new, known, len(withdrawn), len(lorebooks))


def build_summary(loaded: list[LoadedWorld]) -> Table:
    table = Table(Column("world", no_wrap=True), "branch of", "new events", "already stored", "withdrawn", "lorebooks")
    for one in loaded:
        counts = (one.new, one.known, one.withdrawn, one.lorebooks)
        table.add_row(one.world, one.branch_of or "", *map(str, counts))
    return table


@dataclass(frozen=True)
class MomentQuestion:
    """A line said to a character at a time in a world."""

    world: str
    character: str
    line: str
    as_of: datetime


async def build_retrieved_events_table(gateway: GatewayClient, moments: Sequence[MomentQuestion]) -> Table:
    """Retrieved events for each moment, best first, and the number of withheld ones."""
    table = Table("world, time", "retrieved, best first", "withheld", show_lines=True)
    for asked in moments:
        found = await gateway.explain_retrieval(asked.world, asked.character, asked.line, asked.as_of)
        best = [f"- {one.event.text}" for one in found.events if one.told][:BEST_SHOWN]
        held_back = Text(str(len(found.hidden)), justify="right")
        table.add_row(f"{asked.world}\n{asked.as_of:%A %H:%M}", Text("\n".join(best)), held_back)
    return table


def _stop(message: str, code: int) -> NoReturn:
    errors.print(message, style="red", highlight=False, markup=False)
    raise typer.Exit(code)
