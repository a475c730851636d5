"""What authors wrote is taken up although something failed before, and stays so whatever fails afterwards."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import pytest

from app.characters.sheet_checks import build_surroundings
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable, InvalidRequest
from app.domain.values import utc_now
from app.features.authoring.model import AuthoredRevision
from app.features.authoring.service import AuthoringService, CharacterSource
from app.features.authoring.store import AuthoredStore
from app.ports.environment import Datasets, NoWorkers
from app.service.catalogue import Catalogue
from tests.service.test_sheet_versions import Toy


class OneText(AuthoredStore):
    """Another replica stores revisions of one sheet."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def count(self) -> int:
        return len(self.texts)

    async def load_newest(self) -> dict[str, AuthoredRevision]:
        file, text = "hob.yaml", self.texts[-1]
        newest = AuthoredRevision(
            file=file, revision=len(self.texts), text=text, note="", author="", at=utc_now(), digest=None
        )
        return {file: newest}


class Fragile(Toy):
    """Serves as many sheets as `folder` has, or fails."""

    broken: ClassVar[bool] = False

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        if cls.broken:
            raise EnvironmentUnavailable("the disk is full")
        return super().open(datasets)


class Replica:
    def __init__(self, folder: Path) -> None:
        class Kind(Fragile):
            """Its sheets are this replica's alone."""

        self.kind = Kind
        self.store = OneText()
        self.catalogue = Catalogue({"toy": self.kind})
        self.catalogue.open(ConfiguredDatasets({}))
        source = CharacterSource("toy", folder, lambda: build_surroundings((), ()))
        self.service = AuthoringService(source, self.catalogue, self.store, NoWorkers(), self.fail)

    async def fail(self) -> None:
        raise ZeroDivisionError

    def store_text(self, text: str) -> None:
        self.store.texts.append(text)
        self.kind.folder = (text,)

    def list_served(self) -> Sequence[str]:
        return self.catalogue.get_environment_or_current("toy").environment.sheet_texts()

    async def poll(self, times: int) -> str:
        """What each poll did: nothing, took texts up, or failed."""
        told = ""
        for _ in range(times):
            try:
                told += "+" if await self.service.poll() else "."
            except InvalidRequest:
                told += "!"
        return told


async def test_texts_that_could_not_be_taken_up_are_tried_again_ever_less_often(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.service.load()
    replica.kind.broken = True
    replica.store_text("one")
    told: list[object] = [await replica.poll(16)]
    replica.store_text("two")
    told += [await replica.poll(4), replica.list_served()]
    replica.kind.broken = False
    told += [await replica.poll(5), replica.list_served()]
    assert told == ["!!.!...!.......!", "!!.!", ("hob",), "...+.", ("two",)]


async def test_a_reload_that_fails_is_tried_again(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.service.load()
    replica.kind.broken = True
    replica.store_text("one")
    with pytest.raises(InvalidRequest, match="the disk is full"):
        await replica.service.reload()
    replica.kind.broken = False
    assert [await replica.poll(2), replica.list_served()] == ["+.", ("one",)]


def test_only_files_inside_the_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    folder = tmp_path / "sheets"
    folder.mkdir()
    service = Replica(folder).service
    assert asyncio.run(service.read_all()) == []
    (folder / "hob.yaml").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InvalidRequest, match=r"hob\.yaml: not a regular file in this folder"):
        asyncio.run(service.read_all())
