"""`atropos-envs worlds`: worlds from files into a running gateway, and the sample world of the demo."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer
from pydantic import JsonValue
from rich.table import Column, Table
from rich.text import Text

from app.characters.archives import Timeline, WorldFile, list_world_files, read_world
from app.characters.loading import WORLDS
from app.domain.errors import GatewayError, NotFound
from app.domain.values import Frozen
from app.domain.worlds import Event, EventsAdded, Lorebook, RetrievalExplanation
from app.envs.npc_arena.environment import PACKAGED_WORLDS
from app.terminal.client import ApiKey, GatewayClient, Url, find_gateway_url, open_gateway
from app.terminal.consoles import (
    AsJson,
    Bar,
    DemoPart,
    PageLink,
    describe_error,
    output_console,
    print_json,
    show_bars,
    stop,
    stop_on_errors,
)

worlds = typer.Typer(help="Load worlds into a running gateway.", no_args_is_help=True)

SAMPLE: Final = PACKAGED_WORLDS / "reedgate.yaml"
EVENTS_A_REQUEST: Final = 500
_BEST_SHOWN: Final = 5
"""Of the events that a character retrieves."""


class LoadedWorld(Frozen):
    """Result of loading a world or branch."""

    world: str
    branch_of: str | None
    new: int
    known: int
    withdrawn: int
    lorebooks: int


class LoadedWorlds(Frozen):
    """What `worlds load --json` prints."""

    worlds: tuple[LoadedWorld, ...]


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
    as_json: AsJson = False,
) -> None:
    """Load a world from a file: events, branches and lorebooks. Events that are already stored stay unchanged."""
    try:
        files = [read_world(path) for path in (_list_worlds(file) if file.is_dir() else (file,))]
    except (GatewayError, OSError) as error:
        stop(describe_error(error), 2)
    _load_and_report(files, url, api_key, as_json=as_json)


@worlds.command()
def sample(url: Url = "", api_key: ApiKey = "", as_json: AsJson = False) -> None:
    """Load the sample world: a week at the Reedgate crossing, with a branch and a lorebook."""
    _load_and_report([read_world(SAMPLE)], url, api_key, as_json=as_json)


def _list_worlds(folder: Path) -> Sequence[Path]:
    files = list_world_files(folder)
    if not files:
        raise NotFound(f"{folder}: has no folder {WORLDS!r} with world files")
    return files


def _load_and_report(found: Sequence[WorldFile], url: str, api_key: str, *, as_json: bool) -> None:
    url = url or find_gateway_url()
    with stop_on_errors(1):
        loaded = [one for world in found for one in asyncio.run(_load_at(world, url, api_key))]
    if as_json:
        print_json(LoadedWorlds(worlds=tuple(loaded)))
        return
    console = output_console()
    console.print(_build_summary(loaded))
    console.print(f"Open {url}/view/worlds", highlight=False)


async def _load_at(world: WorldFile, url: str, api_key: str) -> list[LoadedWorld]:
    async with open_gateway(url, api_key, 120) as gateway:
        return await load_world(gateway, world)


async def load_world(gateway: GatewayClient, world: WorldFile) -> list[LoadedWorld]:
    """Loads the world and its branches in the order of the file. Raises on refusal; events accepted before that stay
    stored, and are recognised when the file is loaded again."""
    total = len(world.events) + sum(len(branch.events) for branch in world.branches)
    with show_bars(transient=True) as bars:
        telling = _EventSender(gateway, bars.add("events", total))
        loaded = [await telling.send_world(world.world, None, world.events, world.withdrawn, world.lorebooks)]
        for branch in world.branches:
            await _branch_world(gateway, branch.world, world.world, branch.at)
            loaded.append(
                await telling.send_world(branch.world, world.world, branch.events, branch.withdrawn, branch.lorebooks)
            )
    return loaded


@dataclass(frozen=True)
class _EventSender:
    gateway: GatewayClient
    bar: Bar

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
            answer = await _tell_events(self.gateway, world, some)
            new, known = new + answer.new, known + answer.known
            self.bar.advance(len(some))
        for event in withdrawn:
            await _withdraw_event(self.gateway, world, event)
        for name, book in lorebooks.items():
            await _put_lorebook(self.gateway, world, name, book)
        return LoadedWorld(
            world=world,
            branch_of=branch_of,
            new=new,
            known=known,
            withdrawn=len(withdrawn),
            lorebooks=len(lorebooks),
        )


def _build_summary(loaded: Sequence[LoadedWorld]) -> Table:
    table = Table(Column("world", no_wrap=True), "branch of", "new events", "already stored", "withdrawn", "lorebooks")
    for one in loaded:
        counts = (one.new, one.known, one.withdrawn, one.lorebooks)
        table.add_row(one.world, one.branch_of or "", *map(str, counts))
    return table


@dataclass(frozen=True)
class _MomentQuestion:
    """A line said to a character at a time in a world."""

    world: str
    character: str
    line: str
    as_of: datetime


class RetrievedEvents(Frozen):
    """What a character retrieves at a time in a world."""

    world: str
    as_of: datetime
    events: tuple[str, ...]
    """Texts of the events that go into the prompt, best first."""
    withheld: int
    """Events that the character cannot know."""


async def _explain_moments(gateway: GatewayClient, moments: Sequence[_MomentQuestion]) -> list[RetrievedEvents]:
    explained = []
    for asked in moments:
        answer = await _explain_retrieval(gateway, asked.world, asked.character, asked.line, asked.as_of)
        texts = tuple(one.event.text for one in answer.events if one.told)
        explained.append(
            RetrievedEvents(world=asked.world, as_of=asked.as_of, events=texts, withheld=len(answer.hidden))
        )
    return explained


def _build_retrieved_events_table(retrieved: Sequence[RetrievedEvents]) -> Table:
    table = Table("world, time", "retrieved, best first", "withheld", show_lines=True)
    for one in retrieved:
        best = "\n".join(f"- {text}" for text in one.events[:_BEST_SHOWN])
        table.add_row(f"{one.world}\n{one.as_of:%A %H:%M}", Text(best), Text(str(one.withheld), justify="right"))
    return table


# The sample world in `atropos-envs demo`.

_LINE = "Is the ferry crossing? And what of the Patience, and of the lads aboard her?"
_MOMENTS = tuple(
    _MomentQuestion(world, "hob_tarrant", _LINE, datetime(1312, 4, day, hour, tzinfo=UTC))
    for world, day, hour in (("reedgate", 6, 12), ("reedgate", 8, 6), ("reedgate-wednesday", 8, 6))
)
"""Before and after a rope breaks, and the same time in a branch where it did not break."""


async def add_to_demo(gateway: GatewayClient) -> DemoPart:
    """Loads the sample world. What a character retrieves at some times, when it is asked about the ferry."""
    loaded = await load_world(gateway, read_world(SAMPLE))
    retrieved = await _explain_moments(gateway, _MOMENTS)
    return DemoPart(
        printed=[
            _build_summary(loaded),
            f'Hob Tarrant is asked: "{_LINE}"',
            _build_retrieved_events_table(retrieved),
        ],
        data={"worlds": tuple(loaded), "retrieved": tuple(retrieved)},
        links=[PageLink("/view/worlds/reedgate", "a world: what happened when, and who may know of it")],
    )


# Requests.


async def _tell_events(gateway: GatewayClient, world: str, events: Sequence[Event]) -> EventsAdded:
    body: list[JsonValue] = [event.model_dump(mode="json", exclude_defaults=True) for event in events]
    return EventsAdded.model_validate_json(
        await gateway.send_request("POST", f"/worlds/{world}/events", {"events": body})
    )


async def _withdraw_event(gateway: GatewayClient, world: str, event: str) -> None:
    await gateway.send_request("DELETE", f"/worlds/{world}/events/{event}")


async def _branch_world(gateway: GatewayClient, world: str, parent: str, at: datetime) -> None:
    await gateway.send_request("PUT", f"/worlds/{world}", {"parent": parent, "at": at.isoformat()})


async def _put_lorebook(gateway: GatewayClient, world: str, name: str, book: Lorebook) -> None:
    body = book.model_dump(mode="json", exclude_defaults=True)
    await gateway.send_request("PUT", f"/worlds/{world}/lorebooks/{name}", body)


async def _explain_retrieval(
    gateway: GatewayClient, world: str, character: str, line: str, as_of: datetime
) -> RetrievalExplanation:
    query = httpx.QueryParams(q=line, character=character, as_of=as_of.isoformat())
    return RetrievalExplanation.model_validate_json(
        await gateway.send_request("GET", f"/worlds/{world}/events?{query}")
    )
