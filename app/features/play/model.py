"""Turns of people with characters, and their storage."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Protocol

from pydantic import Field, JsonValue

from app.domain.values import FiniteNumber, Frozen, is_absent


class PlayReply(Frozen):
    """One answer to a turn. `model` is the policy's model, as its server names it."""

    reply_id: str
    policy: str
    model: str
    text: str
    finish_reason: str | None = None
    flags: tuple[str, ...] = ()
    """What the gates noticed."""
    unchecked: Annotated[str | None, Field(exclude_if=is_absent)] = None
    """Why the gates could not read it, so that `flags` says nothing."""
    retrieval_failure: Annotated[str | None, Field(exclude_if=is_absent)] = None
    """Why its prompt holds nothing that was retrieved. Such a turn is neither kept nor a label."""
    seconds: FiniteNumber | None = None
    as_of: datetime | None = None
    """Game time of what was retrieved into its prompt."""
    better: bool = False
    """Its player called it the best of this turn."""
    created_at: datetime


class PlayTurn(Frozen):
    """A moment of a game that somebody put before policies, and their answers: asking again adds one. `moment` is what
    `POST /worlds/{world}/context` takes."""

    turn_id: str
    player: str
    """A keyed hash of whose key it was, and of the `user` that the client named."""
    character: str
    world: str | None
    moment: dict[str, JsonValue]
    created_at: datetime
    replies: tuple[PlayReply, ...] = ()


class PlayStore(Protocol):
    """Turns are found by their players alone."""

    async def load_salt(self) -> bytes:
        """Random, the same for the store's whole life: player ids are hashed with it."""

    async def add(self, turn: PlayTurn, replies: Sequence[PlayReply]) -> None:
        """Adds replies to the turn, which is made where there is none; durable on return."""

    async def get(self, player: str, turn_id: str) -> PlayTurn | None:
        """With its replies, the oldest first."""

    async def list_turns(self, player: str, limit: int) -> Sequence[PlayTurn]:
        """The newest, without their replies."""

    async def mark_better(self, player: str, turn_id: str, reply_id: str) -> bool:
        """That reply alone is the better one of the turn. False where there is none."""

    async def remove(self, player: str, turn_id: str | None = None) -> int:
        """The turn, or all of the player; how many were there."""

    async def prune(self, before: datetime) -> int:
        """Removes what is older, whoever's it is."""
