"""Requests and replies about worlds: events, branches, questions to retrieval, and moments of a game."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from app.characters.casting import Staging
from app.characters.schema import Text
from app.domain.tasks import Message, Passage
from app.domain.values import Frozen, Name
from app.domain.worlds import Event, GameTime

MAX_EVENTS = 1000
"""In one request."""


class EventsToAdd(Frozen):
    """Events to add to a world. Either all are added or none."""

    events: Annotated[tuple[Event, ...], Field(min_length=1, max_length=MAX_EVENTS)]


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
    content: Text


class Moment(Staging):
    """A moment of a game that a character responds to."""

    character: Name
    """Id of a served character sheet."""
    conversation: Annotated[tuple[ConversationTurn, ...], Field(max_length=200)] = ()
    """The conversation so far, in turns, the player first. (The character's greeting is part of its prompt.) It ends
    with the player's line to answer or, if `event` is set, with the character's last line."""
    event: Text | None = None
    """Something the character witnesses and responds to, instead of a player's line."""

    @model_validator(mode="after")
    def _require_alternating_turns(self) -> Self:
        if any(line.role != ("user", "assistant")[turn % 2] for turn, line in enumerate(self.conversation)):
            raise ValueError("a conversation alternates between user and assistant, user first")
        if len(self.conversation) % 2 != (self.event is None):
            raise ValueError("a conversation ends with user, or with assistant where an event is given")
        return self


class GameContext(Frozen):
    """The prompt for a moment of a game, exactly as a training task would have it."""

    messages: tuple[Message, ...]
    passages: tuple[Passage, ...]
    """Retrieved passages, in prompt order."""
    as_of: datetime | None
    """Game time of the retrieval; null in a world without events."""
    failure: str | None = None
    """Why retrieval failed, when the settings allow prompts without passages."""
