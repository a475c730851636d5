"""Versions of an environment's data: the one a task was made from, and the one an epoch of a run uses."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection

from pydantic import BaseModel

from app.domain.errors import EnvironmentUnavailable
from app.domain.runs import Stream
from app.ports.store import SheetStore
from app.service.catalogue import Catalogue, ServedEnvironment
from app.service.store_memory import StoreMemory

log = logging.getLogger(__name__)

STARTING_POLL_SECONDS = 0.2
REMEMBERED_EPOCHS = 20_000
REMEMBERED_EDITIONS = 1_000


class SheetVersions:
    """Character sheets can be edited while the service runs. Each version is stored before the first task made from it
    is handed out, so that every replica finds it, also after a restart."""

    def __init__(self, catalogue: Catalogue, sheets: SheetStore) -> None:
        self._catalogue = catalogue
        self._sheets = sheets
        self._begun = StoreMemory[tuple[str, str, int], str](REMEMBERED_EPOCHS)
        """The data digest that each epoch of a stream began with."""
        self._kept = StoreMemory[tuple[str, str], bool](REMEMBERED_EDITIONS)
        self._lost: set[tuple[str, str]] = set()
        """Versions that cannot be rebuilt here: their sheets are unknown, or other data changed too."""
        self._making = asyncio.Lock()

    def get_current(self, name: str) -> ServedEnvironment:
        """NotFound for an unknown name; EnvironmentUnavailable with the reason for one that cannot serve."""
        return self._catalogue.get_environment_or_current(name)

    def require_started(self, name: str) -> None:
        """EnvironmentUnavailable while it is not known yet if the environment can serve."""
        if self._catalogue.is_starting(name):
            raise EnvironmentUnavailable(f"{name}: {self._catalogue.explain_unavailability(name)}")

    def scores_at_once(self, name: str) -> bool:
        """Whether the environment has started, and awaits nothing when it scores a group that is not large."""
        classes = self._catalogue.classes
        return name in classes and classes[name].scores_at_once and not self._catalogue.is_starting(name)

    async def wait_until_started(self, name: str) -> None:
        while self._catalogue.is_starting(name):  # noqa: ASYNC110  # it is opened in threads
            await asyncio.sleep(STARTING_POLL_SECONDS)

    async def get_version(self, name: str, data_digest: str) -> ServedEnvironment:
        """The version with this data digest, or the current one if it cannot be rebuilt. Raises as `present` does, and
        StoreUnavailable."""
        found = self._catalogue.get_environment_or_current(name, data_digest)
        edition = (name, data_digest)
        if found.data_digest == data_digest or edition in self._lost or not found.environment.sheet_texts():
            return found
        async with self._making:
            found = self._catalogue.get_environment_or_current(name, data_digest)
            if found.data_digest == data_digest:
                return found
            texts = await self._sheets.get(name, data_digest)
            made = None if texts is None else await asyncio.to_thread(_rebuild_version, found, texts)
            if made is None or made.data_digest != data_digest:
                _add_bounded(self._lost, edition)
                return found
            self._catalogue.remember(made)
            return made

    async def get_epoch_versions(
        self, present: ServedEnvironment, stream: Stream, params: BaseModel, epochs: Collection[int]
    ) -> dict[int, ServedEnvironment]:
        """The version for each epoch: the one that the epoch began with in this run. The current one without a run, or
        if the number of tasks has changed, since positions then mean other tasks."""
        if epochs and present.environment.sheet_texts():
            await self._store_character_sheets(present)
            if stream.run:
                begun = await self._begin_epochs(stream, epochs, present.data_digest)
                return {
                    epoch: await self._resolve_epoch_version(present, stream, params, begun[epoch]) for epoch in epochs
                }
        return dict.fromkeys(epochs, present)

    async def _resolve_epoch_version(
        self, present: ServedEnvironment, stream: Stream, params: BaseModel, begun: str
    ) -> ServedEnvironment:
        former = await self.get_version(present.name, begun)
        sizes = {hosted.environment.size(stream.split, params) for hosted in (former, present)}
        return former if len(sizes) == 1 else present

    async def _store_character_sheets(self, present: ServedEnvironment) -> None:
        edition = (present.name, present.data_digest)
        if not self._kept.get_recent(edition):
            await self._sheets.keep(*edition, present.environment.sheet_texts())
            self._kept.put(edition, True)

    async def _begin_epochs(self, stream: Stream, epochs: Collection[int], data_digest: str) -> dict[int, str]:
        begun: dict[int, str] = {}
        to_store: defaultdict[str, list[int]] = defaultdict(list)
        for epoch in sorted(epochs):
            key = (stream.run, stream.digest, epoch)
            if recent := self._begun.get_recent(key):
                begun[epoch] = recent
            else:
                to_store[self._begun.get(key) or data_digest].append(epoch)
        for version, some in to_store.items():
            begun |= await self._sheets.begin_epochs(stream, some, version)
            for epoch in some:
                self._begun.put((stream.run, stream.digest, epoch), begun[epoch])
        return begun


def _rebuild_version(present: ServedEnvironment, texts: tuple[str, ...]) -> ServedEnvironment | None:
    try:
        return ServedEnvironment.from_environment(present.environment.with_sheets(texts))
    except ValueError:
        log.warning("earlier character sheets can no longer be read: %s", present.name, exc_info=True)
        return None


def _add_bounded(known: set[tuple[str, str]], edition: tuple[str, str]) -> None:
    if len(known) >= REMEMBERED_EDITIONS:
        known.clear()
    known.add(edition)
