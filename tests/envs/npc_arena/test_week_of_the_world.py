"""A week of the world that ships, hour by hour: a prompt holds what its character could know, and nothing else."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.characters.archives import read_world
from app.characters.loading import read_scenes, read_sheets
from app.characters.schema import CharacterSheet
from app.domain.tasks import ContextQuery, Task
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
from app.features.worlds.store import EventStore
from app.features.worlds.store_worlds import LorebookStore
from app.main.store import Store
from app.rag.world_retriever import WorldRetriever
from app.toolkit.templates import find_packaged_folder
from tests.architecture.test_house import ROOT
from tests.support.store_cases import using

ARENA = ROOT / "app/envs/npc_arena"
FILE = ARENA / "worlds" / "reedgate.yaml"

BEGIN: Final = datetime(1312, 4, 4, tzinfo=UTC)
HOURS: Final = [BEGIN + timedelta(hours=hour) for hour in range(-1, 7 * 24 + 7)]

AT_ONCE: Final = 32

PEOPLE: Final[Mapping[str, frozenset[str]]] = {
    "hob_tarrant": frozenset({"hob_tarrant", "reedgate_ferry", "ferry_house", "marsh_folk"}),
    "mosswether": frozenset({"mosswether", "hollow_oak", "marsh_folk"}),
    "ottoline_vesk": frozenset({"ottoline_vesk", "saltern_house", "levy_guard"}),
    "stranger": frozenset({"stranger"}),
}
"""The names by which an event's visibility may mean each of them. The stranger has no other."""

Known = dict[tuple[str, str, str], list[str]]
"""Ids of events by world, character and hour."""


@dataclass(frozen=True)
class Line:
    """A world, or a branch with the past that it shares, straight from the file."""

    world: str
    events: Sequence[Mapping[str, Any]]

    def known(self, names: frozenset[str], now: datetime) -> set[str]:
        """The rules, one by one. Nothing here is the service's."""
        heard = [event for event in self.events if moment(event["time"]) <= now and meant(event, names)]
        outdated = {former for event in heard for former in listed(event.get("supersedes", []))}
        return {event["id"] for event in heard if event["id"] not in outdated and holds(event, now)}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def listed(ids: str | list[str]) -> list[str]:
    return [ids] if isinstance(ids, str) else ids


def meant(event: Mapping[str, Any], names: frozenset[str]) -> bool:
    visibility = event.get("visibility", "public")
    return visibility == "public" or any(name in names for name in visibility)


def holds(event: Mapping[str, Any], now: datetime) -> bool:
    begins, ends = event.get("valid_from", event["time"]), event.get("valid_to")
    return moment(begins) <= now and (ends is None or now < moment(ends))


@cache
def lines() -> tuple[Line, ...]:
    said = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    past = [event for event in said["events"] if event["id"] not in said["withdrawn"]]
    found = [Line(said["world"], past)]
    for branch in said["branches"]:
        shared = [event for event in past if moment(event["time"]) <= moment(branch["at"])]
        own = [event for event in [*shared, *branch["events"]] if event["id"] not in branch["withdrawn"]]
        found.append(Line(branch["world"], own))
    return tuple(found)


@cache
def texts() -> dict[str, str]:
    """Of everything that was ever told, withdrawn or not, by id."""
    said = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    told = [*said["events"], *(event for branch in said["branches"] for event in branch["events"])]
    return {event["id"]: event["text"] for event in told}


@cache
def arena() -> NpcArena:
    sheets = [one for one in read_sheets(find_packaged_folder("character_sheets")) if one.meta.world == "drowned_coast"]
    return NpcArena([*sheets, stranger(sheets[0])], read_scenes(ARENA / "scenes"))


def stranger(sheet: CharacterSheet) -> CharacterSheet:
    """The same person in no circle and under a name that nothing mentions."""
    meta = sheet.meta.model_copy(update={"id": "stranger"})
    return sheet.model_copy(
        update={"meta": meta, "identity": sheet.identity.model_copy(update={"circles": (), "faction": None})}
    )


@cache
def places() -> dict[str, int]:
    """By character, the index of a scene that is without events of its own."""
    found: dict[str, int] = {}
    for index in range(arena().size("train", NpcArenaParams())):
        task = arena().task("train", index, NpcArenaParams())
        cast = arena().find_cast(task)
        if cast is not None and not cast.scene.visible and not cast.scene.withheld and cast.scene.event is None:
            found.setdefault(cast.sheet.meta.id, index)
    return found


def asked(hours: Sequence[datetime], room: int | None) -> Iterator[tuple[tuple[str, str, str], Task, ContextQuery]]:
    """Every world, character and hour, with the task, and so many tokens for passages; a task's own number for None."""
    for line in lines():
        for character in PEOPLE:
            for hour in hours:
                task = arena().task("train", places()[character], NpcArenaParams(world=line.world, as_of=hour))
                query = arena().query(task)
                assert query is not None
                given = query if room is None else query.model_copy(update={"budget_tokens": room})
                yield (line.world, character, hour.isoformat()), task, given


async def told(store: Store) -> WorldRetriever:
    """The file, as a game tells it: out of order, with what is taken back, and the branch at the end."""
    world = read_world(FILE)
    await store.part(EventStore).add_events(world.world, world.events)
    for branch in world.branches:
        await store.part(EventStore).branch(branch.world, world.world, branch.at)
        await store.part(EventStore).add_events(branch.world, branch.events)
        for event in branch.withdrawn:
            await store.part(EventStore).withdraw(branch.world, event)
    for event in world.withdrawn:
        await store.part(EventStore).withdraw(world.world, event)
    for name, book in world.lorebooks.items():
        await store.part(LorebookStore).put(world.world, name, book)
    return WorldRetriever(store.part(EventStore), store.part(LorebookStore))


async def in_prompts(store: Store, hours: Sequence[datetime], room: int | None) -> Known:
    retriever = await told(store)
    questions = list(asked(hours, room))
    found: Known = {}
    for start in range(0, len(questions), AT_ONCE):
        some = questions[start : start + AT_ONCE]
        contexts = await asyncio.gather(*(retriever.retrieve(query) for _, _, query in some))
        for (key, task, _), context in zip(some, contexts, strict=True):
            prompt = arena().place(task, context).messages[0].content or ""
            found[key] = sorted(event for event, text in texts().items() if text in prompt)
    return found


def could_be_known() -> Known:
    return {
        (line.world, character, hour.isoformat()): sorted(line.known(names, hour))
        for line in lines()
        for character, names in PEOPLE.items()
        for hour in HOURS
    }


@pytest.mark.slow
def test_a_prompt_holds_what_its_character_could_know_and_nothing_else(store_url: str) -> None:
    assert using(store_url, lambda store: in_prompts(store, HOURS, 100_000)) == could_be_known()


def test_where_room_is_short_it_holds_a_part_of_that_and_the_gravest(tmp_path: Path) -> None:
    """By world, character and hour: what is too much, and what is missing although nobody speaks of anything else."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    found, known = using(url, lambda store: in_prompts(store, HOURS[::24], None)), could_be_known()
    grave = {event["id"] for line in lines() for event in line.events if event.get("importance", 5) >= 9}
    wrong = {key: (set(ids) - set(known[key]), (grave & set(known[key])) - set(ids)) for key, ids in found.items()}
    assert {key: both for key, both in wrong.items() if any(both)} == {}
