"""Worlds of a game: events are told, what is retrieved is explained, and the prompt of a moment is built.

A moment is what a game sends when a character is to speak. It becomes a task in the way that a training task does, so
the prompt is the one that training has seen.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from app.characters.actions import DoneCalls, GameTool
from app.characters.casting import Staging
from app.characters.lorebooks import refuse_unusable
from app.characters.memories import EarlierTalk
from app.characters.schema import SAID, Text
from app.domain.access import KeyBounds
from app.domain.errors import Conflict, InvalidRequest, NotFound, RequestRefused
from app.domain.tasks import ContextQuery, Message, Passage, ToolSpec
from app.domain.values import Frozen, Name
from app.domain.worlds import (
    DocumentKind,
    EarlierText,
    Event,
    EventId,
    EventsAdded,
    GameTime,
    KnownEvent,
    Lorebook,
    RetrievalExplanation,
    World,
    WrittenText,
)
from app.features.worlds.store import EventStore
from app.features.worlds.store_worlds import EarlierTextStore, LorebookStore
from app.ports.environment import Drafted
from app.ports.retrieval import suggest_world
from app.service.access import list_within
from app.service.catalogue import Catalogue
from app.service.retrieval import DraftBuilder, PlacedDraft, RetrievalService
from app.toolkit.texts import run_in_turn

_MAX_EVENTS = 1000
"""In one request."""


class EventsToAdd(Frozen):
    """Events to add to a world. Either all are added or none."""

    events: Annotated[tuple[Event, ...], Field(min_length=1, max_length=_MAX_EVENTS)]


class BranchRequest(Frozen):
    """Creates a world that shares another world's past, such as a reloaded saved game."""

    parent: Name
    at: GameTime | None = None
    """Game time up to which the past is shared, inclusive. Null means the parent's newest event."""


class RetrievalQuestion(Frozen):
    """A query for the passages that would be retrieved, with reasons."""

    text: Annotated[str, Field(max_length=4000)] = ""
    """The last thing said. Without it events are ranked by time and importance only."""
    character: Name | None = None
    """The character who asks, with its circles. Without one, only public events are visible."""
    as_of: GameTime | None = None
    """Game time. Null means the time of the newest event."""


class ConversationTurn(Frozen):
    """A message in OpenAI's chat format: `user` is the player, `assistant` the character."""

    role: Literal["user", "assistant"]
    content: Annotated[Text, Field(exclude_if=lambda text: not text)] = ""
    """May be missing beside `calls` alone."""
    calls: DoneCalls = ()
    """What the character did with its line, and what the game answered."""

    @model_validator(mode="after")
    def _require_something(self) -> Self:
        if not self.content and not self.calls:
            raise ValueError("content: a line needs words or calls")
        if self.calls and self.role == "user":
            raise ValueError("calls: the character alone makes calls")
        return self

    def describe(self) -> dict[str, JsonValue]:
        """As a line of a scene."""
        said: dict[str, JsonValue] = {"text": self.content} if self.content else {}
        calls: list[JsonValue] = [call.model_dump(mode="json") for call in self.calls]
        return {"speaker": "player" if self.role == "user" else "npc", **said, "calls": calls}


class Moment(Staging):
    """A moment of a game that a character responds to."""

    character: Name
    """Id of a served character sheet."""
    conversation: Annotated[tuple[ConversationTurn, ...], Field(max_length=200)] = ()
    """The conversation so far, in turns, the player first. (The character's greeting is part of its prompt.) It ends
    with the player's line to answer or, if `event` is set, with the character's last line."""
    event: Text | None = None
    """Something the character witnesses and responds to, instead of a player's line."""
    begun: Annotated[ConversationTurn | None, SAID] = None
    """Calls that the character has already made in answer, with what it said. The reply goes on behind them."""
    tools: Annotated[
        Annotated[tuple[GameTool, ...], Field(max_length=64)] | None, Field(exclude_if=lambda tools: tools is None)
    ] = None
    """Tools of the game, in OpenAI's format, beside the actions of the sheet; an empty list offers those alone, null
    offers none. A tool takes the place of an action of the same name."""

    @model_validator(mode="after")
    def _require_alternating_turns(self) -> Self:
        if any(line.role != ("user", "assistant")[turn % 2] for turn, line in enumerate(self.conversation)):
            raise ValueError("a conversation alternates between user and assistant, user first")
        if len(self.conversation) % 2 != (self.event is None):
            raise ValueError("a conversation ends with user, or with assistant where an event is given")
        if self.begun is not None and not self.begun.calls:
            raise ValueError("begun: wanted is a line of the character with calls")
        return self


