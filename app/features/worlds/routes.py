"""Routes of worlds: add events, explain what is retrieved, build the prompt of a moment in a game; and their lorebooks,
which are ours or of another tool.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.models import Example
from pydantic import Field, GetJsonSchemaHandler, JsonValue, RootModel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from app.characters.authored_texts import read_book
from app.characters.cards.fields import ImportReport
from app.characters.loading import MAX_FILE_BYTES
from app.domain.errors import InvalidRequest, NotFound, TooLarge
from app.domain.values import Frozen, Name
from app.domain.worlds import (
    DocumentKind,
    EarlierText,
    Event,
    EventId,
    EventsAdded,
    GameTime,
    Lorebook,
    RetrievalExplanation,
    World,
    WrittenText,
)
from app.features.worlds.service import (
    BranchRequest,
    EventsToAdd,
    GameContext,
    Moment,
    RetrievalQuestion,
    WorldService,
    build_cursor,
    list_worlds_within,
    parse_cursor,
)
from app.http.web.api_keys import CallerBounds, CallerName, needs
from app.http.web.openapi import document_problems
from app.http.web.routes import JsonRoute
from app.ports.environment import Workers
from app.toolkit.texts import run_in_turn

# Lorebooks.

_WorldName = Annotated[Name, Path(description="The world's name.", examples=["drowned_coast"])]
_BookName = Annotated[Name, Path(description="The lorebook's name.", examples=["coast"])]
_LOREBOOK_EXAMPLES: Final = {
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


_MOST_BYTES: Final = MAX_FILE_BYTES
"""Of a lorebook, as of a file with one."""


class GivenLorebook(RootModel[dict[str, JsonValue]]):
    """One of ours or of another tool."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        kinds = [handler(Lorebook.__pydantic_core_schema__), {"type": "object", "additionalProperties": True}]
        return {"description": "One of ours or of another tool.", "anyOf": kinds}


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


