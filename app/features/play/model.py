"""Turns of people with characters, and their storage."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field, JsonValue

from app.domain.values import FiniteNumber, Frozen, is_absent
from app.domain.worlds import Talk


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
    recalled: Annotated[int, Field(exclude_if=lambda count: count == 0)] = 0
    """How many lines of earlier talk its prompt told. Such a reply is neither kept as an example nor a label."""
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


@dataclass(frozen=True)
class RememberedTurn:
    """What a world that keeps memories remembers of a turn, and of the one before as the conversation went on."""

    talk: Talk
    former: Talk | None


class Forgotten(Frozen):
    """How much was removed."""

    removed: int
    """Memories."""
    turns: int
    """Kept turns, which hold the same words."""


_LONGEST_LINE: Final = 4000


def clean_line(text: str) -> str:
    """A line as it is remembered: what a policy or a client wrote may hold what is no text, and may be long."""
    clean = text.encode("utf-8", "replace").decode().strip()
    return clean if len(clean) <= _LONGEST_LINE else f"{clean[: _LONGEST_LINE - 1]}…"