class GameContext(Frozen):
    """The prompt for a moment of a game, exactly as a training task would have it."""

    messages: tuple[Message, ...]
    tools: Annotated[tuple[ToolSpec, ...], SAID] = ()
    """For the model, beside the messages: actions of the sheet, and tools of the game."""
    passages: tuple[Passage, ...]
    """Retrieved passages, in prompt order."""
    as_of: datetime | None
    """Game time of the retrieval; null in a world without events."""
    failure: str | None = None
    """Why retrieval failed, when the settings allow prompts without passages."""


@dataclass(frozen=True)
class PlacedMoment:
    """The task of a moment, with and without what was retrieved."""

    made: Drafted
    placed: PlacedDraft


class WorldService:
    """Operations on worlds. `environment` is the environment whose characters live in them."""

    def __init__(
        self,
        *,
        environment: str,
        catalogue: Catalogue,
        drafting: DraftBuilder,
        events: EventStore,
        lorebooks: LorebookStore,
        texts: EarlierTextStore,
        retrieval: RetrievalService,
    ) -> None:
        self._environment = environment
        self._catalogue = catalogue
        self._drafting = drafting
        self._events = events
        self._lorebooks = lorebooks
        self._texts = texts
        self._retrieval = retrieval

    async def add_events(self, world: str, told: EventsToAdd, author: str = "") -> EventsAdded:
        """Adds events; durable on return and visible to later retrievals. Creates the world if it does not exist.
        Conflict naming `events[i].id` for an id that exists with different content."""
        return await self._events.add_events(world, told.events, author)

    async def find_event(self, world: str, event_id: EventId) -> KnownEvent | None:
        return await self._events.find_event(world, event_id)

    async def correct(
        self, world: str, event_id: EventId, event: Event, based_on: str | None = None, author: str = ""
    ) -> None:
        """Replaces an event, also a withdrawn one. What was made from the former one, and branches that were made
        before, keep that. InvalidRequest naming `body.id` for another id; NotFound for an unknown world or event;
        Conflict where the known event has another digest than `based_on`."""
        if event.id != event_id:
            raise InvalidRequest(f"must be the id of the path, {event_id!r}", field="body.id")
        await self.get_world(world)
        if not await self._events.correct(world, event, based_on, author):
            raise NotFound(
                f"there is no event {event_id!r} in world {world!r}: new events are posted to /worlds/{world}/events"
            )

    async def withdraw(self, world: str, event_id: EventId, author: str = "") -> None:
        """Removes the event from this world and its branches. Withdrawing it twice is not an error. NotFound for an
        unknown world or event."""
        await self.get_world(world)
        if not await self._events.withdraw(world, event_id, author):
            raise NotFound(f"there is no event {event_id!r} in world {world!r}")

    async def branch(self, world: str, branching: BranchRequest) -> World:
        """Creates a branch; repeats return the same world. NotFound without the parent; InvalidRequest naming `at` when
        the parent has no events and no time is given; Conflict when `world` exists with another parent or time, or
        the branches are nested too deeply."""
        parent = await self.get_world(branching.parent)
        at = branching.at or parent.newest
        if at is None:
            raise InvalidRequest(
                f"world {branching.parent!r} has no events: set the time up to which its past is shared", field="at"
            )
        return await self._events.branch(world, branching.parent, at)

    async def close(self, world: str) -> World:
        """Closes a world: later writes to it and new branches of it are a Conflict, and prompts cannot use it. What was
        made from it stays, and its branches go on. Closing it twice is not an error. NotFound."""
        closed = await self._events.close(world)
        if closed is None:
            raise await _build_unusable_world_error(world, self._events)
        return closed

    async def reopen(self, world: str) -> World:
        """Opens a closed world again; one that is open stays so. NotFound."""
        opened = await self._events.reopen(world)
        if opened is None:
            raise await _build_unusable_world_error(world, self._events)
        return opened

    async def set_memory(self, world: str, kept: bool) -> World:
        """Whether its characters remember what players say to them. Without memories, those of the world are forgotten.
        Conflict when it is closed; NotFound."""
        changed = await self._events.set_memory(world, kept=kept)
        if changed is None:
            raise await _build_unusable_world_error(world, self._events)
        if not kept:
            await self._events.erase_forgotten()
        return changed

    async def list_worlds(self, limit: int, after: str | None = None, *, closed: bool = False) -> Sequence[World]:
        """By name, those after `after`. `closed`: whether closed worlds are listed too."""
        return await self._events.list_worlds(limit, after, closed=closed)

    async def get_world(self, name: str) -> World:
        """NotFound."""
        world = await self._events.get_world(name)
        if world is None:
            raise await _build_unusable_world_error(name, self._events)
        return world

    async def list_events(self, world: str, limit: int, before: tuple[datetime, str] | None = None) -> Sequence[Event]:
        """Events by time and id, descending, including the parent's past. `before`: the last event of the previous
        page. NotFound without the world."""
        await self.get_world(world)
        return await self._events.list_newest(world, limit, before)

    async def list_lorebooks(self, world: str) -> dict[str, Lorebook]:
        """Lorebooks by name, including those of the parent worlds. NotFound without the world."""
        await self.get_world(world)
        return await self._lorebooks.list_lorebooks(world)

    async def put_lorebook(
        self, world: str, name: str, book: Lorebook, based_on: str | None = None, author: str = ""
    ) -> None:
        """Stores or replaces a lorebook; durable on return. Creates the world if it does not exist. InvalidRequest
        naming the invalid field of the book. Conflict where the world has another lorebook of that name than
        `based_on`, its digest, or one although that is empty."""
        await run_in_turn("authors", refuse_unusable, book)
        await self._lorebooks.put(world, name, book, based_on, author)

    async def remove_lorebook(self, world: str, name: str, author: str = "") -> None:
        """NotFound without the world, and when it has itself no lorebook of that name."""
        await self.get_world(world)
        if not await self._lorebooks.remove(world, name, author):
            raise NotFound(f"world {world!r} has no lorebook {name!r} of its own")

    async def list_earlier(
        self, world: str, kind: DocumentKind, name: str, limit: int, before: int | None = None
    ) -> list[EarlierText]:
        """What an event or lorebook of this world itself said before: the latest replaced first, those with numbers
        before `before`. NotFound without the world."""
        await self.get_world(world)
        return await self._texts.list_earlier(world, kind, name, limit, before)

    async def get_earlier(self, world: str, kind: DocumentKind, name: str, number: int) -> WrittenText:
        """NotFound."""
        await self.get_world(world)
        text = await self._texts.get_earlier(world, kind, name, number)
        if text is None:
            raise NotFound(f"{kind} {name!r} of world {world!r} has no earlier text {number}")
        return text

    async def restore(self, world: str, kind: DocumentKind, name: str, number: int, author: str = "") -> None:
        """Puts an earlier text in force again, also of what was deleted. What is in force becomes an earlier text."""
        content = (await self.get_earlier(world, kind, name, number)).content
        if isinstance(content, Lorebook):
            await self.put_lorebook(world, name, content, author=author)
        elif not await self._events.correct(world, content, author=author):
            # The parent has moved the event to a time that this branch does not reach.
            await self._events.add_events(world, [content], author)

    async def explain(self, world: str, question: RetrievalQuestion) -> RetrievalExplanation:
        """What would be retrieved, best first, and what is withheld. A custom retriever without explanations gives only
        the passages. NotFound without the world; InvalidRequest naming `character` when it has no sheet;
        RetrieverFailed; EnvironmentUnavailable when no sheets are loaded."""
        query = self._build_query(world, question)
        try:
            return await self._retrieval.explain(query)
        except InvalidRequest as error:
            raise (
                await _build_unusable_world_error(world, self._events) if error.field == "world" else error
            ) from error

    async def build_context(self, world: str, moment: Moment) -> GameContext:
        """The exact prompt and passages that a task of this moment would have; nothing is stored. NotFound without the
        world; InvalidRequest naming the field of the moment, such as `character` when it has no sheet;
        RetrieverFailed; EnvironmentUnavailable when no sheets are loaded."""
        placed = (await self.place_moment(world, moment)).placed
        context = placed.context
        return GameContext(
            messages=placed.task.messages,
            tools=placed.task.tools,
            passages=context.passages,
            as_of=context.as_of,
            failure=context.failure,
        )

    async def place_moment(
        self, world: str | None, moment: Moment, *, own_draft: bool = False, earlier: Sequence[EarlierTalk] = ()
    ) -> PlacedMoment:
        """The task of this moment; without a world nothing is retrieved. `own_draft`: with the caller's draft of the
        character, not with what is published. `earlier`: what the character remembers of its player. Raises as
        `build_context`."""
        described = self._describe(world, moment, earlier)
        made = await self._build_own(described) if own_draft else self._build_draft(described)
        try:
            return PlacedMoment(made, await self._drafting.place_context(made, "moment", in_turn=own_draft))
        except InvalidRequest as error:
            if error.field != "moment.world" or world is None:
                raise
            raise await _build_unusable_world_error(world, self._events) from error

    async def _build_own(self, described: BaseModel) -> Drafted:
        with _name_fields():
            return await self._drafting.build_own(self._environment, described)

    def _build_draft(self, described: BaseModel) -> Drafted:
        with _name_fields():
            return self._drafting.build_draft(self._environment, described)

    def _describe(self, world: str | None, moment: Moment, earlier: Sequence[EarlierTalk] = ()) -> BaseModel:
        history = [line.describe() for line in moment.conversation]
        opening = {"event": moment.event} if moment.event is not None else {"player": history.pop()["text"]}
        tools = None if moment.tools is None else [tool.model_dump(mode="json") for tool in moment.tools]
        added = {
            "game_tools": tools,
            "begun": None if moment.begun is None else moment.begun.describe(),
            **({"earlier": [talk.model_dump(mode="json") for talk in earlier]} if earlier else {}),
        }
        staging = {name: getattr(moment, name) for name in Staging.model_fields}
        kind = self._catalogue.get_environment_or_current(self._environment).environment.Draft
        if kind is None:
            raise NotFound(f"{self._environment} does not accept game moments")
        return kind.model_validate(
            {
                "character": moment.character,
                "scene": {"history": history, **opening, **added},
                "params": {"world": world, **staging},
            }
        )

    def _build_query(self, world: str, question: RetrievalQuestion) -> ContextQuery:
        """Builds the query as a task of this character would, so that circles and random draws are the same."""
        text = question.text.strip()
        public = ContextQuery(
            text=text, character="", world=world, as_of=question.as_of, conversation=(text,) if text else ()
        )
        if question.character is None:
            return public
        answered = {"conversation": (ConversationTurn(role="user", content=text),)} if text else {"event": "-"}
        moment = Moment.model_validate({"character": question.character, "as_of": question.as_of, **answered})
        query = self._drafting.build_query(self._build_draft(self._describe(world, moment))) or public
        return query if text else query.model_copy(update={"text": "", "conversation": ()})


