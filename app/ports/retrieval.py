"""What is told of worlds, and what is retrieved from it into prompts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from app.domain.errors import InvalidRequest
from app.domain.lorebooks import Lorebook
from app.domain.tasks import Context, ContextQuery
from app.domain.worlds import Event, EventSearch, EventsTold, Explained, Findings, World


class Retriever(Protocol):
    """What an operator may bring a class for, by the entry-point group `atropos_environments.retrievers`."""

    async def retrieve(self, query: ContextQuery) -> Context:
        """RetrieverFailed when it cannot answer; an empty context means that there is nothing to tell. InvalidRequest
        naming `world` when there is no such world."""


class NoRetriever:
    """Where nothing is kept of any world."""

    async def retrieve(self, query: ContextQuery) -> Context:
        raise InvalidRequest(f"there is no world {query.world!r}: this service stores no worlds", field="world")


@runtime_checkable
class ExplainingRetriever(Protocol):
    """A retriever that can say why."""

    async def explain(self, query: ContextQuery) -> Explained:
        """Its `context` is what `retrieve` gives for the same query."""


class Events(Protocol):
    """What was told of worlds. A branch sees its parent's events up to the moment at which it branched, and its
    parent's lorebooks. Whatever writes is durable on return."""

    async def tell(self, world: str, events: Sequence[Event]) -> EventsTold:
        """All or none. A world that nobody named before begins. Conflict naming `events[i].id` when the id was told
        before, to this world or as part of its past, with another content."""

    async def withdraw(self, world: str, event_id: str) -> bool:
        """It never happened here, nor in what branches off this world; where it came from a parent, it stays there.
        Whether there was such an event; telling it again changes nothing. NotFound without the world."""

    async def branch(self, world: str, parent: str, at: datetime) -> World:
        """Repeats give the same world. NotFound without the parent; Conflict when `world` is another one already, or
        too many branches lie between it and the first."""

    async def world(self, name: str) -> World | None: ...

    async def worlds(self, limit: int, after: str | None) -> list[World]:
        """By name."""

    async def newest(self, world: str, limit: int, before: tuple[datetime, str] | None = None) -> list[Event]:
        """By time and id, downwards, of its past too, without what was withdrawn. `before`: the last of the page
        before."""

    async def search(self, wanted: EventSearch) -> Findings | None:
        """None without the world. Filters before it ranks: what may not be told is in `hidden` at most, and there only
        what is near: by the terms, by time, by importance."""


class Lorebooks(Protocol):
    """Lorebooks of worlds, by name within their world."""

    async def put(self, world: str, name: str, book: Lorebook) -> None:
        """Durable on return, in the place of an earlier one; a world that nobody named before begins."""

    async def remove(self, world: str, name: str) -> bool: ...

    async def of(self, world: str) -> dict[str, Lorebook]:
        """By name, in the order of the names; those of its past too, which its own of the same name replace."""
