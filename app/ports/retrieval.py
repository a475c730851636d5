"""Events and lorebooks of worlds, and the retrieval of passages for prompts."""

from typing import Final, Protocol, runtime_checkable

from app.domain.errors import InvalidRequest
from app.domain.tasks import Context, ContextQuery
from app.domain.values import suggest
from app.domain.worlds import (
    RetrievalExplanation,
    World,
)

_NEAR_WORLDS: Final = 500
"""Among so many worlds the one that somebody may have meant is looked for."""


class Retriever(Protocol):
    """Retrieves passages. Operators can plug in a class by the entry-point group `atropos_environments.retrievers`."""

    async def retrieve(self, query: ContextQuery) -> Context:
        """RetrieverFailed when it cannot answer; an empty context means that nothing was found. InvalidRequest naming
        `world` for an unknown world."""


class NoRetriever:
    """Used when the service stores no worlds."""

    async def retrieve(self, query: ContextQuery) -> Context:
        raise InvalidRequest(f"there is no world {query.world!r}: this service stores no worlds", field="world")


@runtime_checkable
class ExplainingRetriever(Protocol):
    """A retriever that can explain its results."""

    async def explain(self, query: ContextQuery) -> RetrievalExplanation:
        """The result with reasons. Its `context` is what `retrieve` returns for the same query."""


class WorldListing(Protocol):
    """The part of `EventStore` that suggestions need."""

    async def list_worlds(self, limit: int, after: str | None, *, closed: bool = False) -> list[World]: ...


async def suggest_world(name: str, worlds: WorldListing) -> str:
    """The end of a sentence about an unknown world, as `suggest` gives it: a near name among the open worlds."""
    return suggest(name, [one.name for one in await worlds.list_worlds(_NEAR_WORLDS, None)])