@contextlib.contextmanager
def _name_fields() -> Iterator[None]:
    """InvalidRequest names a field of the moment, which the draft has too."""
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(error.detail, field=(error.field or "").removeprefix("draft.") or None) from error


async def _build_unusable_world_error(world: str, events: EventStore) -> RequestRefused:
    stored = await events.get_world(world)
    if stored is not None and stored.closed_at is not None:
        return Conflict(f"world {world!r} is closed: prompts cannot use it any more")
    near = await suggest_world(world, events)
    return NotFound(f"there is no world {world!r}: no events were posted to it{near}")


async def list_worlds_within(
    worlds: WorldService, bounds: KeyBounds, limit: int, after: str | None = None, *, closed: bool = False
) -> list[World]:
    read = partial(worlds.list_worlds, closed=closed)
    return await list_within(read, lambda world: world.name, bounds.allows_world, limit, after)


# Cursors of pages of events.

_EventCursor = tuple[datetime, str]
"""Time and id of the last event of a page."""
_CURSOR: Final = TypeAdapter[_EventCursor](tuple[GameTime, EventId])


def build_cursor(page: Sequence[Event], limit: int) -> str | None:
    """The cursor for the next page; None on the last page."""
    if len(page) < limit:
        return None
    last = page[-1]
    return f"{last.time.replace(tzinfo=None).isoformat()}Z,{last.id}"


def parse_cursor(text: str) -> _EventCursor | None:
    """Parses a cursor that `build_cursor` wrote; None when it is invalid."""
    time, _, event = text.partition(",")
    try:
        return _CURSOR.validate_python((time, event))
    except ValidationError:
        return None
