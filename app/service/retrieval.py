"""Asking the retriever: a few queries at a time, and what is wrong with one told of the caller's own field."""

import asyncio
from collections.abc import Sequence

from app.domain.tasks import Context, ContextQuery
from app.errors import InvalidRequest
from app.ports import Retriever

AT_ONCE = 16
"""Queries of one service that are under way at the same time."""


class Retrieval:
    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._room = asyncio.Semaphore(AT_ONCE)

    async def of(self, query: ContextQuery, field: str) -> Context:
        """RetrieverFailed; InvalidRequest naming `<field>.<part of the query>`."""
        try:
            async with self._room:
                return await self._retriever.retrieve(query)
        except InvalidRequest as error:
            raise InvalidRequest(error.detail, field=f"{field}.{error.field}") from error

    async def of_all(self, queries: Sequence[ContextQuery], field: str) -> list[Context]:
        """In the order of the queries. The first failure ends the rest."""
        asked = [asyncio.ensure_future(self.of(query, field)) for query in queries]
        try:
            return await asyncio.gather(*asked)
        finally:
            for one in asked:
                one.cancel()
