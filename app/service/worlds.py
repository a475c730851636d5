"""What a game tells of its worlds, what a designer asks about them, and the prompt that a game asks for."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from app.characters.casting import Staging
from app.characters.lorebooks.checking import refuse_unusable
from app.characters.schema import Text
from app.domain.errors import InvalidRequest, NotFound
from app.domain.lorebooks import Lorebook
from app.domain.suggestions import suggest
from app.domain.tasks import ContextQuery, Message, Passage
from app.domain.values import Frozen, Name
from app.domain.worlds import Event, EventId, EventsTold, Explained, GameTime, World
from app.ports.environment import Drafted
from app.ports.retrieval import Events, Lorebooks
from app.service.catalogue import Catalogue
from app.service.drafting import Drafting
from app.service.retrieval import Retrieval

NEAR_WORLDS = 500
"""Among so many worlds the one is looked for that somebody may have meant."""
MOST_EVENTS = 1000
"""In one request."""


class EventsToTell(Frozen):
    """All are told, or none."""

    events: Annotated[tuple[Event, ...], Field(min_length=1, max_length=MOST_EVENTS)]


class Branching(Frozen):
    """A world that shares another's past: a saved game that was loaded again."""

    parent: Name
    at: GameTime | None = None
    """Game time up to which the past is shared, that moment included; up to the parent's newest event when null."""


class Question(Frozen):
    """What would be retrieved, and why."""

    text: Annotated[str, Field(max_length=4000)] = ""
    """As if it had just been said; without it events come up by their time and importance alone."""
    character: Name | None = None
    """Who asks, with its circles; without one, somebody who knows of public events alone."""
    as_of: GameTime | None = None
    """Game time; the newest event's when null."""


class Said(Frozen):
    """As OpenAI's chat format has it: `user` is the player, `assistant` the character."""

    role: Literal["user", "assistant"]
    content: Text


class Moment(Staging):
    """A moment of a game in which a character is to answer."""

    character: Name
    """The id of a sheet that is served."""
    conversation: Annotated[tuple[Said, ...], Field(max_length=200)] = ()
    """What has been said, in turns, the player first: a greeting of the character's stands in its prompt. It ends with
    the player's line that is to be answered, or with the character's last line where `event` is."""
    event: Text | None = None
    """What happens before the character's eyes, to be answered in the place of a line."""

    @model_validator(mode="after")
    def _to_be_answered(self) -> Self:
        if any(line.role != ("user", "assistant")[turn % 2] for turn, line in enumerate(self.conversation)):
            raise ValueError("a conversation alternates between user and assistant, user first")
        if len(self.conversation) % 2 != (self.event is None):
            raise ValueError("a conversation ends with user, or with assistant where an event is given")
        return self


class GameContext(Frozen):
    """What a model is asked in such a moment, as in training: exactly the prompt of a task."""

    messages: tuple[Message, ...]
    passages: tuple[Passage, ...]
    """What was retrieved into the prompt, in its order."""
    as_of: datetime | None
    """Game time of what was retrieved; null in a world without events."""
    failure: str | None = None
    """Why nothing was retrieved although it should have been, where the settings go on without."""