def _create_lorebooks_router(world_service: WorldService, workers: Workers) -> APIRouter:
    router = APIRouter(prefix="/worlds/{world}/lorebooks", tags=["worlds"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 503)
    looks = document_problems(401, 404, 422, 503)

    @router.get("", summary="A world's lorebooks", responses=looks)
    @needs("read", "world")
    async def lorebooks(world: _WorldName) -> LorebookList:
        return LorebookList(lorebooks=await world_service.list_lorebooks(world))

    @router.get("/{book}", summary="One lorebook", responses=looks)
    @needs("read", "world")
    async def lorebook(world: _WorldName, book: _BookName) -> Lorebook:
        books = await world_service.list_lorebooks(world)
        if book not in books:
            raise NotFound(f"{world!r} has no lorebook {book!r}")
        return books[book]

    @router.put("/{book}", summary="Store a lorebook, replacing an earlier one", responses=refusals)
    @needs("author", "world")
    async def put(
        world: _WorldName,
        book: _BookName,
        given: Annotated[GivenLorebook, Body(openapi_examples=_LOREBOOK_EXAMPLES)],
        author: CallerName,
    ) -> StoredLorebook:
        read, report = await _read_lorebook(workers, given)
        await world_service.put_lorebook(world, book, read, author=author)
        return StoredLorebook(name=book, entries=len(read.entries), read_as=report)

    @router.delete("/{book}", summary="Remove a lorebook", responses=document_problems(401, 404, 409, 422, 503))
    @needs("author", "world")
    async def remove(world: _WorldName, book: _BookName, author: CallerName) -> RemovedLorebook:
        await world_service.remove_lorebook(world, book, author)
        return RemovedLorebook(removed=book)

    return router


async def _read_lorebook(workers: Workers, given: GivenLorebook) -> tuple[Lorebook, ImportReport | None]:
    text = await run_in_turn("authors", given.model_dump_json)
    if len(text.encode()) > _MOST_BYTES:
        raise TooLarge(f"the lorebook is larger than {_MOST_BYTES} bytes")
    read = await read_book(workers, text)
    if read.faults:
        raise RequestValidationError([fault.model_dump() for fault in read.faults])
    return await run_in_turn("authors", Lorebook.model_validate_json, read.book), read.report


# Worlds and their events.

_BranchName = Annotated[Name, Path(description="The branch's name.", examples=["drowned_coast-2"])]
_EventName = Annotated[EventId, Path(description="The event's id.", examples=["rope"])]
_Limit = Annotated[int, Query(ge=1, le=500)]
_ListClosed = Annotated[bool, Query(description="Whether closed worlds are listed too.")]
_EVENT_EXAMPLES: Final = {
    "two": Example(
        summary="A public event and one that only one character knows",
        value={
            "events": [
                {
                    "id": "rope",
                    "time": "1312-04-03T09:15:00Z",
                    "kind": "accident",
                    "text": "The ferry's rope broke at Reedgate; nobody crosses until it is spliced.",
                    "importance": 7,
                },
                {
                    "id": "bridge",
                    "time": "1312-04-03T11:00:00Z",
                    "text": "The Margravine signed the order for a toll bridge at Reedgate.",
                    "visibility": ["ottoline_vesk"],
                    "leak_terms": ["toll bridge"],
                    "importance": 8,
                },
            ]
        },
    )
}
_CORRECTION_EXAMPLES: Final = {
    "rope": Example(
        summary="What was told of the rope was wrong",
        value={
            "id": "rope",
            "time": "1312-04-03T09:15:00Z",
            "kind": "accident",
            "text": "The ferry's rope frayed at Reedgate; it crosses with half its load.",
            "importance": 5,
        },
    )
}
_BRANCH_EXAMPLES: Final = {
    "reload": Example(
        summary="Load a game that was saved at ten in the morning",
        value={"parent": "drowned_coast", "at": "1312-04-03T10:00:00Z"},
    )
}
_CHANGE_EXAMPLES: Final = {"remember": Example(summary="Let characters remember", value={"memory": True})}
_MOMENT_EXAMPLES: Final = {
    "line": Example(
        summary="The player says something",
        value={"character": "hob_tarrant", "conversation": [{"role": "user", "content": "Can you take me across?"}]},
    )
}


class EventPage(Frozen):
    """Newest first. Pass `next_before` as `before` for the next page; null on the last page."""

    events: tuple[Event, ...]
    next_before: str | None


class WorldPage(Frozen):
    """By name. Pass `next_after` as `after` for the next page; null on the last page."""

    worlds: tuple[World, ...]
    next_after: str | None


class WorldChange(Frozen):
    memory: bool
    """Whether its characters remember, in `/play`, what each player said to them. False forgets it all."""


class CorrectedEvent(Frozen):
    corrected: str
    """The event's id."""


class WithdrawnEvent(Frozen):
    withdrawn: str
    """The event's id."""


class EventsQuery(Frozen):
    """Query parameters: a page of events; or with `q` or `character`, the content of a prompt."""

    q: Annotated[str | None, Field(max_length=4000, description="What the player says.")] = None
    character: Annotated[
        Name | None,
        Field(description="The character's sheet id; without it, someone who knows only public events."),
    ] = None
    as_of: Annotated[
        GameTime | None, Field(description="Game time, with `q` or `character`; default: the newest event's.")
    ] = None
    before: Annotated[str | None, Field(max_length=200, description="`next_before` of the previous page.")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50


def create_worlds_router(world_service: WorldService, workers: Workers) -> APIRouter:
    """All routes for worlds, events and lorebooks."""
    router = APIRouter()
    for part in (
        _create_world_router(world_service),
        _create_events_router(world_service),
        _create_lorebooks_router(world_service, workers),
        _create_earlier_router(world_service, "events", "event"),
        _create_earlier_router(world_service, "lorebooks", "lorebook"),
    ):
        router.routes.extend(part.routes)
    return router


def _create_world_router(world_service: WorldService) -> APIRouter:
    router = APIRouter(prefix="/worlds", tags=["worlds"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 503)
    looks = document_problems(401, 404, 422, 503)

    @router.get("", summary="Every world that is not closed, by name", responses=document_problems(401, 422, 503))
    @needs("read", "handler")
    async def worlds(
        bounds: CallerBounds, after: Name | None = None, limit: _Limit = 100, closed: _ListClosed = False
    ) -> WorldPage:
        page = await list_worlds_within(world_service, bounds, limit, after, closed=closed)
        return WorldPage(worlds=tuple(page), next_after=page[-1].name if len(page) == limit else None)

    @router.get("/{world}", summary="One world", responses=looks)
    @needs("read", "world")
    async def one_world(world: _WorldName) -> World:
        return await world_service.get_world(world)

    @router.put(
        "/{world}", summary="Branch off another world at a moment, as when a saved game is loaded", responses=refusals
    )
    @needs("play", "world")
    async def branch(
        world: _BranchName,
        branching: Annotated[BranchRequest, Body(openapi_examples=_BRANCH_EXAMPLES)],
        bounds: CallerBounds,
    ) -> World:
        bounds.require_world(branching.parent, "parent")
        return await world_service.branch(world, branching)

    @router.patch(
        "/{world}",
        summary="Choose whether characters of this world remember what players say to them",
        responses=refusals,
    )
    @needs("author", "world")
    async def change(
        world: _WorldName, change: Annotated[WorldChange, Body(openapi_examples=_CHANGE_EXAMPLES)]
    ) -> World:
        """Without memories, those that the world has are forgotten."""
        return await world_service.set_memory(world, change.memory)

    @router.delete(
        "/{world}",
        summary="Close a world: it takes nothing more, and prompts cannot use it; what was judged stays",
        responses=looks,
    )
    @needs("author", "world")
    async def close(world: _WorldName) -> World:
        return await world_service.close(world)

    @router.post(
        "/{world}/reopen",
        summary="Open a closed world again, as it was when it was closed",
        responses=document_problems(401, 403, 404, 422, 503),
    )
    @needs("admin", "closed")
    async def reopen(world: _WorldName) -> World:
        return await world_service.reopen(world)

    @router.post(
        "/{world}/context",
        summary="Build the prompt of a moment in a game, as in training; nothing is stored",
        responses=refusals,
    )
    @needs("play", "world")
    async def context(
        world: _WorldName, moment: Annotated[Moment, Body(openapi_examples=_MOMENT_EXAMPLES)]
    ) -> GameContext:
        return await world_service.build_context(world, moment)

    return router


def _create_events_router(world_service: WorldService) -> APIRouter:
    router = APIRouter(prefix="/worlds/{world}/events", tags=["worlds"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 503)
    looks = document_problems(401, 404, 409, 422, 503)

    @router.post("", summary="Add events", responses=refusals)
    @needs("play", "world")
    async def tell(
        world: _WorldName, told: Annotated[EventsToAdd, Body(openapi_examples=_EVENT_EXAMPLES)], author: CallerName
    ) -> EventsAdded:
        return await world_service.add_events(world, told, author)

    @router.get(
        "",
        summary="The newest events; or with `q` or `character`, what is retrieved and why",
        responses=looks,
    )
    @needs("read", "world")
    async def events(world: _WorldName, looking: Annotated[EventsQuery, Query()]) -> EventPage | RetrievalExplanation:
        if looking.q is None and looking.character is None:
            return await _list_events(world_service, world, looking)
        if looking.before is not None:
            raise InvalidRequest("cannot be combined with q or character", field="query.before")
        try:
            return await world_service.explain(world, _build_question(looking))
        except InvalidRequest as error:
            raise InvalidRequest(error.detail, field=f"query.{error.field}") from error

    @router.put(
        "/{event}",
        summary="Correct an event, or tell a withdrawn one again; what was judged keeps the former one",
        responses=refusals,
    )
    @needs("play", "world")
    async def correct(
        world: _WorldName,
        event: _EventName,
        corrected: Annotated[Event, Body(openapi_examples=_CORRECTION_EXAMPLES)],
        author: CallerName,
    ) -> CorrectedEvent:
        await world_service.correct(world, event, corrected, author=author)
        return CorrectedEvent(corrected=event)

    @router.delete("/{event}", summary="Withdraw an event, as if it never happened", responses=looks)
    @needs("play", "world")
    async def withdraw(world: _WorldName, event: _EventName, author: CallerName) -> WithdrawnEvent:
        await world_service.withdraw(world, event, author)
        return WithdrawnEvent(withdrawn=event)

    return router


def _build_question(looking: EventsQuery) -> RetrievalQuestion:
    return RetrievalQuestion(text=looking.q or "", character=looking.character, as_of=looking.as_of)


async def _list_events(world_service: WorldService, world: str, looking: EventsQuery) -> EventPage:
    if looking.as_of is not None:
        raise InvalidRequest("needs q or character", field="query.as_of")
    before = None if looking.before is None else parse_cursor(looking.before)
    if before is None and looking.before is not None:
        raise InvalidRequest("must be `next_before` of the previous page", field="query.before")
    page = await world_service.list_events(world, looking.limit, before)
    return EventPage(events=tuple(page), next_before=build_cursor(page, looking.limit))


# Earlier texts of events and lorebooks.

_TextNumber = Annotated[int, Path(ge=1, le=2**31, description="The earlier text's number.", examples=[1])]


class EarlierTextPage(Frozen):
    """The latest replaced first. Pass `next_before` as `before` for the next page; null on the last page."""

    texts: tuple[EarlierText, ...]
    next_before: int | None


class RestoredText(Frozen):
    restored: str
    """The event's id, or the lorebook's name."""


def _create_earlier_router(world_service: WorldService, folder: str, kind: DocumentKind) -> APIRouter:
    path = f"/worlds/{{world}}/{folder}/{{name}}/earlier"
    router = APIRouter(prefix=path, tags=["worlds"], route_class=JsonRoute)
    looks = document_problems(401, 404, 422, 503)
    of_event = kind == "event"
    of_what = "an event" if of_event else "a lorebook"
    called: Any = Path(
        description="The event's id." if of_event else "The lorebook's name.",
        examples=["rope" if of_event else "coast"],
    )

    @router.get("", summary=f"Earlier texts of {of_what}: who wrote and who replaced them, and when", responses=looks)
    @needs("author", "world")
    async def earlier(
        world: _WorldName,
        name: EventId = called,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        before: Annotated[int | None, Query(ge=1, le=2**31)] = None,
    ) -> EarlierTextPage:
        page = await world_service.list_earlier(world, kind, name, limit, before)
        return EarlierTextPage(texts=tuple(page), next_before=page[-1].number if len(page) == limit else None)

    @router.get("/{number}", summary=f"One earlier text of {of_what}", responses=looks)
    @needs("author", "world")
    async def earlier_text(world: _WorldName, number: _TextNumber, name: EventId = called) -> WrittenText:
        return await world_service.get_earlier(world, kind, name, number)

    @router.post(
        "/{number}/restore",
        summary=f"Put an earlier text of {of_what} in force again",
        responses=document_problems(401, 404, 409, 422, 503),
    )
    @needs("author", "world")
    async def restore(
        world: _WorldName, number: _TextNumber, author: CallerName, name: EventId = called
    ) -> RestoredText:
        await world_service.restore(world, kind, name, number, author)
        return RestoredText(restored=name)

    return router
