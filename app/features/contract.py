"""What a feature is given, and what it hands the service.

A feature is one folder beside this file and one line in `app.main.features`. Its module `feature` has the object
FEATURE. Its module `store`, which imports any others that hold SQL, has its tables, and says when it is imported what
the kernel's store must do for them (`keep_groups`, `prepare_on_open`, `rebuild_after_copy`). Its module `commands`, if
it has one, has its commands. The kernel knows nothing of it: without the folder and the line everything else works, and
its tables stay as they are.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fastapi import APIRouter
from pydantic import SecretStr
from starlette.routing import BaseRoute

from app.characters.scenes import Scene
from app.characters.schema import CharacterCard, CharacterSheet
from app.characters.sheet_checks import SheetSurroundings
from app.domain.authored_files import ListedDraft
from app.domain.tasks import Message
from app.http.compat.kept_sessions import PortRoot
from app.http.viewer.rendering import MenuEntry, Renderer, ViewerParts
from app.inference.connection import KeyFile
from app.ports.environment import Clock, Observer, Programs, Workers
from app.ports.retrieval import Retriever
from app.service.catalogue import EnvironmentVersions
from app.service.gateway import Gateway
from app.settings import ServerSettings, Settings
from app.store.database import Database

StorageT = TypeVar("StorageT")
ServiceT = TypeVar("ServiceT")


class Storage(Protocol):
    """The open store."""

    def part(self, kind: Callable[[Database], StorageT]) -> StorageT:
        """A feature's own storage on the same database: one object of each class."""


class Characters(Protocol):
    """The characters of NPC Arena that are served; none while it is not."""

    @property
    def folder(self) -> Path: ...

    def replace_texts(self, list_written: Callable[[], Mapping[str, str]]) -> None:
        """From now on these texts stand in place of the folder's files, by file."""

    def list_cards(self) -> tuple[CharacterCard, ...]: ...

    def list_names(self) -> dict[str, str]:
        """By id."""

    def list_sheets(self) -> tuple[CharacterSheet, ...]: ...

    def list_homes(self) -> Mapping[str, tuple[str, ...]]:
        """Worlds in which each character is at home, the nearest first."""

    def list_scenes(self, character: str) -> tuple[Scene, ...]: ...

    def build_surroundings(self) -> SheetSurroundings:
        """What a sheet is checked beside."""

    async def build_prompt(self, file: str, text: str, scene: str | None) -> tuple[Message, ...]:
        """Of a sheet or of scenes that are being written. InvalidRequest naming what is wrong."""

    def replace_drafts(self, list_drafts: Callable[[], Awaitable[Sequence[ListedDraft]]]) -> None:
        """These are from now on what the caller keeps and has not published."""

    async def list_drafts(self) -> Sequence[ListedDraft]:
        """What the caller keeps; empty without an author's pages."""

    def replace_reload(self, reload: Callable[[], Awaitable[None]]) -> None:
        """How edited sheets are read again, in place of reading the folder alone."""


@dataclass(frozen=True)
class Kernel:
    """The service as it stands before its features are added."""

    settings: Settings
    gateway: Gateway
    storage: Storage
    characters: Characters
    environment_versions: EnvironmentVersions
    workers: Workers
    authors: Workers
    """The part of the workers that reads texts of authors."""
    programs: Programs
    observer: Observer
    clock: Clock
    read_server_key: Callable[[str, ServerSettings], SecretStr | KeyFile | None]
    """The key of a server of models, by where its settings stand. ValueError naming the setting of one that cannot be
    had."""
    refresh_examples: Callable[[], Awaitable[None]]
    """To be awaited after other characters are served."""
    not_for_training: frozenset[str]
    """Judges that are only for trying the system."""
    services: dict[type, object] = field(default_factory=dict)
    """What the features that were added so far offer those that stand on them."""

    def offer(self, service: object) -> None:
        self.services[type(service)] = service

    def find(self, kind: type[ServiceT]) -> ServiceT:
        """LookupError when the feature that offers it was not added before."""
        service = self.services.get(kind)
        if not isinstance(service, kind):
            raise LookupError(f"no feature offers {kind.__name__}: see `needs` of the features in app.main.features")
        return service


@dataclass(frozen=True)
class FeatureParts:
    """What a feature adds to the service."""

    routers: Sequence[APIRouter] = ()
    polled: Sequence[BaseRoute] = ()
    """Routes that are matched before all others, since trainers poll them by the millisecond."""
    pages: Sequence[Callable[[Renderer], APIRouter]] = ()
    menu: Sequence[MenuEntry] = ()
    viewer: ViewerParts = field(default_factory=ViewerParts)
    """What it shows on pages of the kernel."""
    held: Sequence[object] = ()
    """Those that are a ManagedResource are opened before the first request and closed after the last one."""
    load: Callable[[], Awaitable[None]] | None = None
    """Awaited before data sets are read; it tries again by itself."""
    lasting: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Run for as long as the service does."""
    close: Callable[[], Awaitable[None]] | None = None
    ports: Mapping[int, PortRoot] = field(default_factory=dict)
    """Ports of its own, and the paths that they lead to."""
    unpacks: tuple[str, ...] = ()
    """Path prefixes of routes that decompress bodies themselves."""


@dataclass(frozen=True)
class Feature:
    """`needs` are the names of the features that it stands on: without them it is not there either."""

    name: str
    build: Callable[[Kernel], FeatureParts]
    needs: tuple[str, ...] = ()
    retrievers: Mapping[str, Callable[[Storage], Retriever]] = field(default_factory=dict)
    """By the name that `rag.retriever` chooses one by."""
    templates: Path | None = None
    """Folder of its pages' templates."""
