"""Turns of people with characters, and their storage."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field, JsonValue

from app.characters.actions import DoneCalls
from app.domain.values import FiniteNumber, Frozen, Typical, find_typical, is_absent
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
    calls: DoneCalls = ()
    """What the character does beside its words."""
    left_out: Annotated[tuple[str, ...], Field(exclude_if=is_absent)] = ()
    """Why calls of the policy were left out: nobody could read them, or they do not fit the tools that were offered."""
    seconds: FiniteNumber | None = None
    """Of the whole reply."""
    first_token_seconds: Annotated[FiniteNumber | None, Field(exclude_if=is_absent)] = None
    """Until its first word or call came; null where it was not streamed. Thoughts do not count."""
    prompt_tokens: Annotated[int | None, Field(exclude_if=is_absent)] = None
    """As the policy's server counted, like `completion_tokens`. Null where it told none."""
    completion_tokens: Annotated[int | None, Field(exclude_if=is_absent)] = None
    as_of: datetime | None = None
    """Game time of what was retrieved into its prompt."""
    recalled: Annotated[int, Field(exclude_if=lambda count: count == 0)] = 0
    """How many lines of earlier talk its prompt told. Such a reply is neither kept as an example nor a label."""
    better: bool = False
    """Its player called it the best of this turn."""
    created_at: datetime


MEASURES: Final = ("seconds", "first_token_seconds", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class LineMeasures:
    """How long a policy took for lines, and how many tokens. None where no server told it."""

    policy: str
    lines: int
    first_token_seconds: Typical | None
    seconds: Typical | None
    completion_tokens: Typical | None
    prompt_tokens: Typical | None


def measure_lines(replies: Iterable[PlayReply]) -> tuple[LineMeasures, ...]:
    """By policy."""
    by_policy: dict[str, list[PlayReply]] = {}
    for reply in replies:
        by_policy.setdefault(reply.policy, []).append(reply)
    return tuple(
        LineMeasures(policy, len(said), **{name: find_typical(_find_values(said, name)) for name in MEASURES})
        for policy, said in sorted(by_policy.items())
    )


def _find_values(replies: Iterable[PlayReply], name: str) -> Iterator[float]:
    return (value for one in replies if (value := getattr(one, name)) is not None)


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