class WorldDesk:
    """The verbs of worlds. `environment` is the one whose characters live in them."""

    def __init__(
        self,
        *,
        environment: str,
        catalogue: Catalogue,
        drafting: Drafting,
        events: Events,
        lorebooks: Lorebooks,
        retrieval: Retrieval,
    ) -> None:
        self._environment = environment
        self._catalogue = catalogue
        self._drafting = drafting
        self._events = events
        self._lorebooks = lorebooks
        self._retrieval = retrieval

    async def tell(self, world: str, told: EventsToTell) -> EventsTold:
        """Durable on return, and seen by whatever is retrieved from then on; a world that nobody named before begins.
        Conflict naming `events[i].id` for an id that was told before with another content."""
        return await self._events.tell(world, told.events)

    async def withdraw(self, world: str, event_id: EventId) -> None:
        """It never happened, neither here nor in branches of this world. Withdrawing it again is no error. NotFound
        without the world or the event."""
        if not await self._events.withdraw(world, event_id):
            raise NotFound(f"nothing was told of {event_id!r} in {world!r}")

    async def branch(self, world: str, branching: Branching) -> World:
        """Repeats give the same world. NotFound without the parent; InvalidRequest naming `at` when nothing says up to
        when a parent without events is shared; Conflict when `world` is another one already, or too many branches lie
        between it and the first."""
        parent = await self.world(branching.parent)
        at = branching.at or parent.newest
        if at is None:
            raise InvalidRequest(f"{branching.parent!r} has no events: say up to when its past is shared", field="at")
        return await self._events.branch(world, branching.parent, at)

    async def worlds(self, limit: int, after: str | None = None) -> Sequence[World]:
        """By name, those after `after`."""
        return await self._events.worlds(limit, after)

    async def world(self, name: str) -> World:
        """NotFound."""
        found = await self._events.world(name)
        if found is None:
            raise await _no_such(name, self._events)
        return found

    async def events(self, world: str, limit: int, before: tuple[datetime, str] | None = None) -> Sequence[Event]:
        """By time and id, downwards, its past included. `before`: the last of the page before. NotFound without the
        world."""
        await self.world(world)
        return await self._events.newest(world, limit, before)

    async def lorebooks(self, world: str) -> dict[str, Lorebook]:
        """By name, those of its past included. NotFound without the world."""
        await self.world(world)
        return await self._lorebooks.of(world)

    async def put_lorebook(self, world: str, name: str, book: Lorebook) -> None:
        """Durable on return, in the place of an earlier one; a world that nobody named before begins. InvalidRequest
        naming the field of the book that cannot be used."""
        await asyncio.to_thread(refuse_unusable, book)
        await self._lorebooks.put(world, name, book)

    async def remove_lorebook(self, world: str, name: str) -> None:
        """NotFound when this world itself has none of that name."""
        if not await self._lorebooks.remove(world, name):
            raise NotFound(f"{world!r} has no lorebook {name!r} of its own")

    async def explain(self, world: str, question: Question) -> Explained:
        """What would be retrieved, best first, and what is withheld; of a retriever of the operator's that gives no
        reasons the passages alone. NotFound without the world; InvalidRequest naming `character` for one without a
        sheet; RetrieverFailed; EnvironmentUnavailable while there are no sheets."""
        query = self._asked(world, question)
        try:
            return await self._retrieval.explained(query)
        except InvalidRequest as error:
            raise (await _no_such(world, self._events) if error.field == "world" else error) from error

    async def context(self, world: str, moment: Moment) -> GameContext:
        """Exactly the prompt and the passages that a task of this moment would have; nothing is stored. NotFound
        without the world; InvalidRequest naming the field of the moment, as `character` for one without a sheet;
        RetrieverFailed; EnvironmentUnavailable while there are no sheets."""
        made = self._drafted(world, moment)
        try:
            placed = await self._drafting.placed(made, "moment")
        except InvalidRequest as error:
            raise (await _no_such(world, self._events) if error.field == "moment.world" else error) from error
        context = placed.context
        return GameContext(
            messages=placed.task.messages, passages=context.passages, as_of=context.as_of, failure=context.failure
        )

    def _drafted(self, world: str, moment: Moment) -> Drafted:
        said = [
            {"speaker": "player" if line.role == "user" else "npc", "text": line.content}
            for line in moment.conversation
        ]
        opening = {"event": moment.event} if moment.event is not None else {"player": said.pop()["text"]}
        staging = {name: getattr(moment, name) for name in Staging.model_fields}
        kind = self._catalogue.hosted(self._environment).environment.Draft
        if kind is None:
            raise NotFound(f"{self._environment} has no moments")
        draft = kind.model_validate(
            {
                "character": moment.character,
                "scene": {"history": said, **opening},
                "params": {"world": world, **staging},
            }
        )
        try:
            return self._drafting.drafted(self._environment, draft)
        except InvalidRequest as error:
            raise InvalidRequest(error.detail, field=(error.field or "").removeprefix("draft.") or None) from error

    def _asked(self, world: str, question: Question) -> ContextQuery:
        """As a task of the character's would ask, so that its circles count and chance falls as it falls there."""
        text = question.text.strip()
        public = ContextQuery(
            text=text, character="", world=world, as_of=question.as_of, conversation=(text,) if text else ()
        )
        if question.character is None:
            return public
        answered = {"conversation": (Said(role="user", content=text),)} if text else {"event": "-"}
        moment = Moment.model_validate({"character": question.character, "as_of": question.as_of, **answered})
        query = self._drafting.query(self._drafted(world, moment)) or public
        return query if text else query.model_copy(update={"text": "", "conversation": ()})


async def _no_such(world: str, events: Events) -> NotFound:
    near = suggest(world, [one.name for one in await events.worlds(NEAR_WORLDS, None)])
    return NotFound(f"there is no world {world!r}: nothing has been told of it{near}")
