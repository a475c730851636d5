"""Routes for the lorebooks of worlds."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Body, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.models import Example
from pydantic import BeforeValidator, ValidationError

from app.characters.cards.lorebook_import import read_lorebook, require_few_entries
from app.characters.cards.report import ImportReport
from app.domain.errors import InvalidRequest, NotFound
from app.domain.lorebooks import Lorebook
from app.domain.values import FiniteJson, Frozen, Name
from app.domain.worlds import ListedWriting, WrittenLorebook
from app.http.web.api_keys import CallerName
from app.http.web.bodies import JsonRoute
from app.http.web.openapi import document_problems
from app.service.gateway import Gateway

WorldName = Annotated[Name, Path(description="The world's name.", examples=["drowned_coast"])]
BookName = Annotated[Name, Path(description="The lorebook's name.", examples=["coast"])]
RevisionNumber = Annotated[int, Path(ge=1, le=2**31, description="The revision's number.", examples=[1])]
RevisionLimit = Annotated[int, Query(ge=1, le=200)]
RevisionBefore = Annotated[int | None, Query(ge=1, le=2**31)]

LOREBOOK_EXAMPLES: Final = {
    "coast": Example(
        summary="What people of a coast know when it comes up",
        value={
            "description": "The Drowned Coast.",
            "entries": [
                {
                    "id": "toll",
                    "keys": ["toll", "levy"],
                    "content": "The salt levy was doubled after the Spring Drowning.",
                }
            ],
        },
    )
}


_FOREIGN_BOOK: Final = frozenset({"spec", "recursive_scanning"})
_FOREIGN_ENTRY: Final = frozenset({"insertion_order", "use_regex", "selective"})
"""Keys that only lorebooks of other tools have."""


def _count_entries(given: object) -> object:
    if isinstance(given, dict):
        require_few_entries(given)
    return given


GivenLorebook = Annotated[Lorebook | dict[str, FiniteJson], BeforeValidator(_count_entries)]
"""One of ours or of another tool."""


class LorebookList(Frozen):
    lorebooks: dict[str, Lorebook]
    """By name, including those that a branch shares with its parent's past."""


class StoredLorebook(Frozen):
    name: str
    entries: int
    read_as: ImportReport | None = None
    """For a lorebook of another tool: which fields were converted, and which are only kept."""


class RemovedLorebook(Frozen):
    removed: str
    """The lorebook's name."""


class WritingPage(Frozen):
    """Newest first; the first one of all is in force unless it is withdrawn. Pass `next_before` as `before`."""

    revisions: tuple[ListedWriting, ...]
    next_before: int | None


def build_writing_page(found: Sequence[ListedWriting], limit: int) -> WritingPage:
    following = found[-1].revision if len(found) == limit and found[-1].revision > 1 else None
    return WritingPage(revisions=tuple(found), next_before=following)


def create_lorebooks_router(gateway: Gateway) -> APIRouter:
    router = APIRouter(prefix="/worlds/{world}/lorebooks", tags=["worlds"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 503)
    looks = document_problems(401, 404, 422, 503)
    world_service = gateway.worlds

    @router.get("", summary="A world's lorebooks", responses=looks)
    async def lorebooks(world: WorldName) -> LorebookList:
        return LorebookList(lorebooks=await world_service.list_lorebooks(world))

    @router.get("/{book}", summary="One lorebook", responses=looks)
    async def lorebook(world: WorldName, book: BookName) -> Lorebook:
        books = await world_service.list_lorebooks(world)
        if book not in books:
            raise NotFound(f"{world!r} has no lorebook {book!r}")
        return books[book]

    @router.put("/{book}", summary="Store a lorebook, replacing an earlier one", responses=refusals)
    async def put(
        world: WorldName,
        book: BookName,
        given: Annotated[GivenLorebook, Body(openapi_examples=LOREBOOK_EXAMPLES)],
        author: CallerName,
    ) -> StoredLorebook:
        read, report = (given, None) if isinstance(given, Lorebook) else await asyncio.to_thread(_parse_lorebook, given)
        await world_service.put_lorebook(world, book, read, author=author)
        return StoredLorebook(name=book, entries=len(read.entries), read_as=report)

    @router.delete("/{book}", summary="Remove a lorebook", responses=document_problems(401, 404, 409, 422, 503))
    async def remove(world: WorldName, book: BookName, author: CallerName) -> RemovedLorebook:
        await world_service.remove_lorebook(world, book, author)
        return RemovedLorebook(removed=book)

    @router.get("/{book}/revisions", summary="Who wrote the revisions of a lorebook, and when", responses=looks)
    async def revisions(
        world: WorldName, book: BookName, limit: RevisionLimit = 50, before: RevisionBefore = None
    ) -> WritingPage:
        return build_writing_page(await world_service.list_lorebook_revisions(world, book, limit, before), limit)

    @router.get("/{book}/revisions/{revision}", summary="One revision of a lorebook", responses=looks)
    async def revision(world: WorldName, book: BookName, revision: RevisionNumber) -> WrittenLorebook:
        return await world_service.get_lorebook_revision(world, book, revision)

    return router


def _parse_lorebook(given: Mapping[str, FiniteJson]) -> tuple[Lorebook, ImportReport | None]:
    """Parses a lorebook of another tool; for one of ours, reports what is invalid."""
    if _is_foreign(given):
        return _parse_foreign_lorebook(given)
    try:
        return Lorebook.model_validate(given), None
    except ValidationError as error:
        told = error.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in told]) from error


def _parse_foreign_lorebook(given: Mapping[str, FiniteJson]) -> tuple[Lorebook, ImportReport]:
    try:
        return read_lorebook(dict(given))
    except InvalidRequest as error:
        field = None if error.field is None else re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", error.field)
        raise InvalidRequest(error.detail, field=field) from error


def _is_foreign(given: Mapping[str, FiniteJson]) -> bool:
    entries = given.get("entries")
    if not isinstance(entries, list):
        return bool(_FOREIGN_BOOK & given.keys()) or isinstance(entries, dict)
    return bool(_FOREIGN_BOOK & given.keys()) or any(
        isinstance(entry, dict) and _FOREIGN_ENTRY & entry.keys() for entry in entries
    )
