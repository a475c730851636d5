"""The retriever of a service that has no worlds yet."""

from app.domain.tasks import Context, ContextQuery
from app.errors import InvalidRequest


class NoWorlds:
    """Refuses a named world in words, since an empty context would look like a world where nothing happened."""

    async def retrieve(self, query: ContextQuery) -> Context:
        raise InvalidRequest(f"there is no world {query.world!r}: nothing has been told here", field="params.world")
