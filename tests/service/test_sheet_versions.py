"""Former sheets, made again from what the store holds."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import pytest
from pydantic import BaseModel

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import Conflict
from app.domain.runs import Run, Stream
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import NoParams, Split, digest, utc_now
from app.envs.npc_arena.environment import NpcArena
from app.ports.environment import Datasets, Environment, Tools
from app.service import catalogue as store_memory
from app.service.catalogue import KEPT_VERSIONS, Catalogue, EnvironmentVersions, ServedEnvironment
from app.store.tasks import SheetStore
from app.toolkit.templates import find_packaged_folder


class Toy(Environment):
    """As many tasks as it has sheets. What is no sheet says `broken`."""

    name: ClassVar[str] = "toy"
    version: ClassVar[str] = "1"
    folder: ClassVar[tuple[str, ...]] = ("hob",)

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        return cls(cls.folder)

    @property
    def digests(self) -> dict[str, str]:
        return {"sheets": digest(self._texts)}

    def sheet_texts(self) -> tuple[str, ...]:
        return self._texts

    def with_sheets(self, texts: Sequence[str]) -> Self:
        if "broken" in texts:
            raise ValueError("not a sheet")
        return type(self)(texts)

    def size(self, split: Split, params: BaseModel) -> int:
        return len(self._texts)

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return Task(messages=(Message(role="user", content=self._texts[index]),))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [Score.exact(True)] * len(group)


@dataclass
class RememberedSheets(SheetStore):
    """A store that counts what it is asked."""

    editions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    begun: dict[int, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    async def keep(self, environment: str, data_digest: str, texts: Sequence[str]) -> None:
        self.calls.append("keep")
        self.editions[data_digest] = tuple(texts)

    async def get(self, environment: str, data_digest: str) -> tuple[str, ...] | None:
        self.calls.append("get")
        await asyncio.sleep(0)
        return self.editions.get(data_digest)

    async def begin_epochs(self, stream: Stream, epochs: Sequence[int], data_digest: str) -> dict[int, str]:
        self.calls.append("begin")
        return {epoch: self.begun.setdefault(epoch, data_digest) for epoch in epochs}


def service(store: RememberedSheets, *folder: str) -> tuple[Catalogue, EnvironmentVersions]:
    """As a process has it that was started over these sheets."""
    kind = type("Toy", (Toy,), {"folder": folder})
    catalogue = Catalogue({"toy": kind})
    catalogue.open(ConfiguredDatasets({}))
    return catalogue, EnvironmentVersions(catalogue, store)


def stream(run: str) -> Stream:
    return Stream(run=run, environment="toy", split="train", params={}, select={}, digest="s")


def edition_of(*texts: str) -> str:
    return digest({"sheets": digest(texts)})


async def dealt(
    catalogue: Catalogue, editions: EnvironmentVersions, run: str, *epochs: int
) -> dict[int, tuple[str, ...]]:
    by_epoch = await editions.get_epoch_versions(
        catalogue.get_environment_or_current("toy"), stream(run), NoParams(), set(epochs)
    )
    return {epoch: hosted.environment.sheet_texts() for epoch, hosted in by_epoch.items()}


async def test_sheets_are_kept_once_before_anything_is_dealt_from_them() -> None:
    store = RememberedSheets()
    here = service(store, "hob")
    assert [
        await dealt(*here, run, *epochs) for run, epochs in (("", (0,)), ("a", (0, 1)), ("a", (1,)), ("", (5,)))
    ] == [{0: ("hob",)}, {0: ("hob",), 1: ("hob",)}, {1: ("hob",)}, {5: ("hob",)}]
    assert (store.calls, store.editions) == (["keep", "begin"], {edition_of("hob"): ("hob",)})


async def test_what_the_store_has_lost_is_kept_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch goes on with the sheets that it began with."""
    store = RememberedSheets()
    monkeypatch.setattr(store_memory, "RECHECK_SECONDS", 0.0)
    hob, sour = edition_of("hob"), edition_of("sour hob")
    catalogue, editions = service(store, "hob")
    await dealt(catalogue, editions, "a", 0)
    store.editions.clear()
    store.begun.clear()
    await dealt(catalogue, editions, "a", 0)
    kept = (dict(store.editions), dict(store.begun))
    changed = ServedEnvironment.from_environment(
        catalogue.get_environment_or_current("toy").environment.with_sheets(("sour hob",))
    )
    store.begun.clear()
    by_epoch = await editions.get_epoch_versions(changed, stream("a"), NoParams(), {0, 1})
    assert (kept, {epoch: one.environment.sheet_texts() for epoch, one in by_epoch.items()}, store.begun) == (
        ({hob: ("hob",)}, {0: hob}),
        {0: ("hob",), 1: ("sour hob",)},
        {0: hob, 1: sour},
    )


async def test_an_epoch_that_another_process_began_is_dealt_from_what_it_began_with() -> None:
    store = RememberedSheets()
    await dealt(*service(store, "hob"), "a", 0)
    assert await dealt(*service(store, "sour hob"), "a", 0, 1) == {0: ("hob",), 1: ("sour hob",)}


async def test_more_sheets_join_at_once() -> None:
    store = RememberedSheets()
    await dealt(*service(store, "hob"), "a", 0)
    assert await dealt(*service(store, "hob", "ottoline"), "a", 0) == {0: ("hob", "ottoline")}


async def test_a_former_edition_is_made_once_for_all_who_ask() -> None:
    store = RememberedSheets({edition_of("hob"): ("hob",)})
    _, editions = service(store, "sour hob")
    assert (
        {(await one).data_digest for one in [editions.get_version("toy", edition_of("hob")) for _ in range(3)]},
        store.calls,
    ) == ({edition_of("hob")}, ["get"])


@pytest.mark.parametrize("texts", [None, ("broken",), ("something else",)])
async def test_what_cannot_be_made_again_is_looked_for_once(texts: tuple[str, ...] | None) -> None:
    store = RememberedSheets({} if texts is None else {"former": texts})
    _, editions = service(store, "hob")
    assert ([(await editions.get_version("toy", "former")).data_digest for _ in range(2)], store.calls) == (
        [edition_of("hob")] * 2,
        ["get"],
    )


async def test_what_was_pushed_out_of_memory_is_made_again() -> None:
    names = [str(number) for number in range(KEPT_VERSIONS + 1)]
    store = RememberedSheets({edition_of(name): (name,) for name in names})
    _, editions = service(store, "hob")
    asked = [*names, names[0], names[-1]]
    assert [(await editions.get_version("toy", edition_of(name))).environment.sheet_texts() for name in asked] == [
        (name,) for name in [*names, names[0], names[-1]]
    ]
    assert store.calls == ["get"] * (len(names) + 1)


def test_every_character_that_is_shipped_survives_the_way_into_the_store_and_back() -> None:
    arena = NpcArena.read(find_packaged_folder("character_sheets"))
    again = arena.with_sheets(arena.sheet_texts())
    assert (again.digests, again.sheets, again.origin) == (arena.digests, arena.sheets, arena.origin)


class Worded(Toy):
    """Has data beside its sheets, which changes with the service."""

    word: ClassVar[str] = "then"

    @property
    def digests(self) -> dict[str, str]:
        return {**super().digests, "prompt": digest(self.word)}


async def test_a_run_that_pinned_its_sheets_keeps_them_whatever_else_changes() -> None:
    store = RememberedSheets()

    def enter(word: str, *folder: str) -> tuple[ServedEnvironment, EnvironmentVersions]:
        catalogue = Catalogue({"toy": type("Kind", (Worded,), {"word": word, "folder": folder})})
        catalogue.open(ConfiguredDatasets({}))
        return catalogue.get_environment_or_current("toy"), EnvironmentVersions(catalogue, store)

    run = Run(name="a", seed=0, characters="pinned", created_at=utc_now())
    first, versions = enter("then", "hob")
    told = [(await versions.get_pinned(run, first)).environment.sheet_texts()]
    run = run.model_copy(update={"pins": (first.build_pin(run.options, None),)})
    later, versions = enter("now", "sour hob")
    twice = [await versions.get_pinned(run, later) for _ in range(2)]
    told += [one.environment.sheet_texts() for one in twice]
    store.editions.clear()
    _, versions = enter("now", "sour hob")
    with pytest.raises(Conflict, match="run 'a' pinned can no longer be read"):
        await versions.get_pinned(run, later)
    assert (told, twice[0] is twice[1]) == ([("hob",)] * 3, True)
    assert twice[0].digests["prompt"] == later.digests["prompt"]
